"""What `prune` and `deploy` share: how far to prune, by which method, on which data.

Annotations are evaluated here, as in `options`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from .. import budgets, tasks
from ..budgets import Finish, Found, most_trials, search
from ..errors import InputError, one_of
from ..methods import named
from ..models import load
from ..planning.make import Limits
from ..progress import duration
from ..pruning import Pruning
from ..tasks import cards
from ..tasks.task import Split, fewer
from .options import MORE, CalibrationOptions, Count, Unstable, at_least, flag
from .output import say

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.classifier import Classifier

ANNOUNCED_MEMORY = 100_000_000  # bytes
UNKNOWN_LENGTH = 1024  # steps of the sequence to time, if neither data nor the card tell
BUDGETS = ("max_energy", "max_gain", "max_loss", "max_memory", "max_latency")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PruningOptions:
    """How far to prune, by which method, on which data."""

    out: Annotated[Path | None, Parameter(alias="-o")] = None
    """Where to write the smaller model."""
    ratio: Annotated[float | None, Parameter(alias="-r")] = None
    """Share of all states to prune, from 0 to 1; or give one or more of the budgets below."""
    max_loss: float | None = None
    """Points of accuracy that may be lost on validation data."""
    max_energy: float | None = None
    """Largest share of its output energy any layer may lose."""
    max_memory: float | None = None
    """Megabytes that all tensors together may take."""
    max_latency: float | None = None
    """Milliseconds that one sequence may take, the first of --calibrate or a random one."""
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    method: Annotated[str | None, Parameter(alias="-m")] = None
    """A method from `ssmprune list`; by default last, or surgeon with --calibrate."""
    max_gain: Annotated[float | None, Parameter(group=MORE)] = None
    """Largest gain of any layer's error, as a share of the layer's gain."""
    validate: Annotated[str | None, Parameter(group=MORE)] = None
    """Task for --max-loss; by default the card's."""
    examples: Annotated[int, at_least(1000), Parameter(group=MORE)] = 2000
    """How many examples accuracy is measured on."""
    certify: Annotated[bool, Parameter(group=MORE)] = False
    """Also bound how far each layer's output can move."""
    exclude: Annotated[list[str], Parameter(group=MORE)] = field(default_factory=list)
    """A layer to leave whole; can be given more than once."""
    cap: Annotated[float, Parameter(group=MORE)] = 1.0
    """Largest share to prune of any one layer."""
    floor: Annotated[Literal["layer", "channel"], Parameter(group=MORE)] = "layer"
    """Keep at least one state in every layer or every channel."""
    round_to: Annotated[Count, Parameter(group=MORE)] = 1
    """Round the states kept in each layer up to a multiple of this."""
    unstable: Unstable = "refuse"

    @property
    def budgets(self) -> dict[str, float]:
        """The budgets that are given, by name."""
        return {name: limit for name in BUDGETS if (limit := getattr(self, name)) is not None}

    def task_name(self, checkpoint: Path) -> str | None:
        """Return the task that --validate names, else the card, else --calibrate; None where none of them does."""
        name: str | None = self.validate or cards.read_card(checkpoint).get("task")
        calibrate = self.calibration.calibrate
        return name or (calibrate if calibrate in tasks.found() else None)


def find_plan(checkpoint: Path, options: PruningOptions, finish: Finish | None = None) -> "Found[Classifier]":
    """Make the plan that the options ask for: calibrate, and search for the ratio within the budgets.

    finish: what will be done to the pruned model, so that budgets count what that costs and saves as well.
    """
    given = options.budgets
    pruning = Pruning(
        load(checkpoint),
        None if options.method is None else one_of("method", options.method, named()),
        data=options.calibration.load(checkpoint),
        limits=Limits(options.exclude, options.cap, options.floor, options.round_to),
        unstable=options.unstable,
        sequences=None,  # `sequences` of them were chosen at random already
    )
    if (options.ratio is None) == (not given):
        came = " and ".join(map(flag, ["ratio", *given])) if given else "none"
        words = ", ".join(map(flag, BUDGETS))
        raise InputError(f"Say how far to prune with --ratio, or with one or more of {words}; got {came}.")
    if pruning.memory > ANNOUNCED_MEMORY:
        say(f"Planning takes up to {pruning.memory / 1e9:.1f} GB of memory.")
    if options.ratio is not None:
        return Found(options.ratio, pruning.plan(options.ratio), {}, pruning, finish)
    others: dict[str, list[Any]] = {}  # what these budgets measure with
    if "max_loss" in given:
        others["max_loss"] = [_Accuracy(_validation(checkpoint, options), pruning, finished=finish is not None)]
    if "max_latency" in given:
        others["max_latency"] = [timed_sequence(checkpoint, pruning)]
    goals = [getattr(budgets, name)(limit, *others.get(name, ())) for name, limit in given.items()]
    return search(goals, pruning, finish)


def timed_sequence(checkpoint: Path, pruning: "Pruning[Classifier]") -> "Tensor":
    """Return the first calibration sequence, else a random one as long as the task's; for a model of pairs two."""
    import torch

    config = pruning.model.config
    count = 2 if config.retrieval else 1
    if pruning.batches is not None:
        first: Tensor = pruning.batches[0].x
        return first[:count]
    try:
        length = cards.task_of(checkpoint).length
    except InputError:  # no card, or a task that is not known here
        length = UNKNOWN_LENGTH
    if config.tokens:
        return torch.randint(config.inputs, (count, length))
    return torch.randn(count, length, config.inputs)


def _validation(checkpoint: Path, options: PruningOptions) -> Split:
    """Return the validation data of the task, as many as are asked for."""
    name = options.task_name(checkpoint)
    if name is None:
        raise InputError(
            f"--max-loss needs validation data: {checkpoint} has no card that names a task; name one with --validate."
        )
    return fewer(cards.task_of(checkpoint, name).load("val", options.calibration.data), options.examples)


@dataclass(eq=False)
class _Accuracy:
    """The accuracy of pruned models on validation data.

    Each is reported on stderr, with the time that the search may still take.
    """

    split: Split
    pruning: "Pruning[Classifier]"
    finished: bool  # whether the search also measures the unpruned model with what else is done to it
    trials_left: int = field(init=False)
    began: float = field(init=False)  # when the present trial did

    def __post_init__(self) -> None:
        self.trials_left, self.began = most_trials(self.pruning.states) + self.finished, monotonic()
        say(
            f"The whole model and at most {self.trials_left} pruned ones answer {self.examples:,} validation examples "
            "each; this may take minutes."
        )

    @property
    def examples(self) -> int:
        return len(self.split)

    def __call__(self, small: "Classifier") -> float:
        from ..training import evaluate

        accuracy = evaluate(small, self.split).accuracy
        if small is self.pruning.model:
            say(f"The whole model: {accuracy:.2%}")
        elif small.history and small.history[-1].startswith("recovered"):  # the search has ended
            say(f"The model after recovery: {accuracy:.2%}")
        else:
            self.trials_left -= 1
            left = duration(self.trials_left * (monotonic() - self.began))
            states = sum(small.layer_states.values())
            say(f"{states:,} states left: {accuracy:.2%}; at most {self.trials_left} more to try, {left}")
        self.began = monotonic()
        return accuracy
