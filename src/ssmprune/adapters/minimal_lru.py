"""Flax parameter trees of minimal-LRU, and the modules and state dicts of lrnnx's LRU, whose arrays are the same."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Mask, Real, join_parts
from ..core.system import DiagonalSystem
from ..models.config import LayerOptions
from .families import ArrayPlace, FlatFamily, LayerParameters


class MinimalLRU(FlatFamily):
    """Reads and cuts `LRU` layers, which are discrete already: poles exp(-exp(nu_log) + i exp(theta_log))."""

    name = "minimal_lru"
    marks = frozenset({"nu_log", "theta_log", "gamma_log", "B_re", "B_im", "C_re", "C_im", "D"})
    state_axis: ClassVar = {"nu_log": 0, "theta_log": 0, "gamma_log": 0, "B_re": 0, "B_im": 0, "C_re": 1, "C_im": 1}
    input_arrays = ("B_re", "B_im")
    sizes = ("d_state",)

    def refit(self, layer: ArrayPlace, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D."""
        for name, new in (("C_re", C[0].real), ("C_im", C[0].imag)):
            whole = layer[name]
            whole[:, keep] = new
            layer[name] = whole
        layer["D"] = layer["D"] + D_change

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Give B the scale that this code starts with; angles are positive, and those of real poles next to 0."""
        angle, gamma = np.mod(new.pole_im, 2 * np.pi), np.log(-np.expm1(2 * system.log_poles.real)) / 2
        B, C = system.B / np.exp(gamma)[:, None], new.C[0]
        parts = {"B_re": B.real, "B_im": B.imag, "C_re": C.real, "C_im": C.imag}
        return {"nu_log": new.pole_re, "theta_log": np.log(np.maximum(angle, 1e-17)), "gamma_log": gamma} | parts

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Describe the recurrence as a zero-order hold with step 1, whose factor is divided out of B."""
        nu, theta = layer["nu_log"], np.exp(layer["theta_log"])
        poles = join_parts(-np.exp(nu), theta)
        B_bar = join_parts(layer["B_re"], layer["B_im"]) * np.exp(layer["gamma_log"])[:, None]
        return LayerParameters(
            pole_re=nu,
            pole_im=theta,
            B=B_bar * (poles / np.expm1(poles))[:, None],
            C=join_parts(layer["C_re"], layer["C_im"])[None],
            D=layer["D"],
            log_step=np.zeros(len(nu)),
            options=LayerOptions(conj_sym=False),
        )
