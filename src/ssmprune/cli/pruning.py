"""Commands that look at a model, prune it, and let it learn the whole model's answers.

Annotations are evaluated here, as in `options`, because `deploy` inherits options from `PruningOptions`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter, Token
from rich.console import Group

from .. import budgets, tasks
from ..arrays import Real
from ..budgets import Finish, Found, certify_model, search, upwards
from ..calibration.data import in_slices
from ..core.system import DiagonalSystem
from ..errors import InputError, one_of
from ..files import check_writable, existing
from ..methods import named
from ..methods.allocation import energy_normalised
from ..models import load, save
from ..planning.certificates import Certificate, certify
from ..planning.make import Limits, check_ratio, make_plan
from ..planning.plan import Plan
from ..progress import duration
from ..pruning import Pruning, check_operations, read, shrink
from ..tasks import cards
from ..tasks.task import Split, fewer
from .options import MORE, CalibrationOptions, Checkpoint, Count, Options, Out, Unstable, at_least, flag, prepare
from .output import Report, literal, say, table

if TYPE_CHECKING:
    from torch import Tensor

    from ..calibration.data import Sequences
    from ..models.classifier import Classifier
    from ..recovery import Recovered

PAIRS = "A conjugate pair counts as two states, here and in plans; config.states counts pairs."
RECOVERY_SEQUENCES = 1_000_000  # all there are, of most data
ANNOUNCED_MEMORY = 100_000_000  # bytes
SOON_COMPILED = 1_500_000  # bytes of a model that takes seconds to compile
NEARLY_ALL = 0.95  # of the variance of answers
COSTS = ("bytes", "operations")
UNKNOWN_LENGTH = 1024  # steps of the sequence to time, if neither data nor the card tell
BUDGETS = ("max_energy", "max_gain", "max_error", "max_loss", "max_memory", "max_latency")
INSPECTED = {  # what `inspect` shows of a layer, with titles
    "layer": "layer",
    "kind": "kind",
    "states": "states",
    "memory_steps": "steps remembered, fewest and most",
    "last_scores": "LAST scores 10, 50, 90 %",
}
EXPLAINED = (
    "Steps remembered: until a state has forgotten two thirds of an input, for the fastest and the slowest state.",
    "LAST scores: those that 10, 50 and 90 % of a layer's states stay below; LAST prunes the lowest of all layers.",
)
CERTIFIED = {  # what is shown of a certificate, with titles
    "layer": "layer",
    "gain": "layer's gain",
    "exact": "exact",
    "bound": "bound",
    "paper": "paper, layer",
    "paper_model": "paper, model",
    "measured": "on data",
}


@dataclass(frozen=True, kw_only=True)
class InspectOptions(Options):
    """How to read a model."""

    unstable: Unstable = "refuse"


def parse_width(_: Any, tokens: Sequence[Token]) -> float | str:
    """Read a share, or "auto"."""
    text = tokens[0].value
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise ValueError(f'expected a share from 0 to 1, or "auto"; got {text!r}.') from None


Width = Annotated[float | Literal["auto"] | None, Parameter(converter=parse_width)]


@dataclass(frozen=True, kw_only=True)
class PruningOptions(Options):
    """How far to prune, by which method, on which data."""

    out: Annotated[Path | None, Parameter(alias="-o")] = None
    """Where to write the smaller model."""
    ratio: Annotated[float | None, Parameter(alias="-r")] = None
    """Share of all states to prune, from 0 to 1; or give one or more of the budgets below."""
    width: Width = 0.0
    """Share of the features to prune as well, on data of --calibrate; "auto" lets budgets weigh both."""
    operations: float | None = None
    """In place of a ratio: the share of a step's operations that stays; states and features go."""
    max_loss: float | None = None
    """Points of accuracy that may be lost on validation data."""
    max_energy: float | None = None
    """Largest share of its output energy any layer may lose."""
    max_memory: float | None = None
    """Megabytes that all tensors together may take."""
    max_latency: float | None = None
    """Milliseconds that one sequence may take, the first of --calibrate or a random one."""
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    recover: bool = False
    """Then learn the whole model's answers, from the --calibrate inputs."""
    minutes: float = 5.0
    """Longest time that a recovery may take."""
    method: Annotated[str | None, Parameter(alias="-m")] = None
    """A method from `ssmprune list`; by default last, or surgeon with --calibrate."""
    max_gain: Annotated[float | None, Parameter(group=MORE)] = None
    """Largest gain of any layer's error, as a share of the layer's gain."""
    validate: Annotated[str | None, Parameter(group=MORE)] = None
    """Task for --max-loss; by default the card's."""
    max_error: Annotated[float | None, Parameter(group=MORE)] = None
    """Share of the energy of the model's answers that may change on held-out --calibrate inputs."""
    confidence: Annotated[float, Parameter(group=MORE)] = 0.9
    """How sure it is that --max-loss holds on further examples."""
    examples: Annotated[int | None, at_least(1000), Parameter(group=MORE)] = None
    """How many examples accuracy is measured on; all unless given."""
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

    def check_amount(self) -> dict[str, float]:
        """Return the budgets that are given, by name; refuse options that do not say how far to prune in one way."""
        given = {name: limit for name in BUDGETS if (limit := getattr(self, name)) is not None}
        shares = [name for name in ("ratio", "operations") if getattr(self, name) is not None]
        for name in shares:
            check_ratio(getattr(self, name), name)
        if len(shares) + bool(given) != 1:
            raise InputError(
                "Say how far to prune with --ratio, with --operations, or with one or more of "
                f"{', '.join(map(flag, BUDGETS))}; got {' and '.join(map(flag, [*shares, *given])) or 'none'}."
            )
        if self.certify and (self.width or self.operations is not None):
            raise InputError("--certify compares layers state by state, so all features must stay: leave out --width.")
        return given

    def chosen_width(self, budgeted: Mapping[str, float]) -> float | Literal["auto"]:
        """Return the width, or what suits these budgets where none was asked for."""
        if self.operations is not None:
            return "auto"
        if self.width is not None:
            return self.width
        of_layers = self.certify or any(getattr(budgets, name).of_layers for name in budgeted)
        return "auto" if budgeted and self.calibration.calibrate is not None and not of_layers else 0.0

    def check_recovery(self) -> None:
        """Refuse a recovery without inputs, or without a file to write to."""
        if self.recover and (self.calibration.calibrate is None or self.out is None):
            raise InputError("--recover learns from the inputs of --calibrate and writes to --out; give both as well.")
        _check_minutes(self.minutes)

    def task_name(self, checkpoint: Path) -> str | None:
        """Return the task that --validate names, else the card, else --calibrate; None where none of them does."""
        name: str | None = self.validate or cards.read_card(checkpoint).get("task")
        calibrate = self.calibration.calibrate
        return name or (calibrate if calibrate in tasks.found() else None)


