"""Balanced truncation, the classical model reduction: new states instead of a choice among the old ones.

A layer is a real system with two dimensions per stored state, z = [Re x, Im x]. Its controllability Gramian P says
how far white noise drives z, its observability Gramian Q how much of z reaches the outputs; both have closed forms for
diagonal systems. In balanced coordinates both are diag(σ), the Hankel singular values. What has a small σ is cut off,
and the rest is brought back to diagonal form. The gain of what is lost is at most 2 Σ σ of what was cut off.

The two directions of a bidirectional layer share poles and B, so Q counts the outputs of both, side by side, and the
same states go from both; the bound then holds for each direction, and twice it for their sum.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from ..adapters import Adapter, layers_of
from ..arrays import Complex, Mask, Real
from ..core.moments import weights, white_noise
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..methods import Allocation, layer_adaptive
from ..planning.make import Limits, check_ratio

Model = TypeVar("Model")
# A real system in diagonal form, an entry for two conjugate poles or a real pole: poles (r,), B (r, inputs) and C
# (directions, outputs, r); the output is Re(C x).
RealSystem = tuple[Complex, Complex, Complex]
FAINTEST = 1e-8  # of the largest σ: what is below is rounding, and is always cut off
SKEWEST = 1e6  # largest condition number of the eigenvectors: single precision bears no more


def rewrite(
    model: Model,
    reduce: Callable[[Mapping[str, DiagonalSystem]], Mapping[str, DiagonalSystem]],
    adapter: Adapter | None = None,
) -> Model:
    """Return a copy of a model whose layers compute the systems that `reduce` makes of theirs; D stays."""
    other = copy.deepcopy(model)
    layers = layers_of(other, adapter)
    systems = {path: layer.read() for path, layer in layers.items()}
    for path, system in reduce(systems).items():
        if system is not systems[path]:
            layers[path].write(system)
    return other


def balanced_truncation(
    systems: Mapping[str, DiagonalSystem], ratio: float, allocation: Allocation = layer_adaptive
) -> dict[str, DiagonalSystem]:
    """Return systems with the share `ratio` fewer states, in all; a layer that loses none stays as it is.

    The allocation compares Hankel singular values squared, two per state. A stored state holds two conjugate
    poles or a real pole, so a layer whose truncated system has real poles is cut off a little earlier.

    >>> near = DiagonalSystem.from_discrete(poles=[0.5, 0.5001], B=[[1], [1]], C=[[1, 1]], gain=2)
    >>> balanced_truncation({"ssm": near}, ratio=0.5)["ssm"].poles.round(3)
    array([0.5+0.j])
    """
    check_ratio(ratio)
    balanced = {layer: Balanced.of(layer, system) for layer, system in systems.items()}
    scores = {layer: coordinates.scores for layer, coordinates in balanced.items()}
    stay = {layer: Limits().stay(layer, systems[layer], score) for layer, score in scores.items()}
    keep = allocation(scores, ratio, stay)
    return {
        layer: systems[layer] if keep[layer].all() else coordinates.cut(keep[layer])
        for layer, coordinates in balanced.items()
    }


@dataclass(frozen=True, eq=False)
class Balanced:
    """A layer in balanced coordinates; problems are its channels, or the whole of a MIMO layer."""

    layer: str
    system: DiagonalSystem
    sigma: Real  # (problems, 2 slots): Hankel singular values, descending
    into: Real  # (problems, 2 slots, 2 slots): from features to balanced coordinates
    back: Real  # (problems, 2 slots, 2 slots)

    @classmethod
    def of(cls, layer: str, system: DiagonalSystem) -> Balanced:
        """Balance by the square-root method: P = RRᵀ, Q = LLᵀ, LᵀR = UΣVᵀ; into = Σ^-½ UᵀLᵀ and back = RVΣ^-½."""
        if system.unstable_states.any():
            raise InputError(f"Layer {layer!r} has unstable poles, so it cannot be balanced; use another method.")
        R, L = _root(controllability(system)), _root(observability(system))
        U, sigma, Vt = np.linalg.svd(L.swapaxes(1, 2) @ R)
        sigma[sigma <= FAINTEST * sigma[:, :1]] = 0
        scale = np.divide(1, np.sqrt(sigma), out=np.zeros_like(sigma), where=sigma > 0)
        return cls(
            layer, system, sigma, (L @ U * scale[:, None]).swapaxes(1, 2), R @ Vt.swapaxes(1, 2) * scale[:, None]
        )

    @property
    def scores(self) -> Real:
        """Log-scores (n,): the j-th state of a problem stands for the j-th two of its singular values."""
        with np.errstate(divide="ignore"):
            score: Real = np.log(np.sum(self.sigma.reshape(len(self.sigma), -1, 2) ** 2, axis=2))
        return self.system.layout.gather(score)

    def cut(self, keep: Mask) -> DiagonalSystem:
        """Return a system with as many states in each problem as `keep` (n,) marks there, or slightly fewer."""
        layout, system = self.system.layout, self.system
        sizes = np.bincount(layout.channel[keep], minlength=layout.channels)
        truncated = [self._within(problem, int(size)) for problem, size in enumerate(sizes)]
        poles, B, C = zip(*truncated, strict=True)
        return DiagonalSystem.from_discrete(
            np.concatenate(poles),
            np.concatenate(B),
            np.concatenate(C, axis=2) / system.gain,
            channel=None if system.channel is None else np.repeat(np.arange(len(poles)), [*map(len, poles)]),
            channels=system.channels,
            gain=system.gain,
            backward_delay=system.backward_delay,
        )

    def _within(self, problem: int, size: int) -> RealSystem:
        """Return the largest truncated system of a problem that `size` stored states can hold."""
        most = min(2 * size, int(np.count_nonzero(self.sigma[problem])))
        for order in range(most, 0, -1):
            truncated = self._truncated(problem, order)
            if truncated is not None and len(truncated[0]) <= size:
                return truncated
        if most or self.system.channel is None:
            raise InputError(
                f"Layer {self.layer!r} has no truncated system of {size} states that is stable and diagonal: "
                "it is silent, or poles coincide. Use another method."
            )
        return self.system.poles[:0], self.system.B[:0], self.system.C[:, :, :0]

    def _truncated(self, problem: int, order: int) -> RealSystem | None:
        """Return the first balanced coordinates in diagonal form, or None where that is not stable or not possible."""
        into, back = self.into[problem, :order], self.back[problem, :, :order]
        poles, B, C = (values[problem] for values in self._spread)
        poles, vectors = np.linalg.eig(into @ _to_real(poles[:, None] * _to_complex(back)))
        if np.any(poles == 0) or np.any(np.abs(poles) >= 1) or np.linalg.cond(vectors) > SKEWEST:
            return None
        stored = poles.imag >= 0
        B = np.linalg.solve(vectors, (into @ _to_real(B)).astype(complex))[stored]
        C = (back.T @ C).transpose(0, 2, 1) @ vectors[:, stored] * np.where(poles.imag > 0, 2, 1)[stored]
        return poles[stored], B, C

    @cached_property
    def _spread(self) -> tuple[Complex, Complex, Real]:
        """Poles (problems, slots), B (problems, slots, inputs) and Wᵀ (problems, directions, 2 slots, outputs)."""
        layout, system = self.system.layout, self.system
        W = weights(system).reshape(layout.channels, layout.slots, system.directions, 2, -1).transpose(0, 2, 1, 3, 4)
        W = W.reshape(layout.channels, system.directions, 2 * layout.slots, -1)
        return layout.spread(system.poles), layout.spread(system.B), W


def controllability(system: DiagonalSystem) -> Real:
    """Return P = Σ_k AᵏBBᵀAᵏᵀ of the real features (problems, 2 slots, 2 slots), either direction's."""
    gram = white_noise(replace(system, C=system.C[:1], real_C=False)).gram
    return gram.reshape(len(gram), gram.shape[1] * 2, -1)


