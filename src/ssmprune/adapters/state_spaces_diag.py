"""The diagonal kernel of state-spaces/s4 (`SSMKernelDiag`, mode="diag" of `S4Block`), as modules or state dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from ..arrays import Mask, Real, from_parts
from ..errors import InputError, one_of
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


@dataclass(frozen=True)
class StateSpacesDiag(GridFamily):
    """Reads and masks `SSMKernelDiag`; A and B may be shared by channels (n_ssm < H), then C still tells them apart.

    A module knows its options, a state dict does not.
    """

    disc: Literal["zoh", "bilinear", "dss"] | None = None  # "dss" is known and refused
    real_transform: Transform | None = None  # how -Re A is stored, usually "exp"
    bidirectional: bool | None = None  # of the convolution around the kernel
    imag_transform: Transform = "none"
    dt_transform: Transform = "exp"
    dt_fast: bool = False
    bandlimit: float | None = None
    is_real: bool = False
    step_rescale: float = 1.0  # the `rate` handed to the kernel

    name = "state_spaces_diag"
    marks = frozenset({"inv_dt", "A_real", "C", "B"})
    asked = ("disc", "real_transform", "bidirectional")
    grid_axes: ClassVar = {"A_real": (0, 1), "A_imag": (0, 1), "B": (1, 2), "C": (1, 2)}

    def layers_among(self, places: Places) -> dict[str, ArrayPlace]:
        """Return the diagonal kernels; one with a low-rank part, P, is of `state_spaces_dplr`."""
        return {path: place for path, place in super().layers_among(places).items() if "P" not in place}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Give every channel poles and B of its own, all with one step."""
        options = self._options(layer)
        options._refuse(layer)
        C = from_parts(layer["C"])  # (directions, H, N)
        directions, channels, states = C.shape
        if directions != 1 + bool(options.bidirectional):
            raise InputError(
                f"bidirectional={options.bidirectional} needs C with {1 + bool(options.bidirectional)} channels; "
                f"it has {directions}. Kernels with several output channels cannot be pruned state by state."
            )
        transform, angle = TRANSFORMS[str(options.real_transform)], TRANSFORMS[options.imag_transform]
        copies = (channels // len(layer["A_real"]), 1)
        decay, frequency = np.tile(transform(layer["A_real"]), copies), np.tile(angle(layer["A_imag"]), copies)
        inv_dt = np.sinh(layer["inv_dt"]) if options.dt_fast else layer["inv_dt"]
        steps = np.broadcast_to(TRANSFORMS[options.dt_transform](inv_dt), (channels, states))
        # A state with a step of its own is one with the channel's step whose time runs faster by the ratio.
        ratio = steps / steps[:, :1]
        log = options.real_transform == "exp"
        return LayerParameters(
            pole_re=(np.log(decay * ratio) if log else -decay * ratio).ravel(),
            pole_im=-(frequency * ratio).ravel(),
            B=(ratio * np.tile(from_parts(layer["B"])[0], copies)).ravel(),
            C=C.reshape(directions, -1),
            D=layer.parent["D"].ravel() if layer.parent and "D" in layer.parent else np.zeros(channels),
            log_step=np.log(steps[:, 0]),
            channel=np.repeat(np.arange(channels), states),
            pole_form="exp" if log else "free",
            discretization=str(options.disc),
            conj_sym=True,
            backward_delay=int(bool(options.bidirectional)),
            step_rescale=self.step_rescale,
            train_B=True,
        )

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut the grid; a module also notes its number of states."""
        super().shrink(layer, keep)
        if layer.module is not None:
            layer.module.N = layer["C"].shape[self.grid_axes["C"][1]]

    def _options(self, layer: ArrayPlace) -> StateSpacesDiag:
        """Return the options a module records, or those given for a state dict."""
        if layer.module is None:
            self.ask()
            return self
        names = ("disc", "real_transform", "imag_transform", "dt_transform", "dt_fast", "bandlimit", "is_real")
        around = layer.parent.module if layer.parent else None
        return replace(
            self,
            bidirectional=bool(getattr(around, "bidirectional", False)),
            **{name: getattr(layer.module, name) for name in names},
        )

    def _refuse(self, layer: ArrayPlace) -> None:
        if self.disc == "dss":
            raise InputError(
                "disc='dss' normalises the kernel by the sequence length, so a state has no gain of its own. "
                "Train with disc='zoh' to prune."
            )
        refuse_unusual(self.bandlimit, self.is_real or "A_imag" not in layer)
        for name in ("real_transform", "imag_transform", "dt_transform"):
            one_of(name, getattr(self, name), TRANSFORMS)


def refuse_unusual(bandlimit: float | None, is_real: bool) -> None:
    """Refuse options of both kernels under which states have no gains of their own, or no pairs."""
    if bandlimit is not None:
        raise InputError(
            f"bandlimit={bandlimit} switches states off by their frequency at the current rate. Set it to "
            "None, with C of the states above the limit set to zero, to prune at this rate."
        )
    if is_real:
        raise InputError("A real-valued kernel (is_real=True) is not supported; train with is_real=False to prune.")


ADAPTER = StateSpacesDiag()
