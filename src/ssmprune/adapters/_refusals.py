"""Models that cannot be pruned state by state, recognised by their parameters, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _arrays

SELECTIVE = (
    "{path} is a selective (Mamba/S6) layer: its poles and B change with the input, so a state has no fixed gain. "
    "ssmprune handles linear time-invariant diagonal layers such as S5, S4D and LRU."
)
LOW_RANK = (
    "{path} is a diagonal-plus-low-rank (DPLR) S4 layer: its states are coupled by the low-rank term, so none can be "
    "removed alone. Use the diagonal variant (S4D), or diagonalise the layer first."
)
LIQUID = (
    "{path} is a liquid layer: its state update is multiplied by the input, so it is not time-invariant. "
    "Train it with liquid=False to prune it."
)


def why_refused(model: Any) -> str | None:
    """Return why a torch model or a tree of arrays cannot be pruned, or None if nothing speaks against it."""
    for path, names, layer in _modules(model):
        where = repr(path) if path else "The model"
        if {"A_log", "x_proj", "dt_proj"} <= names or {"A_log", "dt_bias", "in_proj"} <= names:
            return SELECTIVE.format(path=where)
        if "P" in names and ({"A_real", "A_imag"} <= names or {"Lambda_re", "Lambda_im"} <= names):
            return LOW_RANK.format(path=where)
        if getattr(layer, "liquid", False) is True:
            return LIQUID.format(path=where)
    return None


def _modules(model: Any) -> list[tuple[str, set[str], Any]]:
    """List (path, names of children and parameters, module) for a torch module, a state dict or a tree."""
    if hasattr(model, "named_modules"):
        return [
            (path, {*module._parameters, *module._buffers, *module._modules}, module)
            for path, module in model.named_modules()
        ]
    if not isinstance(model, Mapping):
        return []
    found: dict[str, set[str]] = {"": set()}
    for path in _arrays.leaves(model):
        parts = path.split(".")
        for depth, name in enumerate(parts):
            found.setdefault(".".join(parts[:depth]), set()).add(name)
    return [(path, names, None) for path, names in found.items()]
