"""What pruning gained: bytes and milliseconds before and after, and what budgets came to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..targets import milliseconds_of
from .planning import Decision, Said, first_sequence

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.classifier import Classifier


def gains(decision: Decision, checkpoint: Path, small: Classifier) -> Said:
    """Measure the model before and after pruning, and say it with what the budgets came to."""
    from ..models._size import stored_bytes

    whole, x = decision.work.model, one_example(decision, checkpoint)
    sizes = [stored_bytes(model) for model in (whole, small)]
    times = [milliseconds_of(model, (x,)) for model in (whole, small)]
    lines = [
        f"Tensors: {sizes[0]:,} -> {sizes[1]:,} bytes",
        f"Time for {len(x)} x {x.shape[1]:,} steps: {times[0]:.3g} -> {times[1]:.3g} ms on this machine",
    ]
    facts: dict[str, Any] = {"bytes": sizes, "milliseconds": times, "budgets": decision.work.notes}
    return Said(facts, [*decision.work.notes, *lines])


def one_example(decision: Decision, checkpoint: Path) -> Tensor:
    """Return one sequence, for a model of pairs two: of the calibration data, or random and as long as the task's."""
    from ..bench.subjects import UNKNOWN_LENGTH, inputs, length_of

    if decision.work.batches is not None:
        return first_sequence(decision.work)
    try:
        length = length_of(checkpoint)
    except InputError:  # the card names a task that is not known here; it is not needed
        length = UNKNOWN_LENGTH
    return inputs(decision.work.model.config, 1, length)
