"""Our S5 layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..arrays import Complex, Mask, Real
from ..system import DiagonalSystem
from . import _torch_states

if TYPE_CHECKING:
    from ..models.s5 import S5Layer


class S5Adapter:
    """Reads and cuts `ssmprune.models.s5.S5Layer`."""

    name = "s5"
    state_axis = _torch_states.COMMON_AXES | {
        "C": 2,
        "log_step": 0,
    }  # the axis along which a tensor runs over the states

    def layers(self, model: Any) -> dict[str, S5Layer]:
        """Return the S5 layers of a torch model by module path."""
        return _torch_states.modules(model, "ssmprune.models.s5", "S5Layer")

    def read(self, layer: S5Layer, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Discretise in float64 whatever the layer's own precision."""
        step = _torch_states.numbers(layer.log_step.double().exp()) * layer.step_rescale
        return DiagonalSystem.from_continuous(
            _torch_states.poles(layer),
            _torch_states.complex_numbers(layer.B) * _torch_states.numbers(layer.mask)[:, None],
            _torch_states.complex_numbers(layer.C),
            step,
            _torch_states.discretization(layer),
            gain=2.0 if layer.conj_sym else 1.0,
            unstable=unstable,
        )

    def mask(self, layer: S5Layer, keep: Mask) -> None:
        """Silence the other states; they stay silent through further training."""
        _torch_states.mask(layer, keep)

    def shrink(self, layer: S5Layer, keep: Mask) -> None:
        """Remove the other states."""
        _torch_states.shrink(layer, keep, self.state_axis)

    def refit(self, layer: S5Layer, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D."""
        _torch_states.refit(layer, keep, C, D_change, self.state_axis["C"])

    def write(self, layer: S5Layer, system: DiagonalSystem) -> None:
        """Make the layer compute another system of its width, in place, with the mean of its steps; D stays."""
        log_step = np.full(system.n, _torch_states.numbers(layer.log_step.double()).mean())
        step = np.exp(log_step) * layer.step_rescale
        lam = _torch_states.continuous(layer, system.log_poles, step)
        B = system.B / _torch_states.discretization(layer)(lam, step)[1][:, None]
        tensors = {"B": _torch_states.parts(B), "C": _torch_states.parts(system.C), "log_step": log_step}
        _torch_states.write(layer, lam, tensors)


ADAPTER = S5Adapter()
