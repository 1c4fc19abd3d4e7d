"""The command that lets a pruned model learn the whole model's answers, and what `prune --recover` shares with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..budgets import MaxLoss
from ..files import check_writable
from ..models import load, save
from ..tasks import cards
from .common import (
    Checkpoint,
    Data,
    Json,
    Module,
    Out,
    Threads,
    app,
    literal,
    prepare,
    say,
    say_if_floats_again,
    show,
)
from .failures import INTERRUPTED
from .planning import Accuracy, Decision, Learning, What, calibration_inputs

if TYPE_CHECKING:
    from ..models.classifier import Classifier
    from ..recovery import Recovered

SEQUENCES = 8000
MINUTES = 5.0
LEARNING = "Learning from"


@app.command()
def recover(
    checkpoint: Checkpoint,
    whole: Annotated[Path, typer.Argument(help="The whole model it was pruned from, which teaches it.")],
    out: Out,
    calibrate: Annotated[
        str, typer.Option("--calibrate", help="A task, or a .npy file of inputs; labels are not needed.")
    ],
    minutes: Annotated[float, typer.Option("--minutes", help="Longest time it may take.")] = MINUTES,
    what: What = Learning.all,
    sequences: Annotated[int, typer.Option("--sequences", min=4, help="How many sequences to learn from.")] = SEQUENCES,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for the order of the inputs.")] = 0,
    data: Data = None,
    module: Module = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Let a pruned model learn the whole model's answers on unlabelled inputs; it never gets worse on held-out ones.

    After an interruption, the same command resumes.
    """
    prepare(threads)
    check_writable(out)
    from ..recovery import Recovery

    small, model = load(checkpoint), load(whole)
    state = state_of(out)
    unlabelled = calibration_inputs(whole, calibrate, sequences, data, LEARNING)
    recovery = Recovery(small, model, unlabelled, what=what.value, seed=seed)
    outcome = recovery.run(minutes, state=state)
    stop_if_asked(outcome)
    say_if_floats_again(small, outcome.model)
    save(outcome.model, out)
    cards.copy_card(checkpoint, out)
    state.unlink(missing_ok=True)
    show(outcome.facts() | {"out": str(out)}, as_json, literal(f"{outcome} -> {out}"))


def recover_decision(
    decision: Decision, small: Classifier, options: dict[str, Any], minutes: float, what: Learning
) -> tuple[Decision, Recovered[Classifier] | None]:
    """Let a pruned model recover; a recovery that breaks a budget is discarded, with a message."""
    from ..recovery import Recovery

    state = state_of(decision.out)
    unlabelled = calibration_inputs(options["checkpoint"], options["calibrate"], SEQUENCES, options["data"], LEARNING)
    recovery = Recovery(small, decision.work.model, unlabelled, what=what.value, seed=options["seed"])
    outcome = recovery.run(minutes, state=state)
    stop_if_asked(outcome)
    state.unlink(missing_ok=True)
    if decision.found is None:
        return decision, outcome
    for budget in decision.found.values:
        if isinstance(budget, MaxLoss) and isinstance(budget.accuracy, Accuracy):
            budget.accuracy.searching = False
    found = decision.found.remeasure(outcome.model)
    if found.broken:
        say(f"After recovery, {'; '.join(found.broken)}. The pruned model is kept as it was before recovery.")
        return decision, None
    return decision._replace(found=found), outcome


def state_of(out: Path) -> Path:
    """Return where a recovery keeps what it needs to resume."""
    return out.with_name(f"{out.name}.recovery")


def stop_if_asked(outcome: Recovered[Any]) -> None:
    """Exit if a recovery was interrupted: the same command resumes it."""
    if not outcome.finished:
        raise typer.Exit(INTERRUPTED)