def observability(system: DiagonalSystem) -> Real:
    """Return Q = Σ_k AᵏᵀWWᵀAᵏ, that of both directions' outputs: what P is to the transposed system."""
    turned = (
        replace(system, log_poles=system.log_poles.conj(), B=system.gain * C.conj().T, C=system.B.T[None])
        for C in system.C
    )
    return np.asarray(sum(controllability(direction) for direction in turned), np.float64)


def _root(gram: Real) -> Real:
    """Return R with R Rᵀ = gram (problems, features, features), of features scaled to unit energy for precision."""
    scale = np.sqrt(np.einsum("gff->gf", gram))[:, :, None]
    unit = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(gram * unit * unit.swapaxes(1, 2))
    return np.asarray(scale * vectors * np.sqrt(np.maximum(values, 0))[:, None], np.float64)


def _to_complex(parts: Real) -> Complex:
    """Return complex numbers (slots, ...) from real and imaginary parts in turns, (2 slots, ...)."""
    return np.asarray(parts[::2] + 1j * parts[1::2], np.complex128)


def _to_real(numbers: Complex) -> Real:
    """Return the reverse of `_to_complex`."""
    return np.stack([numbers.real, numbers.imag], axis=1).reshape(2 * len(numbers), *numbers.shape[1:])