@dataclass(frozen=True, kw_only=True)
class PruneOptions(PruningOptions):
    """How far to prune, by which method, on which data, and what to do with the plan."""

    plan: Annotated[Path | None, Parameter(group=MORE)] = None
    """Write the plan to this file; without --out only that."""
    from_plan: Annotated[Path | None, Parameter(group=MORE)] = None
    """Prune as this plan says, which was made for the same model."""

    def check(self) -> None:
        """Refuse options that need or exclude one another."""
        if self.out is None and self.plan is None:
            raise InputError("Say where to write the smaller model with --out, or its plan with --plan.")
        mine, usual = ({**vars(options), **vars(options.calibration)} for options in (self, PruneOptions()))
        given = [name for name in mine if mine[name] != usual[name]]
        others = [flag(name) for name in given if name not in ("out", "from_plan", "calibration")]
        if self.from_plan is not None and others:
            raise InputError(f"--from-plan takes every decision from a plan; leave out {', '.join(others)}.")
        self.check_recovery()


@dataclass(frozen=True, kw_only=True)
class RecoverOptions(CalibrationOptions):
    """On which inputs to learn, and for how long."""

    out: Out
    calibrate: str = field()
    """A task, or a .npy file of inputs; labels are not needed."""
    minutes: float = 5.0
    """Longest time it may take."""
    sequences: Annotated[int, at_least(4), Parameter(group=MORE)] = RECOVERY_SEQUENCES
    """How many sequences to learn from at most."""


