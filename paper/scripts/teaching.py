"""Do block outputs teach better than answers alone? python paper/scripts/teaching.py --data DATA [NAME ...].

A model of a tenth of the operations learns the whole model's logits, once by these alone, and once also by the whole
model's block outputs at the features that stay, as a share of their energy, with several weights; all in the same
processor time. Accuracy is that of the whole test set (at most 10,000 examples), by the compiled engine. Finished rows
are kept in paper/results/teaching.jsonl, so it resumes; the table is results/teaching.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all
from torch import Tensor
from worth_it import FOR_EVER, LEARNT, SEQUENCES, TEST, recovery_steps

import ssmprune as sp
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.recovery import Recovery
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import fewer
from ssmprune.training import evaluate
from ssmprune.training.calibration_inputs import unlabelled_batches

ROWS, TABLE = RESULTS / "teaching.jsonl", RESULTS / "teaching.md"
NAMES, SHARE, SECONDS, WEIGHTS = ("smnist-s5", "image-s5"), 0.1, 180.0, (0.0, 0.1, 1.0)


class Hinted(Recovery):
    """A recovery in which the whole model's block outputs teach as well."""

    def __init__(self, small: Classifier, model: Classifier, data: list[Any], kept: Any, weight: float) -> None:
        """Watch the blocks of both models; `kept`: the features that stay; `weight`: of block outputs in the loss."""
        super().__init__(small, model, data)
        self.kept, self.weight = torch.from_numpy(np.flatnonzero(kept)), weight
        self.theirs: list[list[Tensor]] = []  # of each part of a batch
        self.ours, self.seen = ([], []) if weight else (None, None)
        for blocks, outputs in ((self.student.blocks, self.ours), (self.teacher.blocks, self.seen)):
            for block in blocks if weight else ():
                block.register_forward_hook(lambda _, __, output, to=outputs: to.append(output))

    def _expected(self, index: int, parts: list[Any]) -> list[Tensor]:
        if not self.weight:
            return super()._expected(index, parts)
        self.theirs, answers = [], []
        for part in parts:
            self.seen.clear()
            answers.append(self.teacher(*part))  # without torch.no_grad, which cuts batches; no weight of it learns
            self.theirs.append([output[..., self.kept] for output in self.seen])
        self.ours.clear()
        return answers

    def _loss(self, given: Tensor, expected: Tensor) -> Tensor:
        loss = super()._loss(given, expected)
        if not self.weight:
            return loss
        pairs = list(zip(self.ours, self.theirs.pop(0), strict=True))
        self.ours.clear()
        off = [(a - b).square().mean() / b.square().mean() for a, b in pairs]
        return loss + self.weight * torch.stack(off).mean()


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Yield a row for every weight that is not finished yet."""
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task = sp.load(path), cards.task_of(path)
    examples, test = task.load("train", root), fewer(task.load("test", root), TEST)
    work = sp.Pruning(model, width="auto", data=unlabelled_batches(examples, SEQUENCES))
    plan = work.plan(1 - SHARE)
    small, inputs = work.shrink(plan), unlabelled_batches(examples, LEARNT)
    for weight in WEIGHTS:
        if weight in {row["weight"] for row in finished}:
            continue
        steps = recovery_steps(Hinted(small, model, inputs, plan.features.keep, weight), SECONDS)
        made = Hinted(small, model, inputs, plan.features.keep, weight).run(FOR_EVER, steps=steps, progress=False)
        accuracy = evaluate(made.model, test, engine="compiled").accuracy
        yield {"weight": weight, "steps": steps, "accuracy": accuracy, "damage": made.after.damage}


def write_table(rows: list[Row]) -> None:
    """Write a line for every checkpoint and weight."""
    lines = [
        (
            *(f"`{row['checkpoint']}`", f"{row['weight']:g}", f"{row['steps']:,}"),
            *(f"{100 * row['accuracy']:.2f}", f"{row['damage']:.4f}"),
        )
        for row in sorted(rows, key=lambda row: (row["checkpoint"], row["weight"]))
    ]
    text = (
        f"# Do block outputs teach better?\n\nModels of {SHARE:.0%} of the operations after {SECONDS:.0f} s of a "
        "processor core: the loss is that of the logits plus a weight times the error of the block outputs at the "
        "features that stay, as a share of their energy. By `python paper/scripts/teaching.py --data DATA`.\n\n"
    )
    titles = ("checkpoint", "weight of block outputs", "steps", "test accuracy (%)", "held-out damage")
    write_atomically(TABLE, (text + markdown_rows(titles, lines) + "\n").encode())


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table, NAMES)
