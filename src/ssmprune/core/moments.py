"""A layer's readout as regression weights, and the second moments of its regressors, of data or of white noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Complex, Real
from ..errors import InputError
from .system import DiagonalSystem


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of the regressors z (channels, slots, parts) of a layer, and of its input u.

    Outputs are those of one channel; u is, for each output, the input that the diagonal D leads to it.
    """

    gram: Real  # (channels, slots, parts, slots, parts): E[z zᵀ]
    cross: Real  # (channels, slots, parts, outputs): E[z u]
    power: Real  # (channels, outputs): E[u²]
    sequences: int = 0  # of data that were seen; none for moments in closed form

    def __post_init__(self) -> None:
        if not all(np.isfinite(values).all() for values in (self.gram, self.cross, self.power)):
            raise InputError("The moments are not finite: the inputs hold NaN or infinite numbers, or are too large.")

    def held_by(self, system: DiagonalSystem) -> Moments:
        """Return the moments without regressors that the layer gives no weight: Im x by a real C, u without a D."""
        if system.has_D and not system.real_C:
            return self
        parts, D = np.arange(self.gram.shape[2]) % 2 <= (not system.real_C), float(system.has_D)
        gram = self.gram * parts[:, None, None] * parts
        return replace(self, gram=gram, cross=self.cross * parts[:, None] * D, power=self.power * D)


def moment_bytes(system: DiagonalSystem) -> int:
    """Return how much memory the moments of a layer take, all but what is small beside them.

    >>> moment_bytes(DiagonalSystem.from_discrete([0.5] * 1024, [[1]] * 1024, [[1] * 1024])) / 2**20
    32.0
    """
    layout = system.layout
    return 8 * layout.channels * (layout.slots * 2 * system.directions) ** 2


def moments_of(systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None) -> Mapping[str, Moments]:
    """Check that moments belong to these systems and return them; without any, return those of white noise."""
    if moments is None:
        return {layer: white_noise(system) for layer, system in systems.items()}
    if not isinstance(moments, Mapping):
        raise InputError(f"moments are what ssmprune.collect(model, data) returns; got {type(moments).__name__}.")
    for layer, system in systems.items():
        layout = system.layout
        shape = layout.channels, layout.slots, 2 * system.directions
        if layer not in moments or moments[layer].gram.shape != (*shape, *shape[1:]):
            raise InputError(f"The moments are not those of layer {layer!r}; collect them on this very model.")
    return moments


def white_noise(system: DiagonalSystem) -> Moments:
    """Return the moments under white noise of unit power, from the parameters alone.

    E[x xᴴ] = B Bᴴ / (1 - λ λᴴ) and E[x xᵀ] = B Bᵀ / (1 - λ λᵀ), elementwise; forward and backward states have only
    the present input in common. States with an unstable pole have no such moments and count as silent.

    >>> white_noise(DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[1]])).gram[0, 0, :, 0]  # 1 / (1 - 0.6²)
    array([[1.5625, 0.    ], [0.    , 0.    ]])
    """
    layout, directions, now = system.layout, system.directions, system.backward_delay == 0
    B = layout.spread(np.where(system.unstable_states[:, None], 0, system.B))  # (channels, slots, inputs)
    log_poles = layout.spread(np.where(system.unstable_states, -1, system.log_poles), fill=-1)

    def covariance(B2: Complex, log_poles2: Complex) -> Complex:  # (channels, slots, directions, slots, directions)
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
    shape = layout.channels, layout.slots, 2 * directions
    power = np.ones((layout.channels, B.shape[2]))
    return Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), power).held_by(system)


def weights(system: DiagonalSystem) -> Real:
    """Return W (channels, slots, parts, outputs of a channel): the layer's output is Wᵀz."""
    C = system.gain * system.C.transpose(2, 0, 1)  # (n, directions, outputs)
    parts = np.stack([C.real, -C.imag], axis=2)
    return system.layout.spread(parts.reshape(system.n, 2 * system.directions, system.C.shape[1]))


def readout(system: DiagonalSystem, weights: Real) -> Complex:
    """Return the C (directions, outputs, n) that gives the states of `system` these weights.

    >>> system = DiagonalSystem.from_discrete([0.5], [[1]], [[1 + 2j]], gain=2)
    >>> weights(system).ravel(), readout(system, weights(system)).ravel()
    (array([ 2., -4.]), array([1.+2.j]))
    """
    parts = system.layout.gather(weights).reshape(system.n, system.directions, 2, weights.shape[-1]) / system.gain
    return np.ascontiguousarray((parts[:, :, 0] - 1j * parts[:, :, 1]).transpose(1, 2, 0))
