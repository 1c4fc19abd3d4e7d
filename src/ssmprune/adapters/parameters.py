"""The parameters of a layer, ours or another code's, in the same words: read as a system, or built in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..arrays import Complex, Index, Mask, Real, join_parts, to_parts
from ..core.discretization import DISCRETIZATIONS, Discretization
from ..core.system import DiagonalSystem
from ..errors import InputError, one_of
from ..models.config import CLIP, LayerOptions

if TYPE_CHECKING:
    from ..models.s4d import S4DLayer
    from ..models.s5 import S5Layer


def _refuse_clipping(real: Real) -> Real:
    if (real > CLIP).any():
        raise InputError(f"This layer clips poles at {CLIP}; a pole to be written has the real part {real.max():.2g}.")
    return real


class PoleForm(NamedTuple):
    """How the real part of a pole is stored; `models.layer` has the same in torch."""

    real: Callable[[Real], Real]  # from what is stored
    stored: Callable[[Real], Real]  # the reverse


POLE_FORMS = {
    "exp": PoleForm(lambda stored: -np.exp(stored), lambda real: np.log(-real)),
    "clip": PoleForm(lambda stored: np.minimum(stored, CLIP), _refuse_clipping),
    "free": PoleForm(lambda stored: stored, lambda real: real),
}


@dataclass(frozen=True)
class LayerParameters:
    """The parameters of one layer, named and meant as in `S5Layer` (MIMO) or, with `channel`, `S4DLayer`."""

    pole_re: Real  # (n,)
    pole_im: Real  # (n,)
    B: Complex  # (n, H); (n,) with channel
    C: Complex  # (directions, H, n); (directions, n) with channel
    D: Real  # (H,)
    log_step: Real  # (n,); (H,) with channel
    channel: Index | None = None  # (n,) owner of each state, ascending
    pole_form: str = "free"  # Re λ = -exp(pole_re), min(pole_re, -1e-4) or pole_re
    discretization: str = "zoh"
    conj_sym: bool = False
    backward_delay: int = 0
    step_rescale: float = 1.0
    train_B: bool = False  # B of a multi-SISO layer is a parameter, not a constant

    def __post_init__(self) -> None:
        """Refuse shapes that do not belong together."""
        n, H = len(self.pole_re), len(self.D)
        flat = self.channel is not None
        expected = {
            "pole_im": (n,),
            "B": (n,) if flat else (n, H),
            "C": (self.directions, n) if flat else (self.directions, H, n),
            "log_step": (H,) if flat else (n,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"A layer of {n} states and width {H} needs {name} {shape}; its {name} is "
                    f"{getattr(self, name).shape}. Check the options given for this family."
                )
        if self.directions not in (1, 2):
            raise InputError(f"A layer has one C, or two when bidirectional; this one has {self.directions}.")
        one_of("discretisation", self.discretization, DISCRETIZATIONS)
        one_of("pole form", self.pole_form, POLE_FORMS)

    @property
    def family(self) -> Literal["s5", "s4d"]:
        """Which of our layers this is."""
        return "s5" if self.channel is None else "s4d"

    @property
    def n(self) -> int:
        """Number of stored states."""
        return len(self.pole_re)

    @property
    def directions(self) -> int:
        """1, or 2 for a bidirectional layer."""
        return len(self.C)

    @property
    def poles(self) -> Complex:
        """Continuous poles (n,)."""
        return join_parts(POLE_FORMS[self.pole_form].real(self.pole_re), self.pole_im)

    @property
    def discretize(self) -> Discretization:
        """The function that turns poles and steps into log-poles and factors of B."""
        return DISCRETIZATIONS[self.discretization]

    def system(self) -> DiagonalSystem:
        """Return what the layer computes, without D u."""
        flat = self.channel is not None
        return DiagonalSystem.from_continuous(
            self.poles,
            self.B[:, None] if flat else self.B,
            self.C[:, None, :] if flat else self.C,
            self._steps(self.log_step, self.channel),
            self.discretize,
            channel=self.channel,
            channels=len(self.D) if flat else 0,
            gain=2.0 if self.conj_sym else 1.0,
            backward_delay=self.backward_delay,
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
        step = self._steps(log_step, channel)
        poles = _continuous(system.log_poles[order], step, self.discretization)
        factor = self.discretize(poles, step)[1]
        return replace(
            self,
            pole_re=POLE_FORMS[self.pole_form].stored(poles.real),
            pole_im=poles.imag,
            B=B / factor[:, None] if channel is None else B,
            C=C if channel is None else C / factor,
            log_step=log_step,
            channel=channel,
        )

    def options(self) -> dict[str, Any]:
        """Return what our layer of this family must be built with; `Config` has the same names."""
        return {
            "bidirectional": self.directions == 2,
            "conj_sym": self.conj_sym,
            "discretization": self.discretization,
            "pole_form": self.pole_form,
            "step_rescale": float(self.step_rescale),
            "train_B": self.train_B,
            "backward_delay": self.backward_delay,
        }

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

        from ..models.s4d import S4DLayer
        from ..models.s5 import S5Layer

        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self.tensors(keep).items()}
        kind = S5Layer if self.channel is None else S4DLayer
        with torch.random.fork_rng(devices=[]):  # the start values are overwritten
            layer: S5Layer | S4DLayer = kind(len(self.D), len(tensors["pole_re"]), LayerOptions(**self.options()))
        layer.load_state_dict(tensors)
        return layer

    def _steps(self, log_step: Real, channel: Index | None) -> Real:
        steps: Real = np.exp(log_step) * self.step_rescale
        return steps if channel is None else steps[channel]


def _continuous(log_poles: Complex, step: Real, discretization: str) -> Complex:
    """Return the poles λ (n,) that a discretisation turns into these."""
    w = np.tanh(log_poles / 2) * 2 if discretization == "bilinear" else log_poles
    return np.asarray(w / step, np.complex128)
