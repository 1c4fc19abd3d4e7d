"""Balanced truncation [Moore1981], the classical model reduction: new states instead of a choice among the old ones.

A layer is a real system with two dimensions per stored state, z = [Re x, Im x]. Its controllability Gramian P says
how far white noise drives z, its observability Gramian Q how much of z reaches the outputs; both have closed forms for
diagonal systems. In balanced coordinates both are diag(σ), the Hankel singular values. What has a small σ is cut off,
and the rest is brought back to diagonal form. The gain of what is lost is at most 2 Σ σ of what was cut off.

The two directions of a bidirectional layer share poles and B, so Q counts the outputs of both, side by side, and the
same states go from both; the bound then holds for each direction, and twice it for their sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arrays import Complex, Mask, Real
from ..core.moments import weights, white_noise
from ..core.system import DiagonalSystem, states_have
from ..errors import InputError
from .criterion import Evidence

FAINTEST = 1e-8  # of the largest σ: what is below is rounding, and is always cut off
SKEWEST = 1e6  # largest condition number of the eigenvectors: single precision bears no more
INSTEAD = "Use a method that chooses among the states there are, such as LAST."


class Reduced(NamedTuple):
    """A smaller system in place of a layer's, and how much the gain of their difference is at most."""

    system: DiagonalSystem
    bound: float


class RealSystem(NamedTuple):
    """A real system in diagonal form, an entry for two conjugate poles or a real pole; the output is Re(C x)."""

    poles: Complex  # (r,)
    B: Complex  # (r, inputs)
    C: Complex  # (directions, outputs, r)
    order: int  # its dimension: two for conjugate poles


def hankel(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the logarithms of the squared Hankel singular values, two added up for each state, the largest first.

    They are those of the layer, or of each of its channels, and belong to no state in particular: a criterion for
    `truncate`, which makes new states.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5j, 0.9j], B=[[1], [1]], C=[[1, 1]])
    >>> np.exp(hankel(system, Evidence.without_data(system)) / 2).round(2)
    array([4.33, 0.45])
    """
    sigma = Balanced.of(system).sigma
    with np.errstate(divide="ignore"):
        score: Real = np.log(np.sum(sigma.reshape(len(sigma), -1, 2) ** 2, axis=2))
    return system.layout.gather(score)  # the j-th state of a problem stands for the j-th two of its singular values


def truncate(system: DiagonalSystem, keep: Mask) -> Reduced:
    """Return the balanced truncation to as many states, in each channel, as `keep` (n,) marks there.

    A stored state holds two conjugate poles or a real pole, so a system with real poles is cut off a little earlier.

    >>> near = DiagonalSystem.from_discrete(poles=[0.5, 0.5001], B=[[1], [1]], C=[[1, 1]], gain=2)
    >>> small, bound = truncate(near, np.array([True, False]))
    >>> small.poles.round(3), bound < 1e-6
    (array([0.5+0.j]), True)
    """
    layout, balanced = system.layout, Balanced.of(system)
    sizes = np.bincount(layout.channel[keep], minlength=layout.channels).tolist()
    poles, B, C, orders = zip(*[balanced.within(problem, size) for problem, size in enumerate(sizes)], strict=True)
    small = DiagonalSystem.from_discrete(
        np.concatenate(poles),
        np.concatenate(B),
        np.concatenate(C, axis=2) / system.gain,
        channel=None if system.channel is None else np.repeat(np.arange(len(poles)), [*map(len, poles)]),
        channels=system.channels,
        gain=system.gain,
        backward_delay=system.backward_delay,
        has_D=system.has_D,
    )
    lost = [2 * values[order:].sum() for values, order in zip(balanced.sigma, orders, strict=True)]
    return Reduced(small, system.directions * float((lost + balanced.rounding).max()))


@dataclass(frozen=True, eq=False)
class Balanced:
    """A layer in balanced coordinates; problems are its channels, or the whole of a MIMO layer."""

    system: DiagonalSystem
    sigma: Real  # (problems, 2 slots): Hankel singular values, descending
    into: Real  # (problems, 2 slots, 2 slots): from features to balanced coordinates
    back: Real  # (problems, 2 slots, 2 slots)
    rounding: Real  # (problems,): what may be lost beside 2 Σ σ, by σ too faint to tell and by digits

    @classmethod
    def of(cls, system: DiagonalSystem) -> Balanced:
        """Balance by the square-root method: P = RRᵀ, Q = LLᵀ, LᵀR = UΣVᵀ; into = Σ^-½ UᵀLᵀ and back = RVΣ^-½."""
        if system.unstable_states.any():
            poles = f"{states_have(system.unstable_states)} a pole on or outside the unit circle"
            raise InputError(f"{poles}, so the layer cannot be balanced. {INSTEAD}")
        P, Q = controllability(system), observability(system)
        R, L = _root(P), _root(Q)
        U, sigma, Vt = np.linalg.svd(L.swapaxes(1, 2) @ R)
        faint = sigma <= FAINTEST * sigma[:, :1]
        rounding = 2 * np.sum(sigma * faint + FAINTEST * np.sqrt(np.einsum("gff,gff->gf", P, Q)), axis=1)
        sigma[faint] = 0
        scale = np.divide(1, np.sqrt(sigma), out=np.zeros_like(sigma), where=sigma > 0)
        into, back = (L @ U * scale[:, None]).swapaxes(1, 2), R @ Vt.swapaxes(1, 2) * scale[:, None]
        return cls(system, sigma, into, back, rounding)

    def within(self, problem: int, size: int) -> RealSystem:
        """Return the largest truncated system of a problem that `size` stored states can hold."""
        most = min(2 * size, int(np.count_nonzero(self.sigma[problem])))
        for order in range(most, 0, -1):
            truncated = self._truncated(problem, order)
            if truncated is not None and len(truncated.poles) <= size:
                return truncated
        if most:
            raise InputError(f"No truncated system of {size} states is stable and diagonal: poles coincide. {INSTEAD}")
        system, left = self.system, size if self.system.channel is None else 0  # what is silent is as good as any
        return RealSystem(system.poles[:left], system.B[:left], system.gain * system.C[:, :, :left], 0)

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
        return RealSystem(poles[stored], B, C, order)

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