def inspect(checkpoint: Checkpoint, /, options: InspectOptions = InspectOptions()) -> Report:  # noqa: B008 (frozen)
    """Show the layers of a model, what its parts cost, and how much of that pruning can save."""
    model = load(existing(checkpoint))  # a missing file is told before torch is imported
    systems = read(model, unstable=options.unstable)
    scores = make_plan(systems, 0).scores
    layers = [_describe(layer, system, scores[layer]) for layer, system in systems.items()]
    notes = ["; then ".join(model.history)] if model.history else []
    if any(system.states != system.n for system in systems.values()):
        notes.append(PAIRS)
    notes += EXPLAINED
    shown = table(str(checkpoint), [_readable(layer) for layer in layers], "\n".join(notes), INSPECTED)
    return Report({"layers": layers, "history": model.history}, shown) + _report_parts(model)


def prune(checkpoint: Checkpoint, /, options: PruneOptions = PruneOptions()) -> Report:  # noqa: B008 (frozen)
    """Remove states, and features too, and write a smaller model; with --calibrate by the surgeon, which goes further.

    A budget, such as --max-loss, finds the ratio without recovery; if the recovered model breaks it, the model is kept
    as it was before. After an interruption, the same command resumes. --plan and --from-plan write and replay a plan.
    """
    options.check()
    prepare(checkpoint)
    for file in filter(None, (options.out, options.plan)):
        check_writable(file)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    if options.from_plan is not None and options.out is not None:
        plan, model = Plan.load(options.from_plan), load(checkpoint)
        small = shrink(model, plan)
        _save(small, model, checkpoint, options.out)
        return _report(plan, options.out) + _measure_gains(model, small, timed_sequence(checkpoint, model))
    found = find_plan(checkpoint, options)
    if options.plan is not None:
        found.plan.save(options.plan)
    recovered = None
    if options.recover and options.out is not None:
        found, recovered = recover_found(checkpoint, options, options.out, found)
    report, pruning = _report(found.plan, options.out or options.plan, found.notes), found.pruning
    if recovered is not None:
        report += Report({"recovery": recovered.facts()}, literal(recovered))
    if options.certify:
        of_plan = None if recovered else certify(found.plan, pruning.systems, pruning.moments)
        report += report_certificates(of_plan or certify_model(pruning, found.model))
    if options.out is None:
        return report
    _save(found.model, pruning.model, checkpoint, options.out)
    if options.recover:
        forget_recoveries(options.out)
    report += _measure_gains(pruning.model, found.model, timed_sequence(checkpoint, pruning.model, pruning.batches))
    return report + _note_needless_states(pruning)


def recover(
    checkpoint: Checkpoint,
    whole: Annotated[Path, Parameter(help="The whole model it was pruned from, which teaches it.")],
    /,
    options: RecoverOptions,
) -> Report:
    """Let a pruned model learn the whole model's answers on unlabelled inputs; it never gets worse on held-out ones.

    After an interruption, the same command resumes.
    """
    prepare(checkpoint, whole)
    _check_minutes(options.minutes)
    check_writable(options.out)
    small, model = load(checkpoint), load(whole)
    state = _recovery_states(options.out)[0]
    outcome = _learn(small, model, options.load(whole) or [], options.minutes, state)
    _save(outcome.model, small, checkpoint, options.out)
    state.unlink(missing_ok=True)
    return Report(outcome.facts() | {"out": str(options.out)}, literal(f"{outcome} -> {options.out}"))


