"""The minimal S4D of state-spaces/s4 (`models/s4/s4d.py`), as modules or state dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..arrays import from_parts
from ..models.config import LayerOptions
from . import importing
from .arrays import ArrayPlace
from .families import GridFamily
from .parameters import LayerParameters


class StateSpacesS4D(GridFamily):
    """Reads and masks `S4DKernel`, whose D lies in the `S4D` around it; B = 1 is not stored."""

    name = "state_spaces_s4d"
    marks = frozenset({"log_dt", "log_A_real", "A_imag", "C"})
    grid_axes: ClassVar = {"log_A_real": (0, 1), "A_imag": (0, 1), "C": (0, 1)}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Read the only form that this code has: zero-order hold, one half of conjugate pairs."""
        channels, states = layer["A_imag"].shape
        return LayerParameters(
            pole_re=layer["log_A_real"].ravel(),
            pole_im=layer["A_imag"].ravel(),
            B=np.ones(channels * states, np.complex128),
            C=from_parts(layer["C"]).reshape(1, -1),
            D=self.feed_through(layer, channels),
            log_step=layer["log_dt"],
            channel=np.repeat(np.arange(channels), states),
            options=LayerOptions(),
        )

    def classifier(self, tree: Mapping[str, Any], *, prenorm: bool, dropout: float = 0.0) -> importing.Classifier:
        """Return our classifier with the outputs of the `S4Model` of the repository's `example.py`."""
        state = importing.below(tree, "s4_layers.0.kernel.C")
        arrays = importing.Arrays(state)
        layers = importing.take_numbered(self, state, "s4_layers.{}.kernel", arrays)
        weights: importing.Weights = {}
        for name in ("weight", "bias"):
            weights |= {f"{end}.{name}": arrays.take(f"{end}.{name}") for end in ("encoder", "decoder")}
            for i in range(len(layers)):
                weights[f"layers.{i}.norm.{name}"] = arrays.take(f"norms.{i}.{name}")
                both = arrays.take(f"s4_layers.{i}.output_linear.0.{name}")  # of a convolution over single steps
                value, gate = both[: len(both) // 2], both[len(both) // 2 :]
                weights[f"layers.{i}.value.{name}"] = value.reshape(value.shape[:2])
                weights[f"layers.{i}.gate.{name}"] = gate.reshape(gate.shape[:2])
        for i in range(len(layers)):
            arrays.take(f"s4_layers.{i}.D")  # read with the kernel
        arrays.finish()
        return importing.build(
            layers,
            weights,
            activation="full_glu",
            prenorm=prenorm,
            pooling="mean",
            norm="layer",
            exact_gelu=True,
            dropout=dropout,
        )


ADAPTER = StateSpacesS4D()
