"""What 8 and 4 bits cost: python scripts/quantised_accuracy.py --data DATA [NAME ...] writes docs/results/quantised.md.

Every checkpoint, whole and pruned by the surgeon as far as a point of accuracy allows (on 1,000 validation examples),
in full precision, on 8 and on 4 bits, on its whole test set, by the compiled engine. Rounding is calibrated on 200
unlabelled training sequences. Differences are paired: an exact McNemar test on the examples that one of two models
gets right and the other does not. Finished rows are kept in docs/results/quantised.jsonl, so it resumes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import ssmprune as sp
from ssmprune.files import write_atomically
from ssmprune.models import cards
from ssmprune.models.classifier import Classifier
from ssmprune.results.table_formats import markdown_rows
from ssmprune.tasks._task import Split, fewer
from ssmprune.training.calibration_inputs import part_of

ROOT = Path(__file__).parents[1]
ROWS, TABLE = ROOT / "docs" / "results" / "quantised.jsonl", ROOT / "docs" / "results" / "quantised.md"
SEQUENCES, VALIDATION, BATCH = 200, 1000, 100
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
    fast, right = sp.compile(model), []
    for start in range(0, len(split), BATCH):
        batch = split.batch(np.arange(start, min(start + BATCH, len(split))))
        right.append(fast(batch.x, batch.lengths).argmax(-1) == batch.y)
    return np.concatenate(right)


def p_value(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return how likely so uneven a split of the examples that tell two models apart is by chance (exact McNemar)."""
    lost, gained = int((one & ~other).sum()), int((other & ~one).sum())
    return float(binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0


def measure(model: Classifier, data: list[Any], split: Split) -> dict[str, Any]:
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


def rows_of(name: str, root: Path) -> list[dict[str, Any]]:
    """Measure one checkpoint, whole and pruned."""
    path = ROOT / "checkpoints" / f"{name}.safetensors"
    model, task = sp.load(path), cards.task_of(path)
    data, test = part_of(task.load("train", root), SEQUENCES), task.load("test", root)
    validation = fewer(task.load("val", root), VALIDATION)
    work = sp.Pruning(model, data=data)
    ratio = sp.max_loss(1, lambda small: float(right_answers(small, validation).mean()))(work)
    small = work.shrink(work.plan(ratio))
    return [
        {"checkpoint": name, "pruned": pruned, **measure(candidate, data, test)}
        for pruned, candidate in ((0.0, model), (ratio, small))
    ]


def write_table(rows: list[dict[str, Any]]) -> None:
    """Write the table of all rows measured so far."""
    lines = [
        (
            *(f"`{row['checkpoint']}`", f"{row['pruned']:.0%}", f"{row['examples']:,}", f"{row['float']:.2f}"),
            *(f"{row['8']:.2f}", f"{row['p8']:.2g}", f"{row['4']:.2f}", f"{row['p4']:.2g}"),
            *(f"{row['bytes'][bits]:,}" for bits in ("float", "8", "4")),
        )
        for row in rows
    ]
    means = {bits: np.mean([row["float"] - row[bits] for row in rows]) for bits in ("8", "4")}
    text = (
        "# Weights on 8 and 4 bits\n\nAccuracy in percent on whole test sets, by `python scripts/quantised_accuracy.py "
        "--data DATA`; p: exact McNemar test against the same model in full precision. "
        f"On average 8 bits cost {means['8']:.2f} points and 4 bits {means['4']:.2f}.\n\n"
    )
    write_atomically(TABLE, (text + markdown_rows(COLUMNS, lines) + "\n").encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="checkpoints; all unless given")
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    finished = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    for name in arguments.names or sorted(path.stem for path in (ROOT / "checkpoints").glob("*.safetensors")):
        if name not in {row["checkpoint"] for row in finished}:
            finished += rows_of(name, arguments.data)
            write_atomically(ROWS, "".join(json.dumps(row) + "\n" for row in finished).encode())
            write_table(finished)
            print(*finished[-2:], sep="\n", flush=True)
