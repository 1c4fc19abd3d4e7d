"""How far each way prunes: python paper/scripts/largest_ratios.py --data DATA [NAME ...] writes results/largest.md.

For every checkpoint and for LAST, LAST + refit, the surgeon, and the surgeon with recovery: the largest ratio that
loses at most one point of accuracy on validation examples (2,000, or all there are), then the accuracy on the whole
test set, by the compiled engine. Recovery takes the steps planned for two and a half minutes of two cores, here within
five minutes of one thread, at three ratios above the surgeon's own. Finished rows are kept in
paper/results/largest.jsonl, so it resumes. Calibration is on 200 unlabelled training sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all

import ssmprune as sp
from ssmprune.budgets import ratio_for, search
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.recovery import Recovery
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import Split, fewer
from ssmprune.training import evaluate
from ssmprune.training.calibration_inputs import unlabelled_batches

ROWS, TABLE = RESULTS / "largest.jsonl", RESULTS / "largest.md"
SEQUENCES, VALIDATION, POINTS, MINUTES = 200, 2000, 1.0, 2.5
TRIES = 3  # recoveries: a quarter of the way to everything, then each halves the range of ratios that are left
WAYS = ("LAST", "LAST + refit", "surgeon", "surgeon + recovery")


def accuracy(model: Classifier, split: Split) -> float:
    """Return the share of right answers, from 0 to 1, by the compiled engine."""
    return evaluate(model, split, engine="compiled").accuracy


def without_recovery(work: sp.Pruning[Classifier], validation: Split) -> tuple[float, Classifier]:
    """Return the largest ratio within a point, and the model pruned so far."""
    found = search([sp.max_loss(POINTS, lambda small: accuracy(small, validation))], work)
    return found.ratio, work.shrink(found.plan)


def with_recovery(
    work: sp.Pruning[Classifier], start: tuple[float, Classifier], inputs: list[Any], validation: Split
) -> tuple[float, Classifier]:
    """Return the same with a recovery after pruning: bisect between what needs none and everything."""
    least = accuracy(work.model, validation) - POINTS / 100
    best, (low, high) = start, (start[0], 1.0)
    for part in (4, *[2] * (TRIES - 1)):
        ratio = ratio_for(round((low + (high - low) / part) * work.states), work.states)
        trial = Recovery(work.shrink(work.plan(ratio)), work.model, inputs)
        recovered = trial.run(2 * MINUTES, steps=trial.planned_steps(MINUTES), progress=False)
        found = accuracy(recovered.model, validation)
        print(f"{ratio:.1%} pruned: {found:.2%} right, {least:.2%} wanted. {recovered}", flush=True)
        if found >= least:
            best, low = (ratio, recovered.model), ratio
        else:
            high = ratio
    return best


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Yield a row for every way that is not finished yet; of those that are, the ratios are known."""
    if len(finished) == len(WAYS):
        return
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task = sp.load(path), cards.task_of(path)
    train, test = task.load("train", root), task.load("test", root)
    validation = fewer(task.load("val", root), VALIDATION)
    data, whole = unlabelled_batches(train, SEQUENCES), None
    ratios = {row["way"]: row["ratio"] for row in finished}
    works = {"LAST": sp.Pruning(model), "LAST + refit": sp.Pruning(model, sp.LAST, data=data)}
    works |= dict.fromkeys(WAYS[2:], sp.Pruning(model, data=data))
    for way in WAYS:
        if way in ratios:
            continue
        whole = accuracy(model, test) if whole is None else whole
        if way == WAYS[3]:
            surgeon = ratios[WAYS[2]]
            start = surgeon, works[way].shrink(works[way].plan(surgeon))
            found = with_recovery(works[way], start, unlabelled_batches(train, 8000), validation)
        else:
            found = without_recovery(works[way], validation)
        ratios[way] = found[0]
        row = {"family": name.split("-")[-1], "way": way, "ratio": found[0]}
        row |= {"validation": len(validation), "test": len(test), "whole": whole, "pruned": accuracy(found[1], test)}
        yield row


def write_table(rows: list[Row]) -> None:
    """Write a line for every checkpoint, and the averages over each family."""
    found = {(row["checkpoint"], row["way"]): row for row in rows}
    lines = []
    for name in sorted({row["checkpoint"] for row in rows}):
        own = [found.get((name, way)) for way in WAYS]
        whole = next(row["whole"] for row in own if row)
        cells = [f"{row['ratio']:.1%} ({100 * row['pruned']:.2f})" if row else "" for row in own]
        lines.append((f"`{name}`", f"{100 * whole:.2f}", *cells))
    for family in ("s5", "s4d"):
        names = sorted({row["checkpoint"] for row in rows if row["family"] == family})
        whole = [name for name in names if all((name, way) in found for way in WAYS)]  # so that ways can be compared
        means = [_mean([found[name, way] for name in whole]) if whole else "" for way in WAYS]
        lines.append((f"average of {len(whole)} {family.upper()}", "", *means))
    text = (
        "# Largest ratios within one point\n\nShare of states pruned, found on 2,000 validation examples (Speech has "
        "596), and in brackets the accuracy on the whole test set, in the averages the points lost there; by "
        "`python paper/scripts/largest_ratios.py --data DATA`. Recovery: the steps planned for two and a half minutes "
        "of two cores, run on one thread within five, at three ratios above the surgeon's. Those for Text and ListOps "
        "are older than the others: they still spent steps on padding.\n\n"
    )
    write_atomically(TABLE, (text + markdown_rows(("checkpoint", "whole", *WAYS), lines) + "\n").encode())


def _mean(rows: list[Row]) -> str:
    ratio, lost = np.mean([(row["ratio"], 100 * (row["whole"] - row["pruned"])) for row in rows], axis=0)
    return f"{ratio:.1%} ({lost:.2f})"


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table)
