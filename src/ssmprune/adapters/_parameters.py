"""A layer of another code in the words of our own: read as a system, or built anew in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..arrays import Complex, Index, Mask, Real, joined
from ..discretization import bilinear, zoh
from ..errors import InputError
from ..system import DiagonalSystem

if TYPE_CHECKING:
    from ..models.s4d import S4DLayer
    from ..models.s5 import S5Layer

DISCRETIZATIONS = {"zoh": zoh, "bilinear": bilinear}
CLIP = -1e-4  # the largest real part of a clipped pole


@dataclass(frozen=True)
class Stored:
    """The parameters of one layer, named and meant as in `S5Layer` (MIMO) or, with `channel`, `S4DLayer`."""

    pole_re: Real  # (n,)
    pole_im: Real  # (n,)
    B: Complex  # (n, H); (n,) with channel
    C: Complex  # (directions, H, n); (directions, n) with channel
    D: Real  # (H,)
    log_step: Real  # (n,); (H,) with channel
    channel: Index | None = None  # (n,) owner of each state, ascending
    pole_form: str = "free"  # Re lambda = -exp(pole_re), min(pole_re, -1e-4) or pole_re
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
        if self.discretization not in DISCRETIZATIONS:
            raise InputError(
                f"The discretisation must be one of {', '.join(DISCRETIZATIONS)}; it is {self.discretization!r}."
            )

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
        form = {"exp": lambda x: -np.exp(x), "clip": lambda x: np.minimum(x, CLIP), "free": lambda x: x}
        return joined(form[self.pole_form](self.pole_re), self.pole_im)

    def system(self, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Return what the layer computes, without D u."""
        flat = self.channel is not None
        step = np.exp(self.log_step) * self.step_rescale
        return DiagonalSystem.from_continuous(
            self.poles,
            self.B[:, None] if flat else self.B,
            self.C[:, None, :] if flat else self.C,
            step[self.channel] if flat else step,
            DISCRETIZATIONS[self.discretization],
            channel=self.channel,
            channels=len(self.D) if flat else 0,
            gain=2.0 if self.conj_sym else 1.0,
            backward_delay=self.backward_delay,
            unstable=unstable,
        )

    def options(self) -> dict[str, Any]:
        """What our layer of this family must be built with; `Config` has the same names."""
        common = {
            "bidirectional": self.directions == 2,
            "conj_sym": self.conj_sym,
            "discretization": self.discretization,
            "pole_form": self.pole_form,
            "step_rescale": float(self.step_rescale),
        }
        return (
            common
            if self.channel is None
            else common | {"train_B": self.train_B, "backward_delay": self.backward_delay}
        )

    def tensors(self, keep: Mask | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of our layer by name, of all states or of those in `keep`."""
        keep = np.ones(self.n, bool) if keep is None else keep
        arrays = {
            "pole_re": self.pole_re[keep],
            "pole_im": self.pole_im[keep],
            "B": _parts(self.B[keep]),
            "C": _parts(self.C[..., keep]),
            "D": self.D,
            "mask": np.ones(int(keep.sum()), bool),
        }
        if self.channel is None:
            return arrays | {"log_step": self.log_step[keep]}
        return arrays | {"log_step": self.log_step, "channel": self.channel[keep]}

    def layer(self, keep: Mask | None = None) -> S5Layer | S4DLayer:
        """Return our torch layer with these parameters, of all states or of those in `keep`."""
        import torch

        from ..models.config import LayerOptions
        from ..models.s4d import S4DLayer
        from ..models.s5 import S5Layer

        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self.tensors(keep).items()}
        kind = S5Layer if self.channel is None else S4DLayer
        with torch.random.fork_rng(devices=[]):  # the start values are overwritten
            layer: S5Layer | S4DLayer = kind(len(self.D), len(tensors["pole_re"]), LayerOptions(**self.options()))
        layer.load_state_dict(tensors)
        return layer


def _parts(numbers: Complex) -> Real:
    """Real and imaginary part along a new last axis."""
    return np.stack([numbers.real, numbers.imag], axis=-1)
