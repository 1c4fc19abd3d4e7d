"""What bits cost: python paper/scripts/quantised_accuracy.py --data DATA [NAME ...] writes results/quantised.md.

Every checkpoint, whole and pruned by the surgeon as far as a point of accuracy allows (in steps of 5 %, on 1,000
validation examples), in full precision, on 8 and on 4 bits, on its whole test set, by the compiled engine. Surgeon and
rounding are calibrated on 200 unlabelled training sequences. Differences are paired: an exact McNemar test on the
examples that one of two models gets right and the other does not. Finished rows are kept in
paper/results/quantised.jsonl, so it resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all
from numpy.typing import NDArray
from scipy.stats import binomtest

import ssmprune as sp
from ssmprune.deploy.compiled import forward
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import Split, fewer
from ssmprune.training.calibration_inputs import unlabelled_batches

ROWS, TABLE = RESULTS / "quantised.jsonl", RESULTS / "quantised.md"
SEQUENCES, VALIDATION, BATCH = 200, 1000, 100
GRID = tuple(k / 20 for k in range(1, 20))
COLUMNS = (
    "checkpoint",
    "pruned",
    "examples",
    "float",
    "8 bits",
    "p",
    "4 bits",
    "p",
    "bytes: float",
    "8 bits",
    "4 bits",
)


def right_answers(model: Classifier, split: Split) -> NDArray[np.bool_]:
    """Return for each example whether the model, compiled, answers it rightly."""
    right = []
    with forward(model, "compiled") as fast:
        for start in range(0, len(split), BATCH):
            batch = split.batch(np.arange(start, min(start + BATCH, len(split))))
            right.append(np.asarray(fast(batch.x, batch.lengths)).argmax(-1) == batch.y)
    return np.concatenate(right)


def p_value(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return how likely so uneven a split of the examples that tell two models apart is by chance (exact McNemar)."""
    lost, gained = int((one & ~other).sum()), int((other & ~one).sum())
    return float(binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0


def measure(model: Classifier, data: list[Any], split: Split) -> Row:
    """Return accuracies in percent, paired p-values and sizes in bytes of one model."""
    models = {"float": model, "8": sp.quantize(model, 8, data=data), "4": sp.quantize(model, 4, data=data)}
    right = {bits: right_answers(rounded, split) for bits, rounded in models.items()}
    return {
        "examples": len(split),
        **{bits: 100 * float(answers.mean()) for bits, answers in right.items()},
        **{f"p{bits}": p_value(right["float"], right[bits]) for bits in ("8", "4")},
        "bytes": {bits: stored_size(rounded) for bits, rounded in models.items()},
    }


def stored_size(model: Classifier) -> int:
    """Return how many bytes a model takes on disk."""
    path = ROWS.with_suffix(".part.safetensors")
    sp.save(model, path)
    size = path.stat().st_size
    path.unlink()
    return size


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Measure one checkpoint, whole and then pruned."""
    if len(finished) == 2:
        return
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task = sp.load(path), cards.task_of(path)
    data, test = unlabelled_batches(task.load("train", root), SEQUENCES), task.load("test", root)
    if not finished:
        yield {"pruned": 0.0, **measure(model, data, test)}
    ratio, small = largest_within_a_point(model, data, fewer(task.load("val", root), VALIDATION))
    yield {"pruned": ratio, **measure(small, data, test)}


def largest_within_a_point(model: Classifier, data: list[Any], split: Split) -> tuple[float, Classifier]:
    """Return the surgeon's largest ratio, of the grid, that loses at most a point, and the model it leaves.

    Bisected, so a larger ratio is taken to lose more.
    """
    work, whole = sp.Pruning(model, data=data), right_answers(model, split).mean()
    best, low, high = (0.0, model), 0, len(GRID)
    while low < high:
        middle = (low + high) // 2
        small = work.shrink(work.plan(GRID[middle]))
        lost = 100 * float(whole - right_answers(small, split).mean())
        print(f"  {GRID[middle]:.0%} pruned loses {lost:.2f} points", flush=True)
        if lost <= 1:
            best, low = (GRID[middle], small), middle + 1
        else:
            high = middle
    return best


def write_table(rows: list[Row]) -> None:
    """Write the table of all rows measured so far."""
    lines = [
        (
            *(f"`{row['checkpoint']}`", f"{row['pruned']:.0%}", f"{row['examples']:,}", f"{row['float']:.2f}"),
            *(f"{row['8']:.2f}", f"{row['p8']:.2g}", f"{row['4']:.2f}", f"{row['p4']:.2g}"),
            *(f"{row['bytes'][bits]:,}" for bits in ("float", "8", "4")),
        )
        for row in sorted(rows, key=lambda row: (row["checkpoint"], row["pruned"]))
    ]
    text = (
        "# Weights on 8 and 4 bits\n\nAccuracy in percent on whole test sets, by `python "
        "paper/scripts/quantised_accuracy.py --data DATA`: whole, and pruned by the surgeon as far as one point on "
        "validation examples allows; "
        "p: exact McNemar test against the same model in full precision.\n\n"
    )
    text += markdown_rows(COLUMNS, lines) + "\n\n" + markdown_rows(("what", "found", "wanted", "met"), verdicts(rows))
    write_atomically(TABLE, (text + "\n").encode())


def verdicts(rows: list[Row]) -> list[tuple[str, str, str, str]]:
    """Return what is asked of rounded weights, and whether these rows show it."""
    lost = np.array([row["float"] - row["4"] for row in rows])
    worse = [row["p8"] for row in rows if row["8"] < row["float"]]
    least = min(worse, default=1.0)
    return [
        ("4 bits, points lost on average", f"{lost.mean():.2f}", "at most 1.0", _yes(lost.mean() <= 1)),
        ("4 bits, most points lost by a model", f"{lost.max():.2f}", "at most 2.0", _yes(lost.max() <= 2)),
        ("8 bits, smallest p of a model that lost", f"{least:.2g}", "at least 0.05", _yes(least >= 0.05)),
    ]


def _yes(met: bool) -> str:
    return "yes" if met else "no"


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table)
