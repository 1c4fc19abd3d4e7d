"""Commands that score, plan, mask and shrink."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from .. import pruning
from ..arrays import Real
from ..budgets import certify_model
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..methods.allocation import energy_normalised
from ..models import load, save
from ..planning.make import make_plan
from ..planning.plan import Plan
from ..tasks import cards
from .common import Checkpoint, Json, Out, Unstable, UnstablePoles, app, say_if_floats_again, show, table
from .gains import Said, gains, show_plan
from .planning import Learning, decide, recovering, takes_options_of
from .recovering import recover_decision

PAIRS = "A conjugate pair counts as two states, here and in plans; config.states counts pairs."


@app.command()
def inspect(checkpoint: Checkpoint, unstable: Unstable = UnstablePoles.refuse, as_json: Json = False) -> None:
    """Show the layers of a model: states, memory, and the spread of their scores."""
    model = load(checkpoint)
    systems = pruning.read(model, unstable=unstable.value)
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
    show({"layers": layers, "history": model.history}, as_json, table(str(checkpoint), rows, "\n".join(notes)))


@app.command()
@takes_options_of(decide)
def plan(**options: Any) -> None:
    """Decide which states to prune, and write the decision to a file."""
    decision = decide(**options)
    decision.plan.save(decision.out)
    said = Said({"budgets": decision.notes}, decision.notes)
    show_plan(decision.plan, decision.out, decision.as_json, decision.certificates, said=said)


@app.command()
def mask(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Silence the states a plan prunes; the model keeps its size."""
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    plan, model = Plan.load(plan_file), load(checkpoint)
    quiet = pruning.mask(model, plan)
    say_if_floats_again(model, quiet)
    save(quiet, out)
    cards.copy_card(checkpoint, out)
    show_plan(plan, out, as_json)


@app.command()
def shrink(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Remove the states a plan prunes; the model gets smaller and faster."""
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    plan, model = Plan.load(plan_file), load(checkpoint)
    small = pruning.shrink(model, plan)
    say_if_floats_again(model, small)
    save(small, out)
    cards.copy_card(checkpoint, out)
    show_plan(plan, out, as_json)


@app.command()
@takes_options_of(decide, recovering)
def prune(recover: float | None, what: Learning, **options: Any) -> None:
    """Plan and shrink in one step; with --calibrate by the surgeon, which can remove far more states.

    With --recover the pruned model then learns the whole model's answers on the --calibrate inputs. A budget finds
    the ratio without recovery; if the recovered model breaks it, the model is kept as it was before. After an
    interruption, the same command resumes.
    """
    if recover is None and what is not Learning.all:
        raise InputError("--what is about recovery; give --recover as well.")
    if recover is not None and options["calibrate"] is None:
        raise InputError("--recover learns from the inputs of --calibrate; give that as well.")
    if recover is not None and not 0 < recover < math.inf:
        raise InputError(f"--recover takes a number of minutes above 0; got {recover:g}.")
    decision = decide(**options)
    certificates, small = decision.certificates, decision.work.shrink(decision.plan)
    outcome = None
    if recover is not None:
        decision, outcome = recover_decision(decision, small, options, recover, what)
    if outcome is not None:
        small = outcome.model
        certificates = certify_model(decision.work, small) if options["certify"] else {}
    say_if_floats_again(decision.work.model, small)
    save(small, decision.out)
    cards.copy_card(options["checkpoint"], decision.out)
    said = gains(decision, options["checkpoint"], small)
    show_plan(decision.plan, decision.out, decision.as_json, certificates, outcome, said)


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
