"""A duel on CompreSSM's ground: python paper/scripts/duel_compressm.py --data DATA writes paper/results/compressm.md.

CompreSSM [Chahine2026] truncates an LRU of one block, 256 states and width 8 while it trains on sMNIST.
Here the checkpoint `smnist-lru`, the same architecture, is pruned after an ordinary training to the sizes they print,
without labels: the surgeon looks at 200 training sequences, recovery at 8,000 for at most 5 minutes. Accuracy is that
on all 10,000 test images. Finished rows are kept in paper/results/compressm.jsonl and a recovery in runs/, so it
resumes; rows of another checkpoint are measured anew.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

import ssmprune as sp
from ssmprune.budgets import ratio_for
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.recovery import Recovery
from ssmprune.recovery.resume import fingerprint
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.training import evaluate
from ssmprune.training.calibration_inputs import unlabelled_batches

ROOT = Path(__file__).parents[1]
CHECKPOINT = ROOT / "checkpoints" / "smnist-lru.safetensors"
ROWS, TABLE = ROOT / "results" / "compressm.jsonl", ROOT / "results" / "compressm.md"
STATES = ROOT / "runs" / "duel_compressm"
WHOLE, SIZES = 256, (47, 28, 13)
PUBLISHED = {256: 97.3, 47: 96.9, 28: 96.9, 13: 95.9}
SEQUENCES, LESSONS, MINUTES = 200, 8000, 5.0


class Duel:
    """The trained model, its data, and every way to make it smaller."""

    def __init__(self, data: Path) -> None:
        """Load what all rows need."""
        self.model, self.task, self.root = sp.load(CHECKPOINT), cards.task_of(CHECKPOINT), data
        self.test = self.task.load("test", data)

    @property
    def ways(self) -> dict[str, Callable[[int], Classifier]]:
        """Return every way by its name in the table: from a number of states to a model."""
        return {
            "LAST, no data": lambda states: self.prune(sp.LAST, states, data=None),
            "balanced truncation, no data": lambda states: self.prune(sp.BALANCED, states, data=None),
            "surgeon": lambda states: self.prune(sp.SURGEON, states, data=self.inputs(SEQUENCES)),
            "surgeon + recovery": self.recover,
        }

    @cache  # noqa: B019 (one duel a process)
    def inputs(self, sequences: int) -> list[Any]:
        """Return unlabelled training sequences."""
        return unlabelled_batches(self.task.load("train", self.root), sequences)

    def prune(self, method: sp.Method, states: int, data: list[Any] | None) -> Classifier:
        """Return the model with so many states."""
        return sp.prune(self.model, ratio_of(states), method, data=data)

    def recover(self, states: int) -> Classifier:
        """Let what the surgeon leaves learn the whole model's answers."""
        small = self.prune(sp.SURGEON, states, data=self.inputs(SEQUENCES))
        STATES.mkdir(parents=True, exist_ok=True)
        recovery = Recovery(small, self.model, self.inputs(LESSONS))
        outcome = recovery.run(MINUTES, state=STATES / f"{fingerprint(self.model)[:16]}-{states}.safetensors")
        if not outcome.finished:
            raise SystemExit("Stopped; the same command resumes.")
        print(outcome, flush=True)
        return outcome.model

    def row(self, way: str, states: int) -> dict[str, Any]:
        """Measure one model."""
        begin = time.monotonic()
        small = self.model if states == WHOLE else self.ways[way](states)
        seconds = time.monotonic() - begin
        seen = evaluate(small, self.test)
        return {
            **{"checkpoint": fingerprint(self.model), "way": way, "states": states, "kept": sum(small.config.states)},
            **{"accuracy": 100 * seen.accuracy, "examples": seen.examples, "seconds": round(seconds, 1)},
        }


def ratio_of(states: int) -> float:
    """Return the share to prune so that so many states stay."""
    return ratio_for(WHOLE - states, WHOLE)


def write_table(rows: list[dict[str, Any]]) -> None:
    """Write the table of all rows measured so far."""
    found = {(row["way"], row["states"]): row for row in rows}
    whole, card = found["whole", WHOLE], cards.read_card(CHECKPOINT)
    lines = [["CompreSSM, as published", *(f"{PUBLISHED[size]:.1f}" for size in (WHOLE, *SIZES))]]
    for way in dict.fromkeys(row["way"] for row in rows if row["way"] != "whole"):
        cells = [f"{found[way, size]['accuracy']:.2f}" if (way, size) in found else "" for size in SIZES]
        lines.append([way, f"{whole['accuracy']:.2f}", *cells])
    columns = ("accuracy, %, at so many states", *map(str, (WHOLE, *SIZES)))
    text = f"""# A duel on CompreSSM's ground: LRU on sMNIST

Accuracy on {whole["examples"]:,} test images, by `python paper/scripts/duel_compressm.py --data DATA`.

{markdown_rows(columns, lines)}

- CompreSSM truncates while it trains: to have 47, 28 or 13 states it trains from the start for each, 200,000 steps of
  50 images with labels, and prints the mean of ten seeds. Our rows begin with one trained model (`smnist-lru` in
  paper/checkpoints, one seed, {card["epochs"]} epochs) and use no labels: LAST and balanced truncation take seconds and
  no data, the surgeon {SEQUENCES} unlabelled training sequences, recovery up to {LESSONS:,} of them, at most
  {MINUTES:.0f} minutes.
- The architecture is theirs: one block, 256 states, width 8, batch norm, GELU, gated linear unit, mean over time; poles
  start on the ring from 0.9 to 0.999. A state is one complex number, not one of a conjugate pair, for them and for us.
- What differs: the layer is our S5 layer, which computes what an LRU does. The decay of a pole is stored as in LRU, the
  angle itself and not its logarithm; B is that of a zero-order hold, with gamma in its initial size. Our batch norm has
  a scale and a shift, and the training is short (`ssmprune train smnist --model s5 --recipe lru`, no dropout): the
  whole models differ, so compare what is lost as well as what is left.
"""
    write_atomically(TABLE, text.encode())


def main(data: Path) -> None:
    """Measure what is not measured yet."""
    duel = Duel(data)
    done = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    done = [row for row in done if row["checkpoint"] == fingerprint(duel.model)]
    for way, states in [("whole", WHOLE), *((way, size) for way in duel.ways for size in SIZES)]:
        if (way, states) not in {(row["way"], row["states"]) for row in done}:
            done.append(duel.row(way, states))
            write_atomically(ROWS, "".join(json.dumps(row) + "\n" for row in done).encode())
            print(done[-1], flush=True)
        write_table(done)


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    main(**vars(parser.parse_args()))
