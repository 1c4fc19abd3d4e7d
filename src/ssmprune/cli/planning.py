"""What `plan`, `prune` and `deploy` share: how far to prune, by which method, on which data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .. import budgets, tasks
from ..bisection import most_trials
from ..budgets import Budget, Finish, Found, search
from ..calibration.data import count
from ..errors import InputError
from ..files import check_writable
from ..models import load
from ..planning.certificates import Certificate
from ..planning.certificates import certify as certify_plan
from ..planning.limits import Limits
from ..planning.plan import Plan
from ..progress import duration
from ..pruning import Pruning, read
from ..tasks import cards
from ..tasks.task import Split, fewer
from .common import (
    Cap,
    Checkpoint,
    Data,
    Exclude,
    Floor,
    Floors,
    Json,
    Module,
    Out,
    RoundTo,
    Seed,
    Unstable,
    UnstablePoles,
    method_named,
    prepare,
    say,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.classifier import Classifier

Share = Annotated[float | None, typer.Option("--ratio", "-r", help="Share of all states to prune, from 0 to 1.")]
MaxEnergy = Annotated[
    float | None, typer.Option("--max-energy", help="Largest share of its output energy any layer may lose.")
]
MaxGain = Annotated[
    float | None, typer.Option("--max-gain", help="Largest gain of any layer's error, as a share of the layer's gain.")
]
MaxLoss = Annotated[
    float | None, typer.Option("--max-loss", help="Points of accuracy that may be lost on validation data.")
]
MaxMemory = Annotated[float | None, typer.Option("--max-memory", help="Megabytes that all tensors together may take.")]
MaxLatency = Annotated[
    float | None, typer.Option("--max-latency", help="Milliseconds that one sequence of the --calibrate data may take.")
]
Calibrate = Annotated[
    str | None, typer.Option("--calibrate", help="A task, or a .npy file of inputs; labels are not needed.")
]
Sequences = Annotated[int, typer.Option("--sequences", min=1, help="How many sequences to calibrate on.")]
Validate = Annotated[str | None, typer.Option("--validate", help="Task for --max-loss; by default the card's.")]
Examples = Annotated[int, typer.Option("--examples", min=1000, help="How many examples accuracy is measured on.")]
Certify = Annotated[bool, typer.Option("--certify", help="Also bound how far each layer's output can move.")]
OptionalMethodName = Annotated[
    str | None,
    typer.Option("--method", "-m", help="A method from `ssmprune list`; by default last, or surgeon with --calibrate."),
]


class Learning(StrEnum):
    """What learns in a recovery."""

    all = "all"
    states = "states"


Recover = Annotated[
    float | None,
    typer.Option(
        "--recover",
        metavar="[MINUTES]",
        help="Then learn the whole model's answers, for 5 minutes or as many as given.",
    ),
]
What = Annotated[
    Learning, typer.Option("--what", help="What recovery trains: all parameters, or those of the states only.")
]


WORTH_SAYING = 100_000_000  # bytes of memory
Goals = dict[str, tuple[float | None, Callable[[float], Budget]]]  # what was given, and what it asks for


class Decision(NamedTuple):
    """A plan, the work on the model it is for, and what to print."""

    plan: Plan
    work: Pruning[Classifier]
    certificates: dict[str, Certificate]
    out: Path
    as_json: bool
    found: Found[Classifier] | None  # what budgets in place of a ratio came to
    small: Classifier | None  # the finished model, where there is something to finish

    @property
    def notes(self) -> list[str]:
        """What each budget came to."""
        return [] if self.found is None else self.found.notes


def decide(
    checkpoint: Checkpoint,
    out: Out,
    ratio: Share = None,
    max_energy: MaxEnergy = None,
    max_gain: MaxGain = None,
    max_loss: MaxLoss = None,
    max_memory: MaxMemory = None,
    max_latency: MaxLatency = None,
    method: OptionalMethodName = None,
    calibrate: Calibrate = None,
    sequences: Sequences = 200,
    validate: Validate = None,
    examples: Examples = 2000,
    certify: Certify = False,
    data: Data = None,
    module: Module = None,
    exclude: Exclude = [],  # noqa: B006 (typer copies it)
    cap: Cap = 1.0,
    floor: Floor = Floors.layer,
    round_to: RoundTo = 1,
    seed: Seed = 0,
    unstable: Unstable = UnstablePoles.refuse,
    as_json: Json = False,
    *,
    finish: Finish | None = None,
) -> Decision:
    """Make the plan that the options ask for: calibrate, search for the ratio, certify.

    finish: what will be done to the pruned model, so that budgets count what that costs and saves as well.
    """
    prepare(None)
    check_writable(out)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    work = Pruning(
        load(checkpoint),
        None if method is None else method_named(method),
        data=None if calibrate is None else calibration_inputs(checkpoint, calibrate, sequences, data),
        limits=Limits(exclude, cap, floor.value, round_to),
        unstable=unstable.value,
        seed=seed,
        sequences=None,  # `sequences` of them were chosen at random already
    )

    def loss_of(points: float) -> Budget:
        split = _validation(checkpoint, task_name(checkpoint, validate, calibrate), examples, data)
        return budgets.max_loss(points, Accuracy(split, work, most_trials(work.states) + (finish is not None)))

    goals: Goals = {
        "--max-energy": (max_energy, budgets.max_energy),
        "--max-gain": (max_gain, budgets.max_gain),
        "--max-loss": (max_loss, loss_of),
        "--max-memory": (max_memory, budgets.max_memory),
        "--max-latency": (max_latency, lambda time: budgets.max_latency(time, first_sequence(work))),
    }
    wanted = _budgets(ratio, goals, work)
    found = search(wanted, work, finish) if wanted else None
    plan = work.plan(ratio or 0.0) if found is None else found.plan
    small = found.model if found else finish(work.shrink(plan), work.batches) if finish else None
    certificates = certify_plan(plan, work.systems, work.moments) if certify else {}
    return Decision(plan, work, certificates, out, as_json, found, small)


@dataclass(eq=False)
class Accuracy:
    """The accuracy on validation data of pruned models.

    Each is reported on stderr, with the time that the search may still take.
    """

    split: Split
    work: Pruning[Classifier]
    trials: int  # pruned models that may still come
    searching: bool = field(init=False, default=True)
    began: float = field(init=False)  # when the present trial did

    def __post_init__(self) -> None:
        """Say how many models will be evaluated at most."""
        self.began = monotonic()
        say(
            f"The whole model and at most {self.trials} pruned ones answer {self.examples:,} validation examples "
            "each; this may take minutes."
        )

    @property
    def examples(self) -> int:
        """How many there are to answer."""
        return len(self.split)

    def __call__(self, small: Classifier) -> float:
        """Return the share of right answers."""
        from ..training import evaluate

        accuracy = evaluate(small, self.split).accuracy
        if small is self.work.model:
            said = f"The whole model: {accuracy:.2%}"
        elif not self.searching:
            said = f"The model after recovery: {accuracy:.2%}"
        else:
            self.trials -= 1
            states = sum(system.states for system in read(small, unstable="keep").values())
            left = duration(self.trials * (monotonic() - self.began))
            said = f"{states:,} states left: {accuracy:.2%}; at most {self.trials} more to try, {left}"
        self.began = monotonic()
        say(said)
        return accuracy


def _budgets(ratio: float | None, goals: Goals, work: Pruning[Any]) -> list[Budget]:
    """Return the budgets that find the ratio, none where it was given; say what memory that takes."""
    asked = {word: (value, goal) for word, (value, goal) in goals.items() if value is not None}
    if (ratio is None) == (not asked):
        given = " and ".join([*(["--ratio"] if ratio is not None else []), *asked]) or "none"
        raise InputError(f"Say how far to prune with --ratio, or with one or more of {', '.join(goals)}; got {given}.")
    if work.memory > WORTH_SAYING:
        say(f"Planning takes up to {work.memory / 1e9:.1f} GB of memory.")
    return [goal(value) for value, goal in asked.values() if value is not None]


def recovering(recover: Recover = None, what: What = Learning.all) -> None:
    """Name the options of recovery that `prune` takes in addition to those of `decide`."""


def takes_options_of(*functions: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command be called with the options of other functions, without writing them down again.

    What a function takes by keyword alone is not for the command line.
    """
    signatures = [inspect.signature(function, eval_str=True) for function in functions]
    every = [
        parameter
        for signature in signatures
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]

    def widen(command: Callable[..., None]) -> Callable[..., None]:
        keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return command

    return widen


