"""The S5 layers of PyPI's lrnnx, as modules or state dicts; its LRU is that of minimal-LRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Mask, Real, from_parts, join_parts, to_parts
from ..core.system import DiagonalSystem
from ..errors import InputError, one_of
from ..models.config import LayerOptions
from .base import WITHOUT_NEW_STATES
from .families import ArrayPlace, FlatFamily, LayerParameters

RULES = {"zoh": "zoh", "bilinear": "bilinear", "dirac": "zoh", "no_discretization": "zoh"}  # and which of ours it is


@dataclass(frozen=True)
class LrnnxS5(FlatFamily):
    """Reads and cuts `lti.S5`, whose B is real and whose D is a matrix, and the event layer `ltv.S5` without events."""

    discretization: Literal["zoh", "bilinear", "dirac", "no_discretization"] | None = None
    conj_sym: bool | None = None  # a stored state stands for a conjugate pair; never in `lti.S5`
    step_rescale: float = 1.0  # these three of state dicts alone: modules know theirs

    name = "lrnnx_s5"
    marks = frozenset({"A", "B", "C", "D", "log_dt"})
    asked = ("discretization", "conj_sym")
    state_axis: ClassVar = {"A": 0, "B": 0, "C": 1, "log_dt": 0}
    sizes = ("d_state", "state_dim")

    def layers_among(self, places: dict[str, ArrayPlace]) -> dict[str, ArrayPlace]:
        """Return the places with these arrays, whose names other codes may use too: poles have two parts here."""
        found = super().layers_among(places)
        return {path: place for path, place in found.items() if place["A"].shape == (*place["log_dt"].shape, 2)}

    def refuse_call(self, layer: ArrayPlace, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Refuse events: they give every step of `ltv.S5` poles of its own; `lti.S5` ignores them."""
        events = keywords.get("integration_timesteps", arguments[1] if len(arguments) > 1 else None)
        if events is not None and layer["D"].ndim == 1:
            raise InputError(
                "The layer was called with integration_timesteps, so its poles change from step to step and no state "
                "has a fixed gain. Calibrate on sequences without them, or prune without data."
            )

    def refit(self, layer: ArrayPlace, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D, or to its diagonal."""
        whole, D = layer["C"], layer["D"]
        whole[:, keep] = to_parts(C[0])
        layer["C"], layer["D"] = whole, D + (D_change if D.ndim == 1 else np.diag(D_change))

    def convert(self, layer: ArrayPlace, keep: Mask | None = None) -> Any:
        """Build our layer, which has no room for a D that mixes channels."""
        D = layer["D"]
        if D.ndim == 2 and np.any(D - np.diag(np.diag(D))):
            raise InputError("D is a matrix that mixes channels, and our layers have one number for each channel.")
        return super().convert(layer, keep)

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Refuse `lti.S5`; some rules have discrete poles or a discrete B."""
        if layer["D"].ndim == 2:
            raise InputError(f"The layer holds a real B, and new states have a complex B. {WITHOUT_NEW_STATES}")
        rule = self._rule(layer)
        poles = system.poles if rule == "no_discretization" else join_parts(new.pole_re, new.pole_im)
        B = new.B if rule in ("zoh", "bilinear") else system.B
        return {"A": to_parts(poles), "B": to_parts(B), "C": to_parts(new.C[0]), "log_dt": new.log_step}

    def _rule(self, layer: ArrayPlace) -> str | None:
        if layer.module is None:
            return self.discretization
        return getattr(layer.module, "discretization", None) or str(layer.module.discretize_fn.__name__)

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Describe all rules as the zero-order hold or the bilinear rule of our layers."""
        module, D, log_step = layer.module, layer["D"], layer["log_dt"]
        rule, pairs, rescale = self._rule(layer), self.conj_sym, self.step_rescale
        if module is None:
            self.ask()
        else:
            pairs, rescale = module.conj_sym, getattr(module, "step_rescale", 1.0)
        ours = one_of("discretization", rule, RULES)
        A, B, poles = layer["A"], layer["B"], from_parts(layer["A"])
        if D.ndim == 1:
            B = from_parts(B)
        else:
            poles, B = join_parts(-np.logaddexp(0, A[:, 0]), A[:, 1]), B.astype(np.complex128)
            poles = -poles if rule == "bilinear" else poles  # its bilinear rule has the signs the other way round
        if rule == "dirac":
            B = B * (poles / np.expm1(poles * np.exp(log_step) * rescale))[:, None]
        elif rule == "no_discretization":
            poles, B = np.log(poles), B * (np.log(poles) / (poles - 1))[:, None]
            log_step, rescale = 0 * log_step, 1.0  # steps have no effect
        return LayerParameters(
            pole_re=poles.real,
            pole_im=poles.imag,
            B=B,
            C=from_parts(layer["C"])[None],
            D=D if D.ndim == 1 else np.diag(D),
            log_step=log_step,
            options=LayerOptions(
                pole_form="free", conj_sym=bool(pairs), discretization=ours, step_rescale=float(rescale)
            ),
        )
