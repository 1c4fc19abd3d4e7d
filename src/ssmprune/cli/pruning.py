"""Commands that score, plan, mask and shrink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .. import surgery
from ..allocation import energy_normalised
from ..arrays import Real
from ..calibration import collect
from ..checkpoint import load, save
from ..plan import Plan, make_plan
from ..sequence import refit_in_sequence
from ..surgeon import surgeon_plan
from ..system import DiagonalSystem
from .common import (
    Cap,
    Checkpoint,
    Data,
    Exclude,
    Floor,
    Floors,
    Json,
    MethodName,
    Out,
    Ratio,
    RoundTo,
    Seed,
    Unstable,
    app,
    method_named,
    show,
    table,
)

if TYPE_CHECKING:
    from ..models.classifier import Classifier


@app.command()
def inspect(checkpoint: Checkpoint, unstable: Unstable = False, as_json: Json = False) -> None:
    """Show the layers of a model: states, poles, and how its scores spread."""
    systems = _read(load(checkpoint), unstable)
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
    show({"layers": layers}, as_json, table(str(checkpoint), rows))


@app.command()
def plan(
    checkpoint: Checkpoint,
    ratio: Ratio,
    out: Out,
    method: MethodName = "last",
    exclude: Exclude = [],  # noqa: B006 (typer copies it)
    cap: Cap = 1.0,
    floor: Floor = Floors.layer,
    round_to: RoundTo = 1,
    seed: Seed = 0,
    unstable: Unstable = False,
    as_json: Json = False,
) -> None:
    """Decide which states to prune and write the decision to a file."""
    made = make_plan(
        _read(load(checkpoint), unstable),
        ratio,
        method_named(method),
        exclude=exclude,
        caps=cap,
        floor=floor.value,
        round_to=round_to,
        seed=seed,
    )
    made.save(out)
    _show_plan(made, out, as_json)


@app.command()
def mask(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Silence the states a plan prunes; the model keeps its size."""
    made = Plan.load(plan_file)
    save(surgery.mask(load(checkpoint), made), out)
    _show_plan(made, out, as_json)


@app.command()
def shrink(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Remove the states a plan prunes; the model gets smaller and faster."""
    made = Plan.load(plan_file)
    save(surgery.shrink(load(checkpoint), made), out)
    _show_plan(made, out, as_json)


@app.command()
def prune(
    checkpoint: Checkpoint,
    ratio: Ratio,
    out: Out,
    method: Annotated[str | None, typer.Option("--method", "-m", help="last, or the surgeon with --calibrate.")] = None,
    calibrate: Annotated[
        str | None, typer.Option("--calibrate", help="A task, or a .npy file of inputs; no labels.")
    ] = None,
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="How many inputs to calibrate on.")] = 200,
    data: Data = None,
    exclude: Exclude = [],  # noqa: B006 (typer copies it)
    cap: Cap = 1.0,
    floor: Floor = Floors.layer,
    round_to: RoundTo = 1,
    seed: Seed = 0,
    unstable: Unstable = False,
    as_json: Json = False,
) -> None:
    """Plan and shrink at once; with --calibrate by the surgeon, which lets far more states go."""
    model = load(checkpoint)
    systems = _read(model, unstable)
    limits: dict[str, Any] = {"exclude": exclude, "caps": cap, "floor": floor.value, "round_to": round_to}
    if calibrate is None:
        made = make_plan(systems, ratio, method_named(method or "last"), seed=seed, **limits)
    else:
        from ..experiments.unlabelled import unlabelled

        batches = unlabelled(calibrate, sequences, data)
        if method is None:
            made = surgeon_plan(systems, ratio, collect(model, batches), **limits)
        else:
            made = make_plan(systems, ratio, method_named(method), seed=seed, **limits)
        made = refit_in_sequence(made, model, batches)
    save(surgery.shrink(model, made), out)
    _show_plan(made, out, as_json)


def _read(model: Classifier, unstable: bool) -> dict[str, DiagonalSystem]:
    return surgery.read(model, unstable="keep" if unstable else "refuse")


def _describe(layer: str, system: DiagonalSystem, scores: Real) -> dict[str, Any]:
    """Sizes of a layer, the memory 1/(1 - |pole|) of its fastest and slowest pole, quantiles of its LAST scores."""
    memory = -1 / np.expm1(system.log_poles.real)
    return {
        "layer": layer,
        "kind": "MIMO" if system.channel is None else "multi-SISO",
        "width": system.inputs,
        "directions": system.directions,
        "states": system.states,
        "memory_steps": [float(memory.min()), float(memory.max())],
        "last_scores": np.quantile(np.exp(energy_normalised(scores)), [0.1, 0.5, 0.9]).tolist(),
    }


def _show_plan(made: Plan, out: Path, as_json: bool) -> None:
    rows = made.rows()
    title = f"{made.method} at {made.ratio:.0%} -> {out}"
    readable = table(title, [row | {"pruned": f"{row['pruned']:.1%}"} for row in rows])
    show({"method": made.method, "ratio": made.ratio, "layers": rows, "out": str(out)}, as_json, readable)
