"""Flax parameter trees of annotated-s4's S4D, which LAST's paper trained its S4D models with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..arrays import from_parts
from ..models.config import LayerOptions
from . import importing
from .families import ArrayPlace, GridFamily, LayerParameters


class AnnotatedS4D(GridFamily):
    """Reads and masks `S4DLayer` parameters (states, channels); B is stored, but the code computes with B = 1."""

    name = "annotated_s4d"
    marks = frozenset({"A_re", "A_im", "C", "D", "log_step"})
    grid_axes: ClassVar = {"A_re": (1, 0), "A_im": (1, 0), "B_re": (1, 0), "B_im": (1, 0), "C": (1, 0)}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Read the only form that this code has: zero-order hold, clipped poles, no conjugate symmetry."""
        states, channels = layer["A_re"].shape
        return LayerParameters(
            pole_re=layer["A_re"].T.ravel(),
            pole_im=layer["A_im"].T.ravel(),
            B=np.ones(states * channels, np.complex128),
            C=from_parts(layer["C"]).T.reshape(1, -1),
            D=layer["D"].ravel(),
            log_step=layer["log_step"].ravel(),
            channel=np.repeat(np.arange(channels), states),
            options=LayerOptions(pole_form="clip", conj_sym=False),
        )

    def classifier(
        self, tree: Mapping[str, Any], *, classification: bool, prenorm: bool, dropout: float = 0.0
    ) -> importing.Classifier:
        """Return our classifier with the outputs of a `BatchStackedModel` that has gates (`glu=True`).

        Without `classification` it is a model of sequences of pixels 0 to 255 with logits for every step. It sees the
        pixels as they come: the shift by one step, which lets training predict the next pixel, is left to the caller.
        """
        params = tree.get("params", tree)
        arrays = importing.Arrays(params)
        weights = arrays.dense("encoder", "encoder")
        if not classification:
            weights["encoder.weight"] = weights["encoder.weight"] / np.float32(255)
        layers = importing.take_numbered(self, params, "layers_{}.seq", arrays)
        for i in range(len(layers)):
            weights |= arrays.norm(f"layers.{i}.norm", f"layers_{i}.norm")
            weights |= arrays.dense(f"layers.{i}.value", f"layers_{i}.out")
            weights |= arrays.dense(f"layers.{i}.gate", f"layers_{i}.out2")
        weights |= arrays.dense("decoder", "decoder")
        arrays.finish()
        return importing.build(
            layers,
            weights,
            activation="full_glu",
            prenorm=prenorm,
            pooling="mean" if classification else "none",
            norm="layer",
            norm_eps=1e-6,  # Flax's own
            exact_gelu=False,
            dropout=dropout,
        )