def calibration_inputs(
    checkpoint: Path, source: str, sequences: int, root: Path | None, doing: str = "Calibrating on"
) -> list[Any]:
    """Return batches of unlabelled inputs of a task, as the checkpoint was trained on it, or of a file."""
    from ..training.calibration_inputs import load_unlabelled

    batches = list(load_unlabelled(source, sequences, root, cards.task_parameters(checkpoint, source)))
    say(f"{doing} {count(batches):,} sequences of {source}.")
    return batches


def first_sequence(work: Pruning[Classifier]) -> Tensor:
    """Return one sequence of the calibration data, for a model of pairs two."""
    if work.batches is None:
        raise InputError("--max-latency times the model on the first sequence of --calibrate; give that as well.")
    first: Tensor = work.batches[0].x
    return first[: 2 if work.model.config.retrieval else 1]


def task_name(checkpoint: Path, validate: str | None, calibrate: str | None) -> str | None:
    """Return the task that --validate names, else the card, else --calibrate; None where none of them does."""
    named = validate or cards.read_card(checkpoint).get("task")
    return named or (calibrate if calibrate in tasks.found() else None)


def _validation(checkpoint: Path, name: str | None, examples: int, root: Path | None) -> Split:
    """Return so many of the validation data of a task."""
    if name is None:
        raise InputError(
            f"--max-loss needs validation data: {checkpoint} has no card that names a task; name one with --validate."
        )
    return fewer(cards.task_of(checkpoint, name).load("val", root), examples)