def find_plan(checkpoint: Path, options: PruningOptions, finish: Finish | None = None) -> "Found[Classifier]":
    """Make the plan that the options ask for: calibrate, and search for the ratio within the budgets.

    finish: what will be done to the pruned model, so that budgets count what that costs and saves as well.
    """
    given = options.check_amount()
    pruning = Pruning(
        load(checkpoint),
        None if options.method is None else one_of("method", options.method, named()),
        width=options.chosen_width(given),
        data=options.calibration.load(checkpoint),
        limits=Limits(options.exclude, options.cap, options.floor, options.round_to),
        unstable=options.unstable,
        sequences=None,  # `sequences` of them were chosen at random already
    )
    ratio = options.ratio if options.operations is None else 1 - options.operations
    if pruning.memory > ANNOUNCED_MEMORY:
        say(f"Planning takes up to {pruning.memory / 1e9:.1f} GB of memory.")
    if ratio is not None:
        plan = pruning.plan(ratio)
        if options.operations is not None:
            check_operations(pruning.shrink(plan), pruning.model, options.operations)
        return Found(ratio, plan, {}, pruning, finish)
    others: dict[str, list[Any]] = {}  # what these budgets measure with
    if "max_loss" in given:
        trials = len(upwards(pruning.states)) + (finish is not None)  # the unpruned model may be finished as well
        others["max_loss"] = [_RightAnswers(_validation(checkpoint, options), pruning, trials), options.confidence]
    if "max_latency" in given:
        others["max_latency"] = [timed_sequence(checkpoint, pruning.model, pruning.batches)]
    goals = [getattr(budgets, name)(limit, *others.get(name, ())) for name, limit in given.items()]
    return search(goals, pruning, finish)


def timed_sequence(checkpoint: Path, model: "Classifier", batches: "list[Sequences] | None" = None) -> "Tensor":
    """Return the first calibration sequence, else a random sequence of the task's length; two for a model of pairs."""
    import torch

    config = model.config
    count = 2 if config.retrieval else 1
    if batches is not None:
        return batches[0].x[:count]
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
class _RightAnswers:
    """Which answers to validation data are right; the accuracy goes to stderr, with the time that may be left."""

    split: Split
    pruning: "Pruning[Classifier]"
    trials_left: int
    began: float = field(default_factory=monotonic)  # when the present trial did

    def __post_init__(self) -> None:
        most, examples = self.trials_left, f"{len(self.split):,} validation examples"
        say(f"The whole model and at most {most} pruned ones answer {examples} each; this may take minutes.")

    def __call__(self, small: "Classifier") -> Real:
        from ..models.checkpoint import parameters
        from ..training.evaluation import right_answers

        accuracy, whole = (right := right_answers(small, self.split)).mean(), self.pruning.model
        left = f"{parameters(small):,} parameters left"
        if small is whole:
            say(f"The whole model: {accuracy:.2%}")
        elif any(line.startswith("recovered") for line in small.history[len(whole.history) :]):  # the search has ended
            say(f"{left} after recovery: {accuracy:.2%}")
        else:
            self.trials_left -= 1
            time = duration(self.trials_left * (monotonic() - self.began))
            say(f"{left}: {accuracy:.2%}; at most {self.trials_left} more to try, {time}")
        self.began = monotonic()
        return right


