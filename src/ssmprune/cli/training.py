"""Commands that train and evaluate."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import tasks
from ..errors import InputError, need_torch
from ..models import load
from .common import Checkpoint, Compute, Data, Json, Threads, app, prepare, show, table
from .failures import INTERRUPTED

if TYPE_CHECKING:
    from ..training.train import Result

TaskName = Annotated[str, typer.Argument(help="A task of `ssmprune list`.")]
Settings = Annotated[list[str], typer.Option("--set", help="A parameter of the task, as in length=1024; repeatable.")]


@app.command()
def train(
    task: TaskName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this training; one that was interrupted goes on.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="s5 or s4d; s5 unless --from says otherwise.", show_default=False)
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="paper; cpu for what one thread can do; tune with --from.")
    ] = "cpu",
    data: Data = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Of weights, data order and dropout.")] = 0,
    start: Annotated[Path | None, typer.Option("--from", help="Fine-tune this checkpoint, full or shrunk.")] = None,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Processes on this machine.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Machines.")] = 1,
    prune_to: Annotated[
        float | None, typer.Option("--prune-to", help="Prune this share of the states while training.")
    ] = None,
    prune_schedule: Annotated[str, typer.Option("--prune-schedule", help="once, linear or cubic.")] = "cubic",
    prune_from: Annotated[float, typer.Option("--prune-from", help="Share of the training before pruning.")] = 0.1,
    prune_until: Annotated[float, typer.Option("--prune-until", help="Share of the training when it is done.")] = 0.5,
    prune_every: Annotated[int, typer.Option("--prune-every", help="Steps between two cuts.")] = 50,
    prune_method: Annotated[str, typer.Option("--prune-method", help="One of `ssmprune list`.")] = "surgeon",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model, or fine-tune a pruned one; the same command goes on after an interruption.

    With --prune-to it loses states on the way and gets faster. It may be started by torchrun, too.
    """
    # torchrun takes `--run` and `--start` for short forms of its own options, so no option of ours is called that.
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder; {out} is a file.")
    prepare(threads)
    from ..training import distributed, recipes
    from ..training.gradual_pruning import Schedule
    from ..training.train import Run, check_job
    from ..training.train import train as run_training

    before = load(start) if start else None
    family = model or (before.config.family if before else "s5")
    chosen, how = tasks.get(task), recipes.get(task, family, recipe)
    if recipe == "tune" and before is None:
        raise InputError("The tune recipe goes on with a trained model: name it with --from, or take --recipe cpu.")
    cuts = (prune_schedule, prune_from, prune_until, prune_every, prune_method)
    pruning = None if prune_to is None else Schedule(prune_to, *cuts)
    if distributed.needs_launch(devices, nodes):
        check_job(chosen, how, before, data, devices * nodes)  # before there are many: what is wrong is said once
        distributed.relaunch(devices, nodes)
    result = run_training(chosen, how, Run(out, seed), root=data, start=before, pruning=pruning)
    if not distributed.is_first_process():
        return
    if result.finished:
        _write_cards(result, out / "log.jsonl", recipe)
    _show(result, f"{family} on {task}", as_json)
    if not result.finished:  # asked to stop: the same command goes on
        raise typer.Exit(INTERRUPTED)


def _write_cards(result: Result, log: Path, recipe: str) -> None:
    from ..models import cards

    command = shlex.join(["ssmprune", *sys.argv[1:]])
    cards.write_card(result.best, cards.of_training(log) | {"recipe": recipe, "command": command})
    cards.pass_on(result.best, result.last)


def _show(result: Result, title: str, as_json: bool) -> None:
    """Print a result, with None for files that are not written yet."""
    files = {file.stem: str(file) if file.exists() else None for file in (result.best, result.last)}
    facts = asdict(result) | files
    show(facts, as_json, table(title, [{"": key, "value": value} for key, value in facts.items()]))


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    task: Annotated[str, typer.Option("--task", help="A task of `ssmprune list`.")],
    data: Data = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    every: Annotated[
        int, typer.Option("--every", min=1, help="Keep each n-th sample; the model's step grows as much.")
    ] = 1,
    measure: Annotated[
        int, typer.Option("--measure", min=0, help="Training examples for batch norms to measure their statistics on.")
    ] = 0,
    settings: Settings = [],  # noqa: B006 (typer copies it)
    compute: Compute = "torch",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Count the right answers of a model on a task.

    Task parameters are those of the model's card, if one lies beside it, unless --set says otherwise. At another rate
    batch norms meet other statistics than in training; --measure lets them adapt, without labels.
    """
    prepare(threads)
    from ..deploy.compute import choose
    from ..models.block import measure_statistics
    from ..models.cards import task_of
    from ..training.calibration_inputs import part_of
    from ..training.evaluate import at_rate, evaluate

    engine = choose(compute)
    model, asked = load(checkpoint), _parse(settings)
    if "every" in asked:
        raise InputError("--set every would leave the model's step as it is; use --every, which lengthens it as well.")
    chosen = at_rate(task_of(checkpoint, task).replace(**asked), every)
    model = model.at_rate(every)
    if measure:
        batches = part_of(chosen.load("train", data), measure)
        measure_statistics(model, (batch if isinstance(batch, tuple) else (batch, None) for batch in batches))
    seen = evaluate(model, chosen.load(split, data), compute=engine)
    facts = {"task": task, "task_parameters": chosen.parameters(), "split": split, "compute": engine, **asdict(seen)}
    readable = facts | {"accuracy": f"{seen.accuracy:.2%}", "loss": f"{seen.loss:.4f}"}
    readable["task_parameters"] = ", ".join(f"{name} {value}" for name, value in chosen.parameters().items())
    show(facts, as_json, table(str(checkpoint), [readable]))


def _parse(settings: list[str]) -> dict[str, Any]:
    """Read name=number pairs."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, value in pairs:
        if not (name and equals and value.isdecimal()):
            raise InputError(f"--set takes name=number, as in length=1024; got {name + equals + value!r}.")
    return {name: int(value) for name, _, value in pairs}


def list_recipes(as_json: bool) -> None:
    """Show every recipe; of one that is not the paper's, what it changes."""
    need_torch()
    from ..training import recipes

    data, rows = [], []
    for (task, family, name), recipe in recipes.found().items():
        names = {"task": task, "model": family, "recipe": name}
        changes = recipes.differences(task, family, name)
        data.append(names | asdict(recipe) | {"differences": changes})
        words = ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changes.items())
        rows.append(names | {"differs from the paper's in": words})
    show({"recipes": data}, as_json, table("Recipes", rows))
