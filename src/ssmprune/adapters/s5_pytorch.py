"""The layers of PyPI's s5-pytorch, as modules or state dicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Mask, Real, from_parts, join_parts, to_parts
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models.config import LayerOptions
from .families import ArrayPlace, FlatFamily, LayerParameters, directions


@dataclass(frozen=True)
class S5Pytorch(FlatFamily):
    """Reads and cuts `s5.S5SSM`, the layer inside `S5` and `S5Block`; all of its complex states are stored.

    A module knows its discretisation. A state dict does not, nor whether the layer is liquid or of higher degree:
    give the state dicts of plain layers only.
    """

    discretization: Literal["zoh", "bilinear"] | None = None  # asked for state dicts alone
    step_rescale: float = 1.0  # the `step_scale` handed to the layer's forward

    name = "s5_pytorch"
    marks = frozenset({"Lambda", "B", "C", "D", "log_step"})
    asked = ("discretization",)
    state_axis: ClassVar = {"Lambda": 0, "B": 0, "C": 1, "log_step": 0}

    def calling_module(self, path: str) -> str:
        """Name the `S5` around the layer, which runs it sequence by sequence and returns what it gives."""
        return path.removesuffix(".seq")

    def refit(self, layer: ArrayPlace, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states, the two directions behind each other, and add to D."""
        whole = layer["C"]
        whole[:, np.tile(keep, len(C))] = np.concatenate(list(C), axis=1)
        layer["C"], layer["D"] = whole, layer["D"] + D_change

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Put the two directions of C behind each other."""
        poles, C = join_parts(new.pole_re, new.pole_im), np.concatenate([*new.C], axis=1)
        return {"Lambda": poles, "B": to_parts(new.B), "C": C, "log_step": new.log_step}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Refuse what is not linear in the input and time-invariant."""
        module = layer.module
        if module is None:
            self.ask()
        elif module.degree != 1:
            raise InputError(
                f"The layer has degree={module.degree}: its discrete B is raised to a power, so the states have no "
                "gain of their own. Train it with degree=1 to prune it."
            )
        rule = self.discretization if module is None else module.discretize.__name__.removeprefix("discretize_")
        return LayerParameters(
            pole_re=layer["Lambda"].real,
            pole_im=layer["Lambda"].imag,
            B=from_parts(layer["B"]),
            C=directions(layer["C"], len(layer["Lambda"])),
            D=layer["D"],
            log_step=layer["log_step"],
            options=LayerOptions(
                pole_form="free", conj_sym=False, discretization=str(rule), step_rescale=float(self.step_rescale)
            ),
        )