def recover_found(
    checkpoint: Path, options: PruningOptions, out: Path, found: "Found[Classifier]", *, further: bool = False
) -> "tuple[Found[Classifier], Recovered[Classifier] | None]":
    """Recover the pruned model, then finish it; a recovery that breaks a budget is discarded, with a message.

    further: also what is pruned further then, and recovered again, as long as budgets are kept.
    """
    inputs = replace(options.calibration, sequences=RECOVERY_SEQUENCES).load(checkpoint) or []
    states = _recovery_states(out)
    outcomes: list[Recovered[Classifier]] = []
    if not states[0].exists():
        forget_recoveries(out)  # later ones are of another run

    def learn(small: "Classifier") -> "Classifier":
        state = states[len(outcomes)]
        outcomes.append(_learn(small, found.pruning.model, inputs, options.minutes, state))
        return outcomes[-1].model

    best, recovered = found, None
    for after in found.recoveries(learn):
        if after.broken:
            say(f"After recovery, {'; '.join(after.broken)}. The model is kept as it was before.")
            break
        best, recovered = after, outcomes[-1]
        if not further:
            break
    return best, recovered


def forget_recoveries(out: Path) -> None:
    """Remove what recoveries resume from: once their model is written, as until then the same command needs it."""
    for state in _recovery_states(out):
        state.unlink(missing_ok=True)


def _recovery_states(out: Path) -> list[Path]:
    return [out.with_name(f"{out.name}.recovery{number or ''}") for number in range(1 + len(budgets.STRIDES))]


def _learn(
    small: "Classifier", whole: "Classifier", inputs: list[Any], minutes: float, state: Path
) -> "Recovered[Classifier]":
    """Let a model learn; the file `state` lets the same command resume after an interruption."""
    from ..recovery import Recovery

    outcome = Recovery(small, whole, inputs).run(minutes, state=state)
    if not outcome.finished:
        raise KeyboardInterrupt
    return outcome


def _save(small: "Classifier", before: "Classifier", checkpoint: Path, out: Path) -> None:
    """Write a model with its card; warn if it was quantised and is so no longer, since its file then grows."""
    if before.grid is not None and small.grid is None:
        say(
            f"The model had weights of {before.grid.bits} bits; they are floats again, so its file is larger. "
            "Prune and recover first, then quantise."
        )
    save(small, out)
    cards.copy_card(checkpoint, out)


def _measure_gains(whole: "Classifier", small: "Classifier", x: "Tensor") -> Report:
    """Count bytes and operations of a model before and after pruning, and measure its speed if it is soon compiled."""
    from ..deploy.compiled import choose_engine, forward
    from ..models.checkpoint import stored_bytes
    from ..models.costs import operations
    from ..sweeps.timing import speeds_in_turns

    sizes = [stored_bytes(model) for model in (whole, small)]
    costs = [operations(model.config) for model in (whole, small)]
    lines, speeds = [f"Tensors: {_compare(sizes)} bytes", f"Operations of a step: {_compare(costs)}"], None
    if sizes[0] <= SOON_COMPILED and choose_engine("auto") == "compiled":
        with forward(whole, "compiled") as before, forward(small, "compiled") as after:
            speeds = speeds_in_turns([before, after], x)
        lines.append(f"Steps per second in C, whole sequences: {_compare(speeds)} on this machine")
    facts = {"bytes": sizes, "operations": costs, "steps_per_second": speeds}
    return Report(facts, Group(*map(literal, lines)))


def _compare(pair: Sequence[float]) -> str:
    return " -> ".join(f"{figure:,.0f}" for figure in pair)


def _note_needless_states(pruning: "Pruning[Classifier]") -> Report:
    """Say so if a pair of states in each layer does nearly all that all of them do, on some calibration inputs."""
    import torch

    from ..models.checkpoint import stored_bytes

    large = stored_bytes(pruning.model) > SOON_COMPILED
    if pruning.batches is None or large or pruning.width or pruning.limits != Limits([], 1.0, "layer", 1):
        return Report({}, Group())
    models = pruning.model, pruning.shrink(pruning.plan(1.0))
    with torch.no_grad():
        slices = list(in_slices(pruning.batches, pruning.model))
        before, after = (torch.cat([model(*part).flatten(0, -2) for part in slices]) for model in models)
    spread = float((before - before.mean(0)).square().sum())
    stays = 1 - float((before - after).square().sum()) / spread if spread else 0.0
    if not stays >= NEARLY_ALL:  # or NaN, of a model with unstable poles
        return Report({}, Group())
    line = (
        f"With a single pair of states in each layer, {stays:.0%} of what sets its answers apart stays: on these "
        "inputs the model hardly needs its states. Try --ratio 1, or --width."
    )
    return Report({"kept_by_one_pair": stays}, literal(line))


