"""What whole numbers cost: python paper/scripts/integer_accuracy.py --data DATA [NAME ...] writes results/integers.md.

Every checkpoint, whole and pruned by the surgeon by the ratio that results/quantised.jsonl has for it, in floats and in
whole numbers from the inputs to the logits, on its test set, by the compiled engines. Surgeon, rounding and ranges are
calibrated on 200 unlabelled training sequences. Overflows cannot occur; saturated activations are counted by the
reference on the sequences that the model's history names. Finished rows are kept in results/integers.jsonl, so it
resumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all, read_rows
from numpy.typing import NDArray

import ssmprune as sp
from ssmprune.deploy.compiled import forward
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import Split
from ssmprune.training.calibration_inputs import unlabelled_batches

RATIOS = RESULTS / "quantised.jsonl"
ROWS, TABLE = RESULTS / "integers.jsonl", RESULTS / "integers.md"
SEQUENCES, BATCH = 200, 100
COLUMNS = ("checkpoint", "pruned", "examples", "float", "whole numbers", "lost", "answers equal", "saturated")


def answers(model: Classifier, split: Split) -> NDArray[np.int64]:
    """Return the model's answers, compiled."""
    found = []
    with forward(model, "compiled") as fast:
        for start in range(0, len(split), BATCH):
            batch = split.batch(np.arange(start, min(start + BATCH, len(split))))
            found.append(np.asarray(fast(batch.x, batch.lengths)).argmax(-1))
    return np.concatenate(found)


def measure(model: Classifier, data: list[Any], split: Split) -> Row:
    """Return accuracies in percent, how many answers are equal, and what saturated on some calibration sequences."""
    whole = sp.quantize(model, data=data, arithmetic="integer")
    floats, ours = answers(model, split), answers(whole, split)
    saturated = re.search(r"(\d+) of (\d+) numbers saturate", whole.history[-1])
    assert saturated is not None
    return {
        "examples": len(split),
        "float": 100 * float((floats == split.labels).mean()),
        "integer": 100 * float((ours == split.labels).mean()),
        "equal": 100 * float((floats == ours).mean()),
        "saturated": [int(number) for number in saturated.groups()],
    }


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Measure one checkpoint at the ratios that are missing."""
    ratios = {row["pruned"] for row in read_rows(RATIOS) if row["checkpoint"] == name}
    path = CHECKPOINTS / f"{name}.safetensors"
    for ratio in sorted(ratios - {row["pruned"] for row in finished}):
        model, task = sp.load(path), cards.task_of(path)
        data = unlabelled_batches(task.load("train", root), SEQUENCES)
        if ratio:
            work = sp.Pruning(model, data=data)
            model = work.shrink(work.plan(ratio))
        yield {"pruned": ratio, **measure(model, data, task.load("test", root))}


def write_table(rows: list[Row]) -> None:
    """Write the table of all rows measured so far."""
    lines = [
        (
            *(f"`{row['checkpoint']}`", f"{row['pruned']:.0%}", f"{row['examples']:,}", f"{row['float']:.2f}"),
            *(f"{row['integer']:.2f}", f"{row['float'] - row['integer']:.2f}", f"{row['equal']:.2f} %"),
            "{:,} of {:,}".format(*row["saturated"]),
        )
        for row in sorted(rows, key=lambda row: (row["checkpoint"], row["pruned"]))
    ]
    lost = np.array([row["float"] - row["integer"] for row in rows])
    verdicts = [
        (
            f"points lost on average, {len(rows)} models",
            f"{lost.mean():.2f}",
            "at most 0.3",
            "yes" if lost.mean() <= 0.3 else "no",
        ),
        ("most points lost by a model", f"{lost.max():.2f}", "at most 1.0", "yes" if lost.max() <= 1 else "no"),
    ]
    text = (
        "# Whole numbers\n\nAccuracy in percent on test sets, by `python paper/scripts/integer_accuracy.py "
        "--data DATA`: weights of 8 bits, activations of 16, states of 32, whole and pruned by the surgeon as in "
        "[quantised.md](quantised.md). Saturated: activations that did not fit 16 bits, of those of a few calibration "
        "sequences. No number overflows, by construction.\n\n"
    )
    text += markdown_rows(COLUMNS, lines) + "\n\n" + markdown_rows(("what", "found", "wanted", "met"), verdicts)
    write_atomically(TABLE, (text + "\n").encode())


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table)
