"""The diagonal kernel of state-spaces/s4 (`SSMKernelDiag`, mode="diag" of `S4Block`), as modules or state dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from ..arrays import Complex, Mask, Real, from_parts
from ..errors import InputError, one_of
from ..models.config import LayerOptions
from .arrays import ArrayPlace, Places
from .families import GridFamily
from .parameters import LayerParameters

Transform: TypeAlias = Literal["none", "exp", "relu", "sigmoid", "softplus"]
TRANSFORMS: dict[str, Callable[[Real], Real]] = {
    "none": lambda x: x,
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0) + 1e-4,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
}


@dataclass(frozen=True, kw_only=True)
class StateSpacesKernel(GridFamily):
    """What the kernels of state-spaces/s4 share; a module knows its options, a state dict does not."""

    real_transform: Transform | None = None  # how -Re A is stored, usually "exp"
    bidirectional: bool | None = None  # of the convolution around the kernel
    imag_transform: Transform = "none"
    dt_transform: Transform = "exp"
    dt_fast: bool = False
    bandlimit: float | None = None
    is_real: bool = False

    def options(self, layer: ArrayPlace) -> Self:
        """Return the options that a module records, or those given for a state dict; refuse unusual ones."""
        options, module = self, layer.module
        if module is None:
            self.ask()
        else:
            recorded: dict[str, Any] = {"real_transform": getattr(module, "real_type", "exp")}  # its older name
            names = (field.name for field in fields(self))
            recorded |= {name: getattr(module, name) for name in names if hasattr(module, name)}
            outside = (place.module.bidirectional for place in layer.around() if hasattr(place.module, "bidirectional"))
            options = replace(self, **recorded | {"bidirectional": bool(next(outside, False))})
        options._refuse_unusual(layer)
        return options

    def _refuse_unusual(self, layer: ArrayPlace) -> None:
        """Refuse options under which states have no gains of their own, or no pairs."""
        if self.bandlimit is not None:
            raise InputError(
                f"bandlimit={self.bandlimit} switches states off by their frequency at the current rate. Set it to "
                "None, with C of the states above the limit set to zero, to prune at this rate."
            )
        if self.is_real or ("A_imag" not in layer and "w_imag" not in layer):
            raise InputError("A real-valued kernel (is_real=True) is not supported; train with is_real=False to prune.")
        for name in ("real_transform", "imag_transform", "dt_transform"):
            one_of(name, getattr(self, name), TRANSFORMS)

    def readout(self, layer: ArrayPlace) -> Complex:
        """Return C (directions, H, N), once it has as many directions as the options say."""
        C = from_parts(layer["C"])
        expected = 1 + bool(self.bidirectional)
        if len(C) != expected:
            raise InputError(
                f"bidirectional={self.bidirectional} needs C with {expected} channels; it has {len(C)}. Kernels with "
                "several output channels cannot be pruned state by state."
            )
        return C

    def transformed(self, layer: ArrayPlace, real: str, imag: str, step: str) -> tuple[Real, Real, Real]:
        """Return -Re A and -Im A (systems, N), and the steps (H, 1), or (H, N) where states have their own."""
        inv_dt = np.sinh(layer[step]) if self.dt_fast else layer[step]
        names = (self.real_transform, self.imag_transform, self.dt_transform)
        to_real, to_imag, to_step = (TRANSFORMS[str(name)] for name in names)
        return to_real(layer[real]), to_imag(layer[imag]), to_step(inv_dt)


@dataclass(frozen=True, kw_only=True)
class StateSpacesDiag(StateSpacesKernel):
    """Reads and masks `SSMKernelDiag`; A and B may be shared by channels (n_ssm < H), then C still tells them apart."""

    disc: Literal["zoh", "bilinear", "dss"] | None = None  # "dss" is known and refused
    step_rescale: float = 1.0  # the `rate` handed to the kernel

    name = "state_spaces_diag"
    marks = frozenset({"inv_dt", "A_real", "C", "B"})
    asked = ("disc", "real_transform", "bidirectional")
    grid_axes: ClassVar = {"A_real": (0, 1), "A_imag": (0, 1), "B": (1, 2), "C": (1, 2)}

    def layers_among(self, places: Places) -> dict[str, ArrayPlace]:
        """Return the diagonal kernels; those with a low-rank part, P, belong to `state_spaces_dplr`."""
        return {path: place for path, place in super().layers_among(places).items() if "P" not in place}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Give every channel poles and B of its own, all with one step."""
        options = self.options(layer)
        if options.disc == "dss":
            raise InputError(
                "disc='dss' normalises the kernel by the sequence length, so a state has no gain of its own. "
                "Train with disc='zoh' to prune."
            )
        C = options.readout(layer)
        directions, channels, states = C.shape
        decay, frequency, steps = options.transformed(layer, "A_real", "A_imag", "inv_dt")
        copies = (channels // len(decay), 1)
        decay, frequency = np.tile(decay, copies), np.tile(frequency, copies)
        steps = np.broadcast_to(steps, (channels, states))
        # A state with its own step is a state with the channel's step whose time runs faster by the ratio.
        ratio = steps / steps[:, :1]
        log = options.real_transform == "exp"
        return LayerParameters(
            pole_re=(np.log(decay * ratio) if log else -decay * ratio).ravel(),
            pole_im=-(frequency * ratio).ravel(),
            B=(ratio * np.tile(from_parts(layer["B"])[0], copies)).ravel(),
            C=C.reshape(directions, -1),
            D=self.feed_through(layer, channels),
            log_step=np.log(steps[:, 0]),
            channel=np.repeat(np.arange(channels), states),
            options=LayerOptions(
                pole_form="exp" if log else "free",
                discretization=str(options.disc),
                backward_delay=int(bool(options.bidirectional)),
                step_rescale=float(self.step_rescale),
                train_B=True,
            ),
        )

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut the grid; a module also notes its number of states."""
        super().shrink(layer, keep)
        if layer.module is not None:
            layer.module.N = layer["C"].shape[self.grid_axes["C"][1]]


ADAPTER = StateSpacesDiag()
