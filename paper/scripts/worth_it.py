"""Prune, or train small from scratch? python paper/scripts/worth_it.py --data DATA [NAME ...] writes results/worth.md.

For every checkpoint and two shares of a step's operations: the pruned model after a recovery without labels, and a
model of the same width and as many states, trained from scratch with labels by the checkpoint's own recipe, over as
many steps as fit into the same processor time. Once both get the minutes of a recovery, and with --long also the time
that the whole model's training takes on this machine. A recipe that begins with an easier task shares the time out as
the whole model's training did. Accuracies are of the whole test set (at most 10,000 examples), by the compiled engine.
Finished rows are kept in paper/results/worth.jsonl, so it resumes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import torch
from kept_rows import CHECKPOINTS, RESULTS, Row, content_of, read_rows, write_rows

import ssmprune as sp
from ssmprune.files import write_atomically
from ssmprune.models.checkpoint import parameters
from ssmprune.models.classifier import Classifier
from ssmprune.recovery import Recovery
from ssmprune.recovery.distillation import VALIDATIONS
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
SHORT, LONG = 300.0, "the training"  # seconds of a processor, and what the time of the other comparison is called
SEQUENCES, LEARNT, TEST = 200, 60_000, 10_000
PROBE = 16  # steps that are timed before the number of steps is set; recovery validates as often
FOR_EVER = 1e6  # minutes: steps are counted, not time


def seconds_of_a_step(run: Callable[[int], object]) -> float:
    """Return the processor time of a step: what PROBE more steps take, without what every run begins with."""
    times = []
    for steps in (PROBE, 2 * PROBE):
        start = process_time()
        run(steps)
        times.append(process_time() - start)
    return (times[1] - times[0]) / PROBE


def recovered(small: Classifier, model: Classifier, inputs: list[Any], seconds: float, seed: int) -> Classifier:
    """Return the pruned model after it has learnt the whole model's answers."""
    steps = recovery_steps(Recovery(small, model, inputs), seconds)
    return Recovery(small, model, inputs, seed=seed).run(FOR_EVER, steps=steps, progress=False).model


def recovery_steps(probe: Recovery[Classifier], seconds: float) -> int:
    """Return how many steps and their validations fit into so many seconds of processor time."""
    spent: dict[str, list[float]] = {"_learn": [], "score": []}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = process_time()
            result = call(*arguments)
            spent[name].append(process_time() - start)
            return result

        return run

    for name in spent:
        setattr(probe, name, timed(name, getattr(probe, name)))
    probe.run(FOR_EVER, steps=2 * PROBE, progress=False)  # ends earlier where these steps gain nothing
    step, validation = (float(np.mean(times)) for times in spent.values())
    return max(PROBE, round((seconds - (VALIDATIONS + 1) * validation) / step))


def from_scratch(task: Task, stages: list[Recipe], root: Path, seconds: float, seed: int) -> Classifier:
    """Return the best model of a training that takes so long, in the stages of these recipes.

    Stages share the time as they share the steps of the whole model's training.
    """
    model, wanted = None, [planned_steps(task, recipe, root) for recipe in stages]
    for recipe, share in zip(stages, wanted, strict=True):
        examples = task.replace(**recipe.task).load("train", root)
        step = seconds_of_a_step(partial(_take_steps, task, recipe, examples))
        shown = recipe.batch * max(PROBE, round(seconds * share / sum(wanted) / step))  # examples, in all epochs
        epochs = math.ceil(shown / len(fewer(examples, recipe.examples)))
        recipe = replace(recipe, epochs=epochs, examples=shown // epochs)
        with TemporaryDirectory() as folder:
            run = Run(Path(folder), seed=seed, save_every=10**9, progress=False)
            model = sp.load(train(task, recipe, run, root=root, start=model).best)
    assert model is not None
    return model


def planned_steps(task: Task, recipe: Recipe, root: Path) -> int:
    """Return how many steps a training by the recipe takes."""
    examples = task.replace(**recipe.task).load("train", root)
    return len(fewer(examples, recipe.examples)) // recipe.batch * recipe.epochs


def training_seconds(task: Task, stages: list[Recipe], root: Path) -> float:
    """Return the processor time that the training by these recipes takes on this machine."""
    examples = [task.replace(**recipe.task).load("train", root) for recipe in stages]
    steps = [seconds_of_a_step(partial(_take_steps, task, *each)) for each in zip(stages, examples, strict=True)]
    return sum(step * planned_steps(task, recipe, root) for step, recipe in zip(steps, stages, strict=True))


def _take_steps(task: Task, recipe: Recipe, examples: Split, steps: int) -> None:
    model = Classifier(recipe.config(task, examples.inputs, examples.outputs)).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(steps):
        sequences, labels = tensors(examples.batch(np.arange(recipe.batch) + step * recipe.batch), torch.device("cpu"))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*sequences), labels).backward()
        optimizer.step()


