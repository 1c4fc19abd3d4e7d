"""Commands that train and evaluate."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import tasks
from ..errors import InputError
from ..models import load
from ..progress import Bar
from .common import Checkpoint, Data, Engine, Json, Module, Threads, app, prepare, show, table
from .failures import INTERRUPTED
from .planning import takes_options_of

if TYPE_CHECKING:
    from ..training import Result

TaskName = Annotated[str, typer.Argument(help="A task from `ssmprune list` or --module.")]
Settings = Annotated[
    list[str], typer.Option("--set", help="A parameter of the task, as in length=1024; can be given more than once.")
]


def job(
    task: TaskName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for this training; an interrupted one resumes.")],
    model: Annotated[
        str | None, typer.Option("--model", help="s5 or s4d; s5 unless --from says otherwise.", show_default=False)
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="paper; cpu, which one thread can manage; easy, to begin hard tasks with; tune, with --from; or "
            "general, for any task.",
            show_default="cpu, or general for a task without one",
        ),
    ] = None,
    data: Data = None,
    module: Module = None,
    seed: Annotated[
        int,
        typer.Option("--seed", min=0, max=2**63 - 1, help="Seed for weights, data order and dropout."),
    ] = 0,
    start: Annotated[Path | None, typer.Option("--from", help="Start from this checkpoint, whole or pruned.")] = None,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Number of processes on this machine.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Number of machines.")] = 1,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Name the options of `train` that say what is trained, and where."""
    # torchrun takes `--run` and `--start` for short forms of its own options, so no option of ours is called that.


def sizing(
    layers: Annotated[
        int | None, typer.Option("--layers", min=1, help="Number of layers; these sizes are by default the recipe's.")
    ] = None,
    width: Annotated[int | None, typer.Option("--width", min=1, help="Channels between the layers.")] = None,
    states: Annotated[
        int | None, typer.Option("--states", min=2, help="States per layer (s5) or per channel (s4d); an even number.")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Passes through the training data.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Examples per step.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Peak learning rate; the SSM's changes in proportion.")
    ] = None,
    bidirectional: Annotated[
        bool | None,
        typer.Option("--bidirectional/--forward", help="Read in both directions; such a model cannot stream."),
    ] = None,
) -> Any:
    """Return the Sizes that the user gives in place of the recipe's."""
    from ..training.recipes import Sizes

    return Sizes(layers, width, states, epochs, batch, rate, bidirectional)


def cutting(
    prune_to: Annotated[
        float | None, typer.Option("--prune-to", help="Prune this share of the states while training.")
    ] = None,
    prune_schedule: Annotated[str, typer.Option("--prune-schedule", help="once, linear or cubic.")] = "cubic",
    prune_from: Annotated[
        float, typer.Option("--prune-from", help="Share of the training after which pruning starts.")
    ] = 0.1,
    prune_until: Annotated[
        float, typer.Option("--prune-until", help="Share of the training after which it is complete.")
    ] = 0.5,
    prune_every: Annotated[int, typer.Option("--prune-every", help="Steps between two cuts.")] = 50,
    prune_method: Annotated[str, typer.Option("--prune-method", help="A method from `ssmprune list`.")] = "surgeon",
) -> Any:
    """Return the Schedule by which a model loses states while it trains, or None."""
    from ..training import Schedule

    cuts = (prune_schedule, prune_from, prune_until, prune_every, prune_method)
    return None if prune_to is None else Schedule(prune_to, *cuts)