def _report(plan: Plan, out: Path | None, notes: Sequence[str] = ()) -> Report:
    """Report what stays of each layer, and what budgets came to."""
    facts = {
        "method": plan.method,
        "ratio": plan.ratio,
        "reached": plan.reached,
        "sequences": plan.sequences,
        "layers": plan.rows(),
        "out": str(out),
        "budgets": list(notes),
    }
    rows = [row | {"pruned": f"{row['pruned']:.1%}"} for row in plan.rows()]
    return Report(facts, Group(table(f"{plan.title} -> {out}", rows), *map(literal, notes)))


def report_certificates(certificates: dict[str, Certificate]) -> Report:
    """Report how far the output of each layer may move."""
    facts = {layer: asdict(certificate) for layer, certificate in certificates.items()}
    caption = "exact and bound hold for every input; the paper's expressions for layer and model do not"
    rows = [{"layer": layer, **figures} for layer, figures in facts.items()]
    return Report({"certificates": facts}, table("Gain of the error in each layer's output", rows, caption, CERTIFIED))


def _describe(layer: str, system: DiagonalSystem, scores: Real) -> dict[str, Any]:
    """Return sizes of a layer, the memory 1/(1 - |pole|) of its fastest and slowest pole, quantiles of LAST scores."""
    memory = -1 / np.expm1(system.log_poles.real)
    quantiles = np.quantile(np.exp(energy_normalised(scores)), [0.1, 0.5, 0.9]).tolist() if system.n else []
    return {
        "layer": layer,
        "kind": "MIMO" if system.channel is None else "multi-SISO",
        "width": system.inputs,
        "directions": system.directions,
        "states": system.states,
        "stored_states": system.n,
        "memory_steps": [float(memory.min()), float(memory.max())] if system.n else [],
        "last_scores": quantiles,
    }


def _readable(layer: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a layer with as many digits as one reads."""
    memory = " to ".join(f"{steps:,.0f}" if steps >= 10 else f"{steps:.1f}" for steps in layer["memory_steps"])
    return layer | {"memory_steps": memory, "last_scores": " ".join(f"{score:.2g}" for score in layer["last_scores"])}


def _report_parts(model: "Classifier") -> Report:
    """Report bytes and operations of a model's parts, and what shares of them go with its states and with its width."""
    from ..models.checkpoint import stored_parts
    from ..models.costs import parts

    stored, costs = stored_parts(model), parts(model.config)
    rows: list[dict[str, Any]] = [
        {
            "part": name,
            "bytes": stored[name],
            "operations": part.operations,
            "states": part.of_states,
            "width": part.of_features or not part.operations,  # the table of tokens is looked up, and as wide
        }
        for name, part in costs.items()
        if stored[name] or part.operations
    ]
    shares = {
        size: {kind: sum(row[kind] for row in rows if row[size]) / sum(row[kind] for row in rows) for kind in COSTS}
        for size in ("states", "width")
    }
    said = {size: " and ".join(f"{share[kind]:.0%} of the {kind}" for kind in COSTS) for size, share in shares.items()}
    caption = f"{said['states']} go with the states (--ratio), {said['width']} with the width (--width)."
    readable = [row | {size: "yes" if row[size] else "no" for size in shares} for row in rows]
    titles = {"operations": "operations of a step", "states": "goes with states", "width": "with width"}
    shown = table("What a step costs", readable, caption, {name: titles.get(name, name) for name in rows[0]})
    return Report({"parts": rows, "shares": shares}, shown)


def _check_minutes(minutes: float) -> None:
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is a time above 0; got {minutes:g}.")
