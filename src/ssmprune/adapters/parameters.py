"""The parameters of a layer, ours or another code's, in the same words: read as a system, or built in torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Complex, Index, Mask, Real, join_parts, to_parts
from ..core.discretization import DISCRETIZATIONS
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models.config import CLIP, LayerOptions

if TYPE_CHECKING:
    from ..models.layers import S4DLayer, S5Layer


@dataclass(frozen=True)
class LayerParameters:
    """The parameters of one layer, named and meant as in `S5Layer` (MIMO) or, with `channel`, `S4DLayer`."""

    pole_re: Real  # (n,)
    pole_im: Real  # (n,)
    B: Complex  # (n, H); (n,) with channel
    C: Complex  # (directions, H, n); (directions, n) with channel
    D: Real  # (H,)
    log_step: Real  # (n,); (H,) with channel
    options: LayerOptions  # how the layer is parametrised; its directions are those of C
    channel: Index | None = None  # (n,) owner of each state, ascending

    def __post_init__(self) -> None:
        """Refuse shapes that do not belong together."""
        n, H, directions = self.n, len(self.D), len(self.C)
        flat = self.channel is not None
        expected = {
            "pole_im": (n,),
            "B": (n,) if flat else (n, H),
            "C": (directions, n) if flat else (directions, H, n),
            "log_step": (H,) if flat else (n,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"A layer of {n} states and width {H} needs {name} {shape}; its {name} is "
                    f"{getattr(self, name).shape}. Check the options given for this family."
                )
        if directions not in (1, 2):
            raise InputError(f"A layer has one C, or two when bidirectional; this one has {directions}.")
        object.__setattr__(self, "options", replace(self.options, bidirectional=directions == 2))

    @property
    def n(self) -> int:
        """Number of stored states."""
        return len(self.pole_re)

    def system(self) -> DiagonalSystem:
        """Return what the layer computes, without D u."""
        flat = self.channel is not None
        return DiagonalSystem.from_continuous(
            join_parts(_real_part(self.pole_re, self.options.pole_form), self.pole_im),
            self.B[:, None] if flat else self.B,
            self.C[:, None, :] if flat else self.C,
            self._steps(self.log_step, self.channel),
            DISCRETIZATIONS[self.options.discretization],
            channel=self.channel,
            channels=len(self.D) if flat else 0,
            gain=2.0 if self.options.conj_sym else 1.0,
            backward_delay=self.options.backward_delay,
        )

    def of_system(self, system: DiagonalSystem) -> LayerParameters:
        """Return parameters of another system of this width; D, the pole form and the discretisation stay.

        A MIMO layer gets the mean of its log-steps. With `channel` the steps stay, and the size of B goes into C.
        """
        order, channel = np.arange(system.n), None
        log_step, B, C = np.full(system.n, self.log_step.mean()), system.B, system.C
        if system.channel is not None:
            order = np.argsort(system.channel, kind="stable")
            channel, log_step = system.channel[order], self.log_step
            B, C = np.ones(system.n, np.complex128), (system.C * system.B[:, 0])[:, 0, order]
        step, log_poles = self._steps(log_step, channel), system.log_poles[order]
        if self.options.discretization == "bilinear":
            log_poles = np.tanh(log_poles / 2) * 2
        poles: Complex = log_poles / step
        factor = DISCRETIZATIONS[self.options.discretization](poles, step)[1]
        return replace(
            self,
            pole_re=_stored(poles.real, self.options.pole_form),
            pole_im=poles.imag,
            B=B / factor[:, None] if channel is None else B,
            C=C if channel is None else C / factor,
            log_step=log_step,
            channel=channel,
        )

    def tensors(self, keep: Mask | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of our layer by name, of all states or of those in `keep`."""
        keep = np.ones(self.n, bool) if keep is None else keep
        arrays = {
            "pole_re": self.pole_re[keep],
            "pole_im": self.pole_im[keep],
            "B": to_parts(self.B[keep]),
            "C": to_parts(self.C[..., keep]),
            "D": self.D,
            "mask": np.ones(int(keep.sum()), bool),
        }
        if self.channel is None:
            return arrays | {"log_step": self.log_step[keep]}
        return arrays | {"log_step": self.log_step, "channel": self.channel[keep]}

    def layer(self, keep: Mask | None = None) -> S5Layer | S4DLayer:
        """Return our torch layer with these parameters, of all states or of those in `keep`."""
        import torch

        from ..models.layers import S4DLayer, S5Layer

        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self.tensors(keep).items()}
        kind = S5Layer if self.channel is None else S4DLayer
        with torch.random.fork_rng(devices=[]):  # the start values are overwritten
            layer: S5Layer | S4DLayer = kind(len(self.D), len(tensors["pole_re"]), self.options)
        layer.load_state_dict(tensors)
        return layer

    def _steps(self, log_step: Real, channel: Index | None) -> Real:
        steps: Real = np.exp(log_step) * self.options.step_rescale
        return steps if channel is None else steps[channel]


def _real_part(stored: Real, form: str) -> Real:
    """Return Re λ from what a layer stores; `models.layers` has the same in torch."""
    if form == "exp":
        return np.asarray(-np.exp(stored), np.float64)
    return np.minimum(stored, CLIP) if form == "clip" else stored


def _stored(real: Real, form: str) -> Real:
    """Return what a layer stores for real parts of poles."""
    if form == "clip" and (real > CLIP).any():
        raise InputError(f"This layer clips poles at {CLIP}; a pole to be written has the real part {real.max():.2g}.")
    return np.log(-real) if form == "exp" else real
