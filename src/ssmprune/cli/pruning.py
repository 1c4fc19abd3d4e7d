"""Commands that look at a model, prune it, and let it learn the whole model's answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Group
from rich.table import Table

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
from .deciding import PruningOptions, find_plan, first_sequence
from .options import MORE, CalibrationOptions, Checkpoint, Out, Unstable, at_least, prepare
from .output import Report, literal, say, table

if TYPE_CHECKING:
    from torch import Tensor

    from ..budgets import Found
    from ..models.classifier import Classifier
    from ..recovery import Recovered

PAIRS = "A conjugate pair counts as two states, here and in plans; config.states counts pairs."
UNKNOWN_LENGTH = 1024  # steps of the sequence to time, if neither data nor the card tell
RECOVERY_SEQUENCES = 8000
LEARNING = "Learning from"


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
        others = [f"--{name.replace('_', '-')}" for name in given if name not in ("out", "from_plan")]
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
    rows = [
        {
            "layer": layer["layer"],
            "kind": layer["kind"],
            "states": layer["states"],
            "memory in steps": "{:.3g} to {:.3g}".format(*layer["memory_steps"]),
            "LAST scores 10, 50, 90 %": "{:.1e} {:.1e} {:.1e}".format(*layer["last_scores"]),
        }
        for layer in layers
    ]
    paired = any(layer["states"] != layer["stored_states"] for layer in layers)
    notes = [*(["; then ".join(model.history)] if model.history else []), *([PAIRS] if paired else [])]
    return Report({"layers": layers, "history": model.history}, table(str(checkpoint), rows, "\n".join(notes)))


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
        return _replay(checkpoint, Plan.load(options.from_plan), options.out)
    found = find_plan(checkpoint, options)
    if options.plan is not None:
        found.plan.save(options.plan)
    if options.out is None:
        certificates = _certify_plan(found) if options.certify else {}
        return _report(found.plan, options.plan, certificates, found.notes)
    found, recovered = _recover(checkpoint, options, found) if options.recover else (found, None)
    small = recovered.model if recovered else found.pruning.shrink(found.plan)
    certificates = {}
    if options.certify:
        certificates = certify_model(found.pruning, small) if recovered else _certify_plan(found)
    _save(small, found.pruning.model, checkpoint, options.out)
    gains = _measure_gains(found.pruning.model, small, first_sequence(found.pruning), checkpoint)
    report = _report(found.plan, options.out, certificates, found.notes, recovered)
    return Report(report.facts | gains.facts, Group(report.readable, gains.readable))


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
    outcome = _learn(small, model, options.load(whole, doing=LEARNING) or [], options.minutes, options.out)
    _save(outcome.model, small, checkpoint, options.out)
    facts = outcome.facts() | {"out": str(options.out)}
    return Report(facts, literal(f"{outcome} -> {options.out}"))


def _replay(checkpoint: Path, plan: Plan, out: Path) -> Report:
    """Prune a model as a plan says that was made for it."""
    model = load(checkpoint)
    _save(shrink(model, plan), model, checkpoint, out)
    return _report(plan, out)


def _recover(
    checkpoint: Path, options: PruneOptions, found: Found[Classifier]
) -> tuple[Found[Classifier], Recovered[Classifier] | None]:
    """Recover the pruned model; a recovery that breaks a budget is discarded, with a message."""
    assert options.out is not None
    inputs = options.calibration.load(checkpoint, RECOVERY_SEQUENCES, LEARNING) or []
    small = found.pruning.shrink(found.plan)
    recovered = _learn(small, found.pruning.model, inputs, options.minutes, options.out)
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


def _measure_gains(whole: Classifier, small: Classifier, x: Tensor | None, checkpoint: Path) -> Report:
    """Measure bytes and milliseconds of a model before and after pruning, on a sequence or a random one."""
    from ..models.checkpoint import stored_bytes

    if x is None:
        x = _random_sequence(whole, checkpoint)
    sizes = [stored_bytes(model) for model in (whole, small)]
    times = [milliseconds_of(model, (x,)) for model in (whole, small)]
    lines = [
        f"Tensors: {sizes[0]:,} -> {sizes[1]:,} bytes",
        f"Time for {len(x)} x {x.shape[1]:,} steps: {times[0]:.3g} -> {times[1]:.3g} ms on this machine",
    ]
    return Report({"bytes": sizes, "milliseconds": times}, Group(*map(literal, lines)))


def _random_sequence(model: Classifier, checkpoint: Path) -> Tensor:
    """Return a random sequence, for a model of pairs two, as long as those of the task."""
    import torch

    try:
        length = cards.task_of(checkpoint).length
    except InputError:  # no card, or a task that is not known here
        length = UNKNOWN_LENGTH
    shape = (2 if model.config.retrieval else 1, length)
    return (
        torch.randint(model.config.inputs, shape) if model.config.tokens else torch.randn(*shape, model.config.inputs)
    )


def _report(
    plan: Plan,
    out: Path | None,
    certificates: dict[str, Certificate] | None = None,
    notes: Sequence[str] = (),
    recovered: Recovered[Any] | None = None,
) -> Report:
    """Report what stays of each layer, how far its output may move, how recovery went and what budgets came to."""
    rows = plan.rows()
    facts: dict[str, Any] = {
        "method": plan.method,
        "ratio": plan.ratio,
        "reached": plan.reached,
        "sequences": plan.sequences,
        "layers": rows,
        "out": str(out),
    }
    readable = [row | {"pruned": f"{row['pruned']:.1%}"} for row in rows]
    parts: list[Any] = [table(f"{plan.title} -> {out}", readable)]
    if certificates:
        facts["certificates"] = certificate_facts(certificates)
        parts.append(certificate_table(certificates))
    if recovered:
        facts["recovery"] = recovered.facts()
        parts.append(literal(recovered))
    facts["budgets"] = list(notes)
    return Report(facts, Group(*parts, *map(literal, notes)))


def _certify_plan(found: Found[Classifier]) -> dict[str, Certificate]:
    return certify(found.plan, found.pruning.systems, found.pruning.moments)


def certificate_facts(certificates: dict[str, Certificate]) -> dict[str, Any]:
    """Return certificates as JSON and cards hold them."""
    return {layer: asdict(certificate) for layer, certificate in certificates.items()}


def certificate_table(certificates: dict[str, Certificate]) -> Table:
    """Return how far the output of each layer may move, without the columns that have nothing to say."""
    caption = "exact and bound hold for every input; the paper's expressions for layer and model do not"
    rows = [_certificate_row(*item) for item in certificates.items()]
    empty = {name for name in rows[0] if not any(row[name] for row in rows)}
    rows = [{name: text for name, text in row.items() if name not in empty} for row in rows]
    return table("Gain of the error in each layer's output", rows, caption)


def _certificate_row(layer: str, certificate: Certificate) -> dict[str, str]:
    figures = {
        "layer's gain": certificate.gain,
        "exact": certificate.exact,
        "bound": certificate.bound,
        "paper, layer": certificate.paper,
        "paper, model": certificate.paper_model,
    }
    written = {name: "" if value is None else f"{value:.3g}" for name, value in figures.items()}
    measured = "" if certificate.measured is None else f"{certificate.measured:.2%}"
    return {"layer": layer, **written, "on data": measured}


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
    """Return options by name, those of nested dataclasses among them."""
    flat: dict[str, Any] = {}
    for name, value in asdict(options).items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def _check_minutes(minutes: float) -> None:
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is a time above 0; got {minutes:g}.")
