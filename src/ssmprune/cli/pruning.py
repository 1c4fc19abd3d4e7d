"""Commands that look at a model, prune it, and let it learn the whole model's answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Group

from ..arrays import Real
from ..budgets import certify_model, milliseconds_of
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..files import check_writable
from ..methods.allocation import energy_normalised
from ..models import load, save
from ..planning.certificates import Certificate, certify
from ..planning.make import make_plan
from ..planning.plan import Plan
from ..pruning import read, shrink
from ..tasks import cards
from .deciding import PruningOptions, find_plan, timed_sequence
from .options import MORE, CalibrationOptions, Checkpoint, Out, Unstable, at_least, flag, prepare
from .output import Report, literal, say, table

if TYPE_CHECKING:
    from torch import Tensor

    from ..budgets import Found
    from ..models.classifier import Classifier
    from ..recovery import Recovered

PAIRS = "A conjugate pair counts as two states, here and in plans; config.states counts pairs."
RECOVERY_SEQUENCES = 8000
INSPECTED = {  # what `inspect` shows of a layer, with titles
    "layer": "layer",
    "kind": "kind",
    "states": "states",
    "memory_steps": "memory in steps, least and most",
    "last_scores": "LAST scores 10, 50, 90 %",
}
CERTIFIED = {  # what is shown of a certificate, with titles
    "layer": "layer",
    "gain": "layer's gain",
    "exact": "exact",
    "bound": "bound",
    "paper": "paper, layer",
    "paper_model": "paper, model",
    "measured": "on data",
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """How to read a model."""

    unstable: Unstable = "refuse"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PruneOptions(PruningOptions):
    """How far to prune, by which method, on which data, and what to do with the plan."""

    recover: bool = False
    """Then learn the whole model's answers, from the --calibrate inputs."""
    minutes: float = 5.0
    """Longest time that --recover may take."""
    plan: Annotated[Path | None, Parameter(group=MORE)] = None
    """Write the plan to this file; without --out only that."""
    from_plan: Annotated[Path | None, Parameter(group=MORE)] = None
    """Prune as this plan says, which was made for the same model."""

    def check(self) -> None:
        """Refuse options that need or exclude one another."""
        if self.out is None and self.plan is None:
            raise InputError("Say where to write the smaller model with --out, or its plan with --plan.")
        given = [name for name, value in _flatten(self).items() if value != _flatten(PruneOptions())[name]]
        others = [flag(name) for name in given if name not in ("out", "from_plan")]
        if self.from_plan is not None and others:
            raise InputError(f"--from-plan takes every decision from a plan; leave out {', '.join(others)}.")
        if self.recover and (self.calibration.calibrate is None or self.out is None):
            raise InputError("--recover learns from the inputs of --calibrate and writes to --out; give both as well.")
        _check_minutes(self.minutes)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecoverOptions(CalibrationOptions):
    """On which inputs to learn, and for how long."""

    out: Out
    calibrate: str = field()
    """A task, or a .npy file of inputs; labels are not needed."""
    minutes: float = 5.0
    """Longest time it may take."""
    sequences: Annotated[int, at_least(4), Parameter(group=MORE)] = RECOVERY_SEQUENCES
    """How many sequences to learn from."""


def inspect(checkpoint: Checkpoint, /, options: InspectOptions = InspectOptions()) -> Report:  # noqa: B008 (frozen)
    """Show the layers of a model: states, memory, and the spread of their scores."""
    model = load(checkpoint)
    systems = read(model, unstable=options.unstable)
    scores = make_plan(systems, 0).scores
    layers = [_describe(layer, system, scores[layer]) for layer, system in systems.items()]
    notes = ["; then ".join(model.history)] if model.history else []
    if any(system.states != system.n for system in systems.values()):
        notes.append(PAIRS)
    shown = table(str(checkpoint), layers, "\n".join(notes), INSPECTED)
    return Report({"layers": layers, "history": model.history}, shown)


def prune(checkpoint: Checkpoint, /, options: PruneOptions = PruneOptions()) -> Report:  # noqa: B008 (frozen)
    """Remove states and write a smaller model; with --calibrate by the surgeon, which can remove far more states.

    A budget, such as --max-loss, finds the ratio without recovery; if the recovered model breaks it, the model is kept
    as it was before. After an interruption, the same command resumes. --plan and --from-plan write and replay a plan.
    """
    options.check()
    prepare()
    for file in (options.out, options.plan):
        if file is not None:
            check_writable(file)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    if options.from_plan is not None and options.out is not None:
        plan, model = Plan.load(options.from_plan), load(checkpoint)
        _save(shrink(model, plan), model, checkpoint, options.out)
        return _report(plan, options.out)
    found = find_plan(checkpoint, options)
    if options.plan is not None:
        found.plan.save(options.plan)
    recovered = None
    if options.recover and options.out is not None:
        found, recovered = _recover(checkpoint, options, options.out, found)
    report, pruning = _report(found.plan, options.out or options.plan, found.notes), found.pruning
    if recovered is not None:
        report += Report({"recovery": recovered.facts()}, literal(recovered))
    if options.certify and recovered is not None:
        report += report_certificates(certify_model(pruning, recovered.model))
    elif options.certify:
        report += report_certificates(certify(found.plan, pruning.systems, pruning.moments))
    if options.out is None:
        return report
    _save(found.model, pruning.model, checkpoint, options.out)
    return report + _measure_gains(pruning.model, found.model, timed_sequence(checkpoint, pruning))


