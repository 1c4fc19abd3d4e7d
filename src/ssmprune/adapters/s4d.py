"""Our S4D layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..arrays import Complex, Mask, Real
from ..system import DiagonalSystem
from . import _torch_states

if TYPE_CHECKING:
    from ..models.s4d import S4DLayer


class S4DAdapter:
    """Reads and cuts `ssmprune.models.s4d.S4DLayer`; steps belong to the channels and stay."""

    name = "s4d"
    state_axis = _torch_states.COMMON_AXES | {
        "C": 1,
        "channel": 0,
    }  # where a tensor runs over the states

    def layers(self, model: Any) -> dict[str, S4DLayer]:
        """Return the S4D layers of a torch model by module path."""
        return _torch_states.modules(model, "ssmprune.models.s4d", "S4DLayer")

    def read(self, layer: S4DLayer, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Discretise in float64 whatever the layer's own precision."""
        channel = _torch_states.numbers(layer.channel)
        step = _torch_states.numbers(layer.log_step.double().exp()) * layer.step_rescale
        return DiagonalSystem.from_continuous(
            _torch_states.poles(layer),
            (_torch_states.complex_numbers(layer.B) * _torch_states.numbers(layer.mask))[:, None],
            _torch_states.complex_numbers(layer.C)[:, None, :],
            step[channel],
            _torch_states.discretization(layer),
            channel=channel,
            channels=len(step),
            gain=2.0 if layer.conj_sym else 1.0,
            backward_delay=layer.backward_delay,
            unstable=unstable,
        )

    def mask(self, layer: S4DLayer, keep: Mask) -> None:
        """Silence the other states; they stay silent through further training."""
        _torch_states.mask(layer, keep)

    def shrink(self, layer: S4DLayer, keep: Mask) -> None:
        """Remove the other states; a channel may end with none."""
        _torch_states.shrink(layer, keep, self.state_axis)

    def refit(self, layer: S4DLayer, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D."""
        _torch_states.refit(layer, keep, C[:, 0], D_change, self.state_axis["C"])

    def write(self, layer: S4DLayer, system: DiagonalSystem) -> None:
        """Make the layer compute another system of its width, in place; B becomes 1, its size goes into C; D stays."""
        assert system.channel is not None
        order = np.argsort(system.channel, kind="stable")
        channel = system.channel[order]
        step = np.exp(_torch_states.numbers(layer.log_step.double()))[channel] * layer.step_rescale
        lam = _torch_states.continuous(layer, system.log_poles[order], step)
        C = (system.C * system.B[:, 0])[:, 0, order] / _torch_states.discretization(layer)(lam, step)[1]
        tensors = {"B": _torch_states.parts(np.ones_like(lam)), "C": _torch_states.parts(C), "channel": channel}
        _torch_states.write(layer, lam, tensors)


ADAPTER = S4DAdapter()
