"""Flax parameter trees of lindermanlab/S5 and msgwak/LAST."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import from_parts, to_parts
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models.config import LayerOptions
from . import importing
from .families import ArrayPlace, FlatFamily, LayerParameters, directions

OUTPUTS = {"gelu": set(), "half_glu1": {"out2"}, "half_glu2": {"out2"}, "full_glu": {"out1", "out2"}}


@dataclass(frozen=True)
class FlaxS5(FlatFamily):
    """Reads and cuts the `S5SSM` parameters of a tree; the tree does not record the first three options."""

    conj_sym: bool | None = None  # a stored state stands for a conjugate pair
    clip_eigs: bool | None = None  # real parts of the poles are clipped at -1e-4
    discretization: Literal["zoh", "bilinear"] | None = None
    step_rescale: float = 1.0

    name = "flax_s5"
    marks = frozenset({"Lambda_re", "Lambda_im", "B", "D", "log_step"})
    asked = ("conj_sym", "clip_eigs", "discretization")
    state_axis: ClassVar = {"Lambda_re": 0, "Lambda_im": 0, "B": 0, "C": 1, "C1": 1, "C2": 1, "log_step": 0}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Read the arrays; both directions of C may lie in two of them, or behind each other in one."""
        self.ask()
        if "C1" in layer:
            C = np.stack([from_parts(layer["C1"]), from_parts(layer["C2"])])
        else:
            C = directions(from_parts(layer["C"]), len(layer["Lambda_re"]))
        return LayerParameters(
            pole_re=layer["Lambda_re"],
            pole_im=layer["Lambda_im"],
            B=from_parts(layer["B"]),
            C=C,
            D=layer["D"],
            log_step=layer["log_step"].ravel(),
            options=LayerOptions(
                pole_form="clip" if self.clip_eigs else "free",
                discretization=str(self.discretization),
                conj_sym=bool(self.conj_sym),
                step_rescale=float(self.step_rescale),
            ),
        )

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Put the directions of C where they were."""
        C = to_parts(new.C)
        readouts = {"C1": C[0], "C2": C[-1]} if "C1" in layer else {"C": np.concatenate([*C], axis=1)}
        poles = {"Lambda_re": new.pole_re, "Lambda_im": new.pole_im}
        return poles | readouts | {"B": to_parts(new.B), "log_step": new.log_step}

    def classifier(
        self,
        tree: Mapping[str, Any],
        *,
        activation: Literal["gelu", "half_glu1", "half_glu2", "full_glu"],
        prenorm: bool,
        pooling: Literal["mean", "last", "none"],  # "mean" is S5's mode "pool"
        tokens: bool = False,  # the encoder's input is one-hot: our model takes the tokens themselves
        norm_momentum: float = 0.05,  # weight of the newest batch: 1 - S5's bn_momentum
        dropout: float = 0.0,
    ) -> importing.Classifier:
        """Return our classifier with the outputs of a `BatchClassificationModel` or `BatchRetrievalModel`."""
        params = tree.get("params", tree)
        arrays, statistics = importing.Arrays(params), importing.Arrays(tree.get("batch_stats", {}))
        retrieval, batch_norm = "decoder.layer1.kernel" in arrays, "encoder.layers_0.norm.mean" in statistics
        layers = importing.take_numbered(self, params, "encoder.layers_{}.seq", arrays)
        weights = arrays.embedding("encoder.encoder") if tokens else arrays.dense("encoder", "encoder.encoder")
        for i in range(len(layers)):
            ours, theirs = f"layers.{i}", f"encoder.layers_{i}"
            weights |= _outputs(arrays, ours, theirs, activation)
            weights |= arrays.norm(f"{ours}.norm", f"{theirs}.norm")
            if batch_norm:
                weights[f"{ours}.norm.running_mean"] = statistics.take(f"{theirs}.norm.mean")
                weights[f"{ours}.norm.running_var"] = statistics.take(f"{theirs}.norm.var")
        if retrieval:
            weights |= arrays.dense("hidden", "decoder.layer1")
        weights |= arrays.dense("decoder", "decoder.layer2" if retrieval else "decoder")
        arrays.finish()
        statistics.finish()
        return importing.build(
            layers,
            weights,
            activation=activation,
            prenorm=prenorm,
            pooling=pooling,
            tokens=tokens,
            retrieval=retrieval,
            norm="batch" if batch_norm else "layer",
            norm_eps=1e-5 if batch_norm else 1e-6,  # Flax's own
            norm_momentum=norm_momentum,
            exact_gelu=False,
            dropout=dropout,
        )


def _outputs(arrays: importing.Arrays, ours: str, theirs: str, activation: str) -> importing.Weights:
    """Return the dense layers behind a state space layer; which there are must agree with the activation."""
    dense = {name for name in ("out1", "out2") if f"{theirs}.{name}.kernel" in arrays}
    if dense != OUTPUTS.get(activation):
        possible = [name for name, needed in OUTPUTS.items() if needed == dense]
        raise InputError(f"activation must be {' or '.join(possible)} for this tree; got {activation!r}.")
    weights = arrays.dense(f"{ours}.gate", f"{theirs}.out2") if "out2" in dense else {}
    return weights | (arrays.dense(f"{ours}.value", f"{theirs}.out1") if "out1" in dense else {})