def recover(
    checkpoint: Checkpoint,
    whole: Annotated[Path, Parameter(help="The whole model it was pruned from, which teaches it.")],
    /,
    options: RecoverOptions,
) -> Report:
    """Let a pruned model learn the whole model's answers on unlabelled inputs; it never gets worse on held-out ones.

    After an interruption, the same command resumes.
    """
    prepare()
    _check_minutes(options.minutes)
    check_writable(options.out)
    small, model = load(checkpoint), load(whole)
    outcome = _learn(small, model, options.load(whole) or [], options.minutes, options.out)
    _save(outcome.model, small, checkpoint, options.out)
    return Report(outcome.facts() | {"out": str(options.out)}, literal(f"{outcome} -> {options.out}"))


def _recover(
    checkpoint: Path, options: PruneOptions, out: Path, found: Found[Classifier]
) -> tuple[Found[Classifier], Recovered[Classifier] | None]:
    """Recover the pruned model; a recovery that breaks a budget is discarded, with a message."""
    inputs = replace(options.calibration, sequences=RECOVERY_SEQUENCES).load(checkpoint) or []
    recovered = _learn(found.model, found.pruning.model, inputs, options.minutes, out)
    after = found.remeasure(recovered.model)
    if after.broken:
        say(f"After recovery, {'; '.join(after.broken)}. The pruned model is kept as it was before recovery.")
        return found, None
    return after, recovered


def _learn(small: Classifier, whole: Classifier, inputs: list[Any], minutes: float, out: Path) -> Recovered[Classifier]:
    """Let a model learn; a file beside the result lets the same command resume after an interruption."""
    from ..recovery import Recovery

    state = out.with_name(f"{out.name}.recovery")
    outcome = Recovery(small, whole, inputs).run(minutes, state=state)
    if not outcome.finished:
        raise KeyboardInterrupt
    state.unlink(missing_ok=True)
    return outcome


def _save(small: Classifier, before: Classifier, checkpoint: Path, out: Path) -> None:
    """Write a model with its card; warn if it was quantised and is so no longer, since its file then grows."""
    if before.grid is not None and small.grid is None:
        say(
            f"The model had weights of {before.grid.bits} bits; they are floats again, so its file is larger. "
            "Prune and recover first, then quantise."
        )
    save(small, out)
    cards.copy_card(checkpoint, out)


def _measure_gains(whole: Classifier, small: Classifier, x: Tensor) -> Report:
    """Measure bytes and milliseconds of a model before and after pruning."""
    from ..models.checkpoint import stored_bytes

    sizes = [stored_bytes(model) for model in (whole, small)]
    times = [milliseconds_of(model, (x,)) for model in (whole, small)]
    lines = [
        f"Tensors: {sizes[0]:,} -> {sizes[1]:,} bytes",
        f"Time for {len(x)} x {x.shape[1]:,} steps: {times[0]:.3g} -> {times[1]:.3g} ms on this machine",
    ]
    return Report({"bytes": sizes, "milliseconds": times}, Group(*map(literal, lines)))


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
    shown = table("Gain of the error in each layer's output", rows, caption, CERTIFIED)
    return Report({"certificates": facts}, shown)


def _describe(layer: str, system: DiagonalSystem, scores: Real) -> dict[str, Any]:
    """Return sizes of a layer, the memory 1/(1 - |pole|) of its fastest and slowest pole, quantiles of LAST scores."""
    memory = -1 / np.expm1(system.log_poles.real)
    return {
        "layer": layer,
        "kind": "MIMO" if system.channel is None else "multi-SISO",
        "width": system.inputs,
        "directions": system.directions,
        "states": system.states,
        "stored_states": system.n,
        "memory_steps": [float(memory.min()), float(memory.max())],
        "last_scores": np.quantile(np.exp(energy_normalised(scores)), [0.1, 0.5, 0.9]).tolist(),
    }


def _flatten(options: PruneOptions) -> dict[str, Any]:
    """Return options by name, those of calibration among them."""
    flat = asdict(options)
    flat |= flat.pop("calibration")
    return flat


def _check_minutes(minutes: float) -> None:
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is a time above 0; got {minutes:g}.")