def rows_of(name: str, root: Path, long: bool, seed: int, finished: list[Row]) -> Iterator[Row]:
    """Yield a row for every share, time and way that is not finished yet."""
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task, card = sp.load(path), cards.task_of(path), cards.read_card(path)
    examples, test = task.load("train", root), fewer(task.load("test", root), TEST)
    whole = [get(task.name, "s5", kind) for kind in (["easy"] if "before" in card else []) + ["cpu"]]
    times = {"a recovery": SHORT}
    if long:  # the same for all rows of a checkpoint, also when it resumes
        known = [row["seconds"] for row in finished if row["time"] == LONG]
        times[LONG] = known[0] if known else training_seconds(task, whole, root)
    done = {tuple(row[key] for key in ("share", "time", "way", "seed")) for row in finished}
    for share in SHARES:
        small = sp.prune(model, operations=share, data=unlabelled_batches(examples, SEQUENCES))
        stages = [_same_size(recipe, small) for recipe in whole]
        for (time, seconds), way in product(times.items(), WAYS):
            if (share, time, way, seed) not in done:
                start = process_time()
                made = (
                    recovered(small, model, unlabelled_batches(examples, LEARNT), seconds, seed)
                    if way == WAYS[0]
                    else from_scratch(task, stages, root, seconds, seed)
                )
                row = {"share": share, "time": time, "way": way, "seed": seed, "seconds": seconds}
                row |= {"used": process_time() - start, "parameters": parameters(made)}
                yield row | {
                    "accuracy": evaluate(made, test, engine="compiled").accuracy,
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
    for name, time, share in sorted({(row["checkpoint"], row["time"], -row["share"]) for row in rows}):
        some = [row for row in rows if (row["checkpoint"], row["time"], -row["share"]) == (name, time, share)]
        sides = [[row["accuracy"] for row in some if row["way"] == way] for way in WAYS]
        cells = [_mean(side) for side in sides]
        sizes = " and ".join(f"{count:,}" for count in sorted({row["parameters"] for row in some}))
        start = f"{100 * some[0]['closed']:.2f}"
        whole = f"{100 * some[0]['whole']:.2f}"
        lines.append((f"`{name}`", whole, f"{-share:.0%}", sizes, f"{time}, {some[0]['seconds']:.0f} s", start, *cells))
    text = (
        "# Prune, or train small?\n\nAccuracy (%) of models of the same size on at most 10,000 test examples (whole: "
        "on all): pruned in closed form and after a recovery without labels, and trained from scratch with labels by "
        "the same recipe, in the same time of one processor core. Several seeds: their mean and standard deviation. By "
        "`python paper/scripts/worth_it.py --data DATA`.\n\n"
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
    for seed, name in product(range(arguments.seeds), arguments.names or NAMES):
        finished = [row for row in read_rows(ROWS) if row["checkpoint"] == name]
        for row in rows_of(name, arguments.data, arguments.long, seed, finished):
            rows = [*read_rows(ROWS), {"checkpoint": name, "sha256": content_of(name)} | row]  # others may have come
            write_rows(ROWS, rows)
            write_table(rows)
            print(row, flush=True)
