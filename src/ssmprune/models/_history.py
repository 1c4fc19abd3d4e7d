"""What was done to a model since its training: a sentence each, in order, saved with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ..arrays import Mask


def note(model: Any, sentence: str, *, kept: Mapping[str, Mask] | None = None) -> None:
    """Write down what was just done to one of our classifiers; models of other codes have no such list.

    Where that took the weights off their grid, the sentence says so, and the model is an ordinary one again.

    kept: the states of each layer that stayed, where others were removed.
    """
    if "ssmprune.models.classifier" not in sys.modules:  # then none of ours was made, and there may be no torch
        return
    from ._grid import cut_scales, whole_numbers
    from .classifier import Classifier

    if not isinstance(model, Classifier):
        return
    cut_scales(model, kept or {})
    if model.grid is not None and whole_numbers(model) is None:
        model.grid, sentence = None, f"{sentence}, in floats again"
    model.history = (*model.history, sentence)