@app.command()
@takes_options_of(job, sizing, cutting)
def train(
    task: str,
    out: Path,
    model: str | None,
    recipe: str | None,
    data: Path | None,
    seed: int,
    start: Path | None,
    devices: int,
    nodes: int,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model, or fine-tune a pruned one; after an interruption, the same command resumes.

    With --prune-to the model loses states along the way and gets faster. torchrun can start this command as well.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder; {out} is a file.")
    prepare(threads)
    from ..training import distributed, recipes
    from ..training import train as run_training
    from ..training.loop import Run, check_job

    before = load(start) if start else None
    family = model or (before.config.family if before else "s5")
    chosen, recipe = tasks.get(task), recipe or recipes.default_name(task)
    sizes, pruning = (_call(function, options) for function in (sizing, cutting))
    how = sizes.apply(recipes.get(task, family, recipe))
    if recipe == "tune" and before is None:
        raise InputError("The tune recipe starts from a trained model: name it with --from, or use another recipe.")
    if before is not None and sizes.of_the_model:
        raise InputError(f"The model of --from already has its sizes; leave out {', '.join(sizes.of_the_model)}.")
    if distributed.needs_launch(devices, nodes):
        check_job(chosen, how, before, data, devices * nodes)  # before there are many: an error is reported once
        distributed.relaunch(devices, nodes)
    about = {"recipe": recipe, "command": shlex.join(["ssmprune", *sys.argv[1:]])}
    result = run_training(chosen, how, Run(out, seed, card=about), root=data, start=before, pruning=pruning)
    if not distributed.is_first_process():
        return
    _show(result, f"{family} on {task}", as_json)
    if not result.finished:  # asked to stop: the same command resumes
        raise typer.Exit(INTERRUPTED)


def _call(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Call a function with those of the options that it takes."""
    return function(**{name: options[name] for name in inspect.signature(function).parameters})


def _show(result: Result, title: str, as_json: bool) -> None:
    """Print a result, with None for files that are not written yet."""
    files = {file.stem: str(file) if file.exists() else None for file in (result.best, result.last)}
    facts = asdict(result) | files
    readable = {key.replace("_", " "): value for key, value in facts.items()}
    best = f"{result.best_accuracy:.2%}" if result.best_epoch else "none yet"  # interrupted before validation
    readable |= {"best accuracy": best, "seconds": f"{result.seconds:,.0f}"}
    show(facts, as_json, table(title, [{"": key, "value": value} for key, value in readable.items()]))


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    task: Annotated[
        str | None, typer.Option("--task", help="A task from `ssmprune list`; by default the card's.")
    ] = None,
    data: Data = None,
    module: Module = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    examples: Annotated[
        int | None,
        typer.Option("--examples", min=1, help="How many examples, always the same random ones; by default all."),
    ] = None,
    every: Annotated[
        int, typer.Option("--every", min=1, help="Keep every n-th sample, with the model's step longer by that factor.")
    ] = 1,
    measure: Annotated[
        int,
        typer.Option("--measure", min=0, help="Training examples for batch norms to re-measure their statistics on."),
    ] = 0,
    settings: Settings = [],  # noqa: B006 (typer copies it)
    engine: Engine = "torch",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of a model on a task.

    The task and its parameters are those on the card beside the model, if there is one, unless given here. At another
    sampling rate batch norms meet statistics they were not trained on; --measure lets them adapt, without labels.
    """
    prepare(threads)
    from ..deploy.compiled import choose_engine
    from ..models.block import measure_statistics
    from ..tasks.cards import task_of
    from ..tasks.task import fewer
    from ..training.calibration_inputs import part_of
    from ..training.evaluation import at_rate, evaluate

    engine = choose_engine(engine)
    model, asked = load(checkpoint), _parse(settings)
    if "every" in asked:
        raise InputError("--set every would leave the model's step unchanged; use --every, which lengthens it too.")
    chosen = at_rate(task_of(checkpoint, task).replace(**asked), every)
    model = model.at_rate(every)
    if measure:
        batches = part_of(chosen.load("train", data), measure)
        measure_statistics(model, (batch if isinstance(batch, tuple) else (batch, None) for batch in batches))
    part = fewer(chosen.load(split, data), examples)
    with Bar("Evaluating", len(part), brief=True) as bar:
        seen = evaluate(model, part, engine=engine, tick=bar.update)
    parameters = chosen.parameters()
    facts = {"task": chosen.name, "task_parameters": parameters, "split": split, "engine": engine, **asdict(seen)}
    readable = {
        "task": " ".join([chosen.name, *(f"{name}={value}" for name, value in parameters.items())]),
        "split": split,
        "engine": engine,
        "loss": f"{seen.loss:.4f}",
        "accuracy": f"{seen.accuracy:.2%}",
        "examples": f"{seen.examples:,}",
    }
    show(facts, as_json, table(str(checkpoint), [readable]))


def _parse(settings: list[str]) -> dict[str, Any]:
    """Read name=number pairs."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, value in pairs:
        if not (name and equals and value.isdecimal()):
            raise InputError(f"--set takes name=number, as in length=1024; got {name + equals + value!r}.")
    return {name: int(value) for name, _, value in pairs}
