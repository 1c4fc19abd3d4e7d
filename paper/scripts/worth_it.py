"""Prune, or train small from scratch? python paper/scripts/worth_it.py --data DATA [NAME ...] writes results/worth.md.

For every checkpoint and two shares of a step's operations: the pruned model after a recovery without labels, and a
model of the same width and as many states, trained from scratch with labels by the checkpoint's own recipe, over as
many steps as fit into the same processor time. Once both get the minutes of a recovery, and with --long also the time
that the whole model's training took. Accuracies are of the whole test set (at most 10,000 examples), by the compiled
engine. Finished rows are kept in paper/results/worth.jsonl, so it resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import torch
from kept_rows import CHECKPOINTS, RESULTS, Row, content_of, read_rows

import ssmprune as sp
from ssmprune.files import write_atomically
from ssmprune.models.checkpoint import parameters
from ssmprune.models.classifier import Classifier
from ssmprune.recovery import Recovery
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import Split, Task, fewer
from ssmprune.training import evaluate
from ssmprune.training.calibration_inputs import unlabelled_batches
from ssmprune.training.evaluation import tensors
from ssmprune.training.loop import Run, train
from ssmprune.training.recipes import Recipe, get

ROWS, TABLE = RESULTS / "worth.jsonl", RESULTS / "worth.md"
NAMES = ("smnist-s5", "image-s5", "text-s5", "pathfinder-s5")
SHARES, WAYS = (0.2, 0.1), ("pruned and recovered", "from scratch")
SHORT = 300.0  # seconds of a processor
SEQUENCES, LEARNT, TEST = 200, 60_000, 10_000
PROBE = 10  # steps that are timed before the number of steps is set
FOR_EVER = 1e6  # minutes: steps are counted, not time


def steps_within(seconds: float, run: Callable[[], object]) -> int:
    """Return how many steps fit into so many seconds of processor time, after PROBE of them were timed."""
    start = process_time()
    run()
    return max(PROBE, round(seconds * PROBE / (process_time() - start)))


def recovered(small: Classifier, model: Classifier, inputs: list[Any], seconds: float, seed: int) -> Classifier:
    """Return the pruned model after it has learnt the whole model's answers."""
    probe = Recovery(small, model, inputs[:PROBE])
    steps = steps_within(seconds, lambda: probe.run(FOR_EVER, steps=PROBE, progress=False))
    return Recovery(small, model, inputs, seed=seed).run(FOR_EVER, steps=steps, progress=False).model


def from_scratch(task: Task, recipe: Recipe, root: Path, seconds: float, seed: int) -> Classifier:
    """Return the best model of a training that takes so long, with one cycle of the rate as the recipe has it."""
    examples = task.load("train", root)
    steps = steps_within(seconds, lambda: _take_steps(task, recipe, examples))
    epochs = max(1, round(steps * recipe.batch / len(fewer(examples, recipe.examples))))
    shown = min(steps * recipe.batch, recipe.examples or len(examples))
    with TemporaryDirectory() as folder:
        run = Run(Path(folder), seed=seed, save_every=10**9, progress=False)
        return sp.load(train(task, replace(recipe, epochs=epochs, examples=shown), run, root=root).best)


def _take_steps(task: Task, recipe: Recipe, examples: Split) -> None:
    model = Classifier(recipe.config(task, examples.inputs, examples.outputs)).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(PROBE):
        sequences, labels = tensors(examples.batch(np.arange(recipe.batch) + step * recipe.batch), torch.device("cpu"))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*sequences), labels).backward()
        optimizer.step()


def rows_of(name: str, root: Path, long: bool, seed: int, finished: set[Any]) -> Iterator[Row]:
    """Yield a row for every share, time and way that is not finished yet."""
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task, card = sp.load(path), cards.task_of(path), cards.read_card(path)
    examples, test = task.load("train", root), fewer(task.load("test", root), TEST)
    times = {"a recovery": SHORT} | ({"the training": card["seconds"]} if long else {})
    for share in SHARES:
        small = sp.prune(model, operations=share, data=unlabelled_batches(examples, SEQUENCES))
        recipe = _same_size(get(task.name, "s5", "cpu"), small)
        for (time, seconds), way in product(times.items(), WAYS):
            if (name, share, time, way, seed) not in finished:
                made = (
                    recovered(small, model, unlabelled_batches(examples, LEARNT), seconds, seed)
                    if way == WAYS[0]
                    else from_scratch(task, recipe, root, seconds, seed)
                )
                row = {"checkpoint": name, "share": share, "time": time, "way": way, "seed": seed, "seconds": seconds}
                row |= {"parameters": parameters(made), "accuracy": evaluate(made, test, engine="compiled").accuracy}
                yield row | {
                    "whole": card["test_accuracy"],
                    "closed": evaluate(small, test, engine="compiled").accuracy,
                }


def _same_size(recipe: Recipe, small: Classifier) -> Recipe:
    """Return the recipe for a model of the pruned model's width and mean number of states."""
    states = 2 * round(float(np.mean(small.config.states)))
    return replace(recipe, width=small.config.width, states=states, blocks=1)


def write_table(rows: list[Row]) -> None:
    """Write a line for every checkpoint, share and time."""
    lines = []
    for key in sorted({(row["checkpoint"], -row["share"], row["time"], row["seconds"]) for row in rows}):
        name, share, time, seconds = key
        some = [row for row in rows if (row["checkpoint"], -row["share"], row["time"]) == key[:3]]
        sides = [[row["accuracy"] for row in some if row["way"] == way] for way in WAYS]
        cells = [_mean(side) for side in sides]
        sizes = " and ".join(f"{count:,}" for count in sorted({row["parameters"] for row in some}))
        start = f"{100 * some[0]['closed']:.2f}"
        whole = f"{100 * some[0]['whole']:.2f}"
        lines.append((f"`{name}`", whole, f"{-share:.0%}", sizes, f"{time}, {seconds:.0f} s", start, *cells))
    text = (
        "# Prune, or train small?\n\nAccuracy (%) on the whole test set of models of the same size: pruned in closed "
        "form and after a recovery without labels, and trained from scratch with labels by the same recipe, in the "
        "same time of one processor core. Several seeds: their mean and standard deviation. By `python "
        "paper/scripts/worth_it.py --data DATA`.\n\n"
    )
    titles = ("checkpoint", "whole", "operations", "parameters", "time", "pruned", *WAYS)
    write_atomically(TABLE, (text + markdown_rows(titles, lines) + "\n").encode())


def _mean(accuracies: list[float]) -> str:
    if not accuracies:
        return ""
    spread = f" ± {100 * np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else ""
    return f"{100 * np.mean(accuracies):.2f}{spread}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"checkpoints; {', '.join(NAMES)} unless given")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--long", action="store_true", help="also with the time of the whole model's training")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    rows = read_rows(ROWS)
    for seed, name in product(range(arguments.seeds), arguments.names or NAMES):
        finished = {tuple(row[key] for key in ("checkpoint", "share", "time", "way", "seed")) for row in rows}
        for row in rows_of(name, arguments.data, arguments.long, seed, finished):
            rows.append({"sha256": content_of(name)} | row)
            write_atomically(ROWS, "".join(json.dumps(line) + "\n" for line in rows).encode())
            write_table(rows)
            print(row, flush=True)
