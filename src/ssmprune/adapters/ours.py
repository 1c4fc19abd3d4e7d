"""Our two torch families, S5 and S4D: layers that know their options and have a mask."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Mask, Real, from_parts, to_parts
from ..core.system import DiagonalSystem
from ..models.config import LayerOptions
from .families import ArrayPlace, FlatFamily, LayerParameters


class OurFamily(FlatFamily):
    """Reads and cuts one of our layers; masked states stay silent through further training."""

    kind: ClassVar[str]  # the name of the layer's class
    input_arrays: ClassVar = ("mask",)

    def layers_among(self, places: dict[str, ArrayPlace]) -> dict[str, ArrayPlace]:
        """Return the layers of the class; if its module was never imported, the model can have none."""
        module = sys.modules.get("ssmprune.models.layers")
        if module is None:
            return {}
        kind = getattr(module, self.kind)
        return {path: place for path, place in places.items() if isinstance(place.module, kind)}

    def after_pruning(self, model: Any, title: str, kept: Mapping[str, Mask] | None) -> None:
        """Bring the grid and the history of one of our classifiers up to date."""
        from ..models.classifier import Classifier

        if isinstance(model, Classifier):
            if kept is not None and model.grid is not None:
                model.grid = model.grid.keep_states(kept)
            model.record(f"{'masked' if kept is None else 'pruned'} by {title}")

    def refit(self, layer: ArrayPlace, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D."""
        whole = layer["C"]
        whole[..., keep, :] = to_parts(C[:, 0] if "channel" in layer else C)
        layer["C"], layer["D"] = whole, layer["D"] + D_change

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Return all tensors; no state is masked then."""
        return new.tensors()

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Read the options off the module; a masked state has no input."""
        module, flat = layer.module, "channel" in layer
        B, mask = from_parts(layer["B"]), layer["mask"]
        names = (field.name for field in fields(LayerOptions))
        recorded = {name: getattr(module, name) for name in names if hasattr(module, name)}
        return LayerParameters(
            pole_re=layer["pole_re"],
            pole_im=layer["pole_im"],
            B=B if mask.all() else (B.T * mask).T,
            C=from_parts(layer["C"]),
            D=layer["D"],
            log_step=layer["log_step"],
            channel=layer["channel"].astype(np.int64) if flat else None,
            options=LayerOptions(**recorded, train_B=flat and "B" in module._parameters),
        )


class S5Adapter(OurFamily):
    """Reads and cuts `S5Layer`."""

    name = "s5"
    kind = "S5Layer"
    state_axis: ClassVar = {"pole_re": 0, "pole_im": 0, "B": 0, "C": 2, "log_step": 0, "mask": 0}


class S4DAdapter(OurFamily):
    """Reads and cuts `S4DLayer`; steps belong to the channels and stay, a channel may lose all."""

    name = "s4d"
    kind = "S4DLayer"
    state_axis: ClassVar = {"pole_re": 0, "pole_im": 0, "B": 0, "C": 1, "channel": 0, "mask": 0}
