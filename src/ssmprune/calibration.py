"""Calibration: second moments of every layer's states, from unlabelled data or in closed form for white noise."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .adapters import Adapter, layers_of
from .arrays import Complex, Real
from .errors import InputError, need_torch
from .features import Layout, weights
from .system import DiagonalSystem


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of a layer's features z (problems, slots, parts), see `features`, and of its input u.

    Outputs are those of one problem; u is, for each output, the input that the diagonal D leads to it.
    """

    gram: Real  # (problems, slots, parts, slots, parts): E[z zᵀ]
    cross: Real  # (problems, slots, parts, outputs): E[z u]
    power: Real  # (problems, outputs): E[u²]

    def __post_init__(self) -> None:
        """Refuse what no plan can be made from."""
        if not all(np.isfinite(values).all() for values in (self.gram, self.cross, self.power)):
            raise InputError("The moments are not finite: the inputs hold NaN or infinite numbers, or are too large.")


@dataclass(frozen=True, eq=False)
class Residual:
    """Second moments of what a layer's output lacks, r, with its features z and input u."""

    cross: Real  # (problems, slots, parts, outputs): E[z r]
    input: Real  # (problems, outputs): E[u r]
    energy: float  # E|r|², over all outputs


def energies(system: DiagonalSystem, moments: Moments) -> Real:
    """Return the log-score (n,) of every state by the energy of what it alone adds to the output, tr(w_sᵀ G_ss w_s).

    >>> system = DiagonalSystem.from_discrete([0.0, 0.6], [[1], [1]], [[1, 1]])
    >>> np.exp(energies(system, white_noise(system)))
    array([1.    , 1.5625])
    """
    W, own = weights(system), np.einsum("gsasb->gsab", moments.gram)
    with np.errstate(divide="ignore"):
        score: Real = np.log(Layout.of(system).gather(np.einsum("gsaq,gsab,gsbq->gs", W, own, W)))
    return score


def moments_of(systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None) -> Mapping[str, Moments]:
    """Return moments, having checked that they are of these systems; without any, those of white noise."""
    if moments is None:
        return {layer: white_noise(system) for layer, system in systems.items()}
    for layer, system in systems.items():
        layout = Layout.of(system)
        shape = layout.problems, layout.slots, 2 * system.directions
        if layer not in moments or moments[layer].gram.shape != (*shape, *shape[1:]):
            raise InputError(f"The moments are not those of layer {layer!r}; collect them on this very model.")
    return moments


def white_noise(system: DiagonalSystem) -> Moments:
    """Return the moments under white noise of unit power, from the parameters alone.

    E[x xᴴ] = B Bᴴ / (1 - λ λᴴ) and E[x xᵀ] = B Bᵀ / (1 - λ λᵀ), elementwise; forward and backward states have only
    the present input in common. States with an unstable pole have no such moments and count as silent.
    """
    layout, directions, now = Layout.of(system), system.directions, system.backward_delay == 0
    B = layout.spread(np.where(system.unstable_states[:, None], 0, system.B))  # (problems, slots, inputs)
    log_poles = layout.spread(np.where(system.unstable_states, -1, system.log_poles), fill=-1)

    def covariance(B2: Complex, log_poles2: Complex) -> Complex:  # (problems, slots, directions, slots, directions)
        drive = B @ B2.swapaxes(1, 2)
        same = drive / -np.expm1(log_poles[:, :, None] + log_poles2[:, None, :])
        other = drive * now
        blocks = np.stack([np.stack([same, other]), np.stack([other, same])])
        return blocks[:directions, :directions].transpose(2, 3, 0, 4, 1)

    hermitian, plain = covariance(B.conj(), log_poles.conj()), covariance(B, log_poles)
    real = np.stack([(plain + hermitian).real, (plain - hermitian).imag], axis=-1)  # E[Re Re'], E[Re Im']
    imag = np.stack([(plain + hermitian).imag, (hermitian - plain).real], axis=-1)  # E[Im Re'], E[Im Im']
    gram = np.stack([real, imag], axis=3) / 2
    drive = np.stack([B, B * now], axis=2)[:, :, :directions]
    cross = np.stack([drive.real, drive.imag], axis=3)
    shape = layout.problems, layout.slots, 2 * directions
    return Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), np.ones((layout.problems, B.shape[2])))


def collect(model: Any, batches: Iterable[Any], *, adapter: Adapter | None = None) -> dict[str, Moments]:
    """Run a torch model on unlabelled inputs and return the moments of every SSM layer, in one pass.

    A batch is what the model takes, x (batch, length, ...), or a pair (x, lengths) with lengths (batch,) beyond which
    there is padding that must not count.
    """
    need_torch()
    from .sampling import Tally, refuse_what_cannot_run, slices, watch

    refuse_what_cannot_run(model)
    model = copy.deepcopy(model).eval()  # the hooks and the mode of the caller's model stay as they are
    layers = layers_of(model, adapter)
    tallies = {path: Tally(layer.read()) for path, layer in layers.items()}
    sinks = {layer.calling_module: tallies[path].add for path, layer in layers.items()}
    families = {layer.calling_module: layer.family for layer in layers.values()}
    for part in slices(batches):
        watch(model, part, sinks, families)
    return {path: tally.moments() for path, tally in tallies.items()}
