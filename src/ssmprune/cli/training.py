"""Commands that train and evaluate."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from .. import tasks
from ..errors import InputError
from ..models import load
from ..progress import Bar
from .options import MORE, Checkpoint, Count, DataFolder, Engine, Options, Seed, Threads, at_least, prepare
from .output import INTERRUPTED, Report, table

if TYPE_CHECKING:
    from ..training import Recipe, Result

TaskName = Annotated[str, Parameter(help="A task from `ssmprune list`.")]
SIZES = Group.create_ordered("Sizes; by default the recipe's", sort_key=0)
SETTLED = ("layers", "width", "states", "bidirectional")  # sizes that a model to start from has


@Parameter(group=SIZES)
@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """What is given in place of a recipe's sizes."""

    layers: Count | None = None
    """Number of layers."""
    width: Count | None = None
    """Channels between the layers."""
    states: Annotated[int | None, at_least(2)] = None
    """States per layer (s5) or per channel (s4d); an even number."""
    epochs: Count | None = None
    """Passes through the training data."""
    batch: Count | None = None
    """Examples per step."""
    rate: float | None = None
    """Peak learning rate; the SSM's changes in proportion."""
    bidirectional: Annotated[bool | None, Parameter(negative="--forward")] = None
    """Read in both directions, or forward only; a bidirectional model cannot stream."""

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe with these figures; the rate of the SSM parameters changes by the factor of the other."""
        if self.states is not None and self.states % 2 and recipe.conj_sym:
            raise InputError(f"States come in conjugate pairs, so their number is even; got {self.states}.")
        if self.rate is not None and not 0 < self.rate < 1:
            raise InputError(f"A learning rate lies between 0 and 1; got {self.rate}.")
        fields = {"layers": "depth", "rate": "lr"}
        given = {fields.get(name, name): value for name, value in asdict(self).items() if value is not None}
        if self.rate is not None:
            given["ssm_lr"] = recipe.ssm_lr * (self.rate / recipe.lr)
        return replace(recipe, **given)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """What is trained, and where.

    torchrun takes `--run` and `--start` for short forms of its own options, so no option of ours is called that.
    """

    out: Annotated[Path, Parameter(alias="-o")]
    """Folder for this training; an interrupted one resumes."""
    model: str | None = None
    """s5 or s4d; s5 unless --from says otherwise."""
    recipe: str | None = None
    """A recipe of the task; tune, with --from; or general, for any task. By default cpu, else general."""
    start: Annotated[Path | None, Parameter(name="--from")] = None
    """Start from this checkpoint, whole or pruned."""
    prune_to: float | None = None
    """Prune this share of the states while training, most of them early."""
    prune_method: str = "surgeon"
    """A method from `ssmprune list`, for --prune-to."""
    seed: Seed = 0
    """Seed for weights, data order and dropout."""
    data: DataFolder = None
    threads: Threads = None
    sizing: SizeOptions = field(default_factory=SizeOptions)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """On which examples accuracy is measured, and what computes."""

    task: str | None = None
    """A task from `ssmprune list`; by default the card's."""
    split: str = "test"
    """train, val or test."""
    examples: Count | None = None
    """How many examples, always the same random ones; by default all."""
    every: Annotated[Count, Parameter(group=MORE)] = 1
    """Keep every n-th sample, with the model's step longer by that factor."""
    data: DataFolder = None
    engine: Engine = "torch"


def train(task: TaskName, /, options: TrainOptions) -> Report | None:
    """Train a model, or fine-tune a pruned one; after an interruption, the same command resumes.

    With --prune-to the model loses states along the way and gets faster. torchrun can start this command as well.
    """
    out = options.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder; {out} is a file.")
    prepare(*filter(None, [options.start]), threads=options.threads)
    from ..training import Schedule, distributed, recipes
    from ..training import train as run_training
    from ..training.loop import Run

    before = load(options.start) if options.start else None
    family = options.model or (before.config.family if before else "s5")
    chosen, recipe = tasks.get(task), options.recipe or recipes.default_name(task)
    sizes, to = options.sizing, options.prune_to
    pruning = None if to is None else Schedule(to, method=options.prune_method)
    how = sizes.apply(recipes.get(task, family, recipe))
    if recipe == "tune" and before is None:
        raise InputError("The tune recipe starts from a trained model: name it with --from, or use another recipe.")
    given = [f"--{name}" for name in SETTLED if getattr(sizes, name) is not None]
    if before is not None and given:
        raise InputError(f"The model of --from already has its sizes; leave out {', '.join(given)}.")
    about = {"recipe": recipe, "command": shlex.join(["ssmprune", *sys.argv[1:]])}
    run = Run(out, options.seed, card=about)
    result = run_training(chosen, how, run, root=options.data, start=before, pruning=pruning)
    return _report(result, f"{family} on {task}") if distributed.is_first_process() else None


def _report(result: Result, title: str) -> Report:
    """Describe a training, with None for files that are not written yet."""
    files = {file.stem: str(file) if file.exists() else None for file in (result.best, result.last)}
    facts = asdict(result) | files
    best = f"{result.best_accuracy:.2%}" if result.best_epoch else "none yet"  # interrupted before validation
    shown = facts | {"best_accuracy": best, "seconds": round(result.seconds)}
    rows = [{"": key.replace("_", " "), "value": value} for key, value in shown.items()]
    return Report(facts, table(title, rows), 0 if result.finished else INTERRUPTED)


def evaluate(checkpoint: Checkpoint, /, options: EvaluateOptions = EvaluateOptions()) -> Report:  # noqa: B008 (frozen)
    """Measure the accuracy of a model on a task.

    The task and its parameters are those on the card beside the model, if there is one, unless given here.
    """
    prepare(checkpoint)
    from ..deploy.compiled import choose_engine
    from ..tasks.cards import task_of
    from ..tasks.task import fewer
    from ..training.evaluation import at_rate, evaluate

    engine = choose_engine(options.engine)
    model = load(checkpoint).at_rate(options.every)
    task = at_rate(task_of(checkpoint, options.task), options.every)
    split = fewer(task.load(options.split, options.data), options.examples)
    with Bar("Evaluating", len(split), brief=True) as bar:
        score = evaluate(model, split, engine=engine, tick=bar.update)
    facts = {"task": task.name, "task_parameters": task.parameters(), "split": options.split, "engine": engine}
    facts |= asdict(score)
    parameters = ", ".join(f"{name}={value}" for name, value in task.parameters().items())
    shown = facts | {"task_parameters": parameters or None, "accuracy": f"{score.accuracy:.2%}"}
    return Report(facts, table(str(checkpoint), [shown]))
