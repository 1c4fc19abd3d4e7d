"""What the page knows: every curve with its intervals, every cell and pole of a sweep, and as many plans as fit."""

from __future__ import annotations

import base64
import json
import shlex
from typing import Any

import numpy as np

from ...arrays import Real
from ...core.system import DiagonalSystem
from ...errors import InputError
from ...sweeps.store import Cell, Results
from ..curves import FEW, Curve, checkpoints, curves, label, shown_first, systems
from ..significance import interval
from ..style import COLOURS, styles
from .plan_files import Cut, Store

Content = dict[str, Any]
# What each method does, in a line.
LINES = {
    "surgeon": "Removes, one by one, the state whose work others can best take over on sample inputs; re-fits them.",
    "surgeon-without-data": "The surgeon with white noise in place of sample inputs.",
    "last": "The paper's: the largest gain of each state, as a share of its layer's, compared over all layers.",
    "last+refit": "LAST's choice, and the states that stay are re-fitted on sample inputs.",
    "uniform-hinf": "The largest gain of each state; every layer loses the same share.",
    "global-hinf": "The largest gain of each state, compared over all layers as it is.",
    "uniform-magnitude": "The size of each state's parameters; every layer loses the same share.",
    "global-magnitude": "The size of each state's parameters, compared over all layers.",
    "lamp": "The size of each state's parameters, as a share of its layer's, compared over all layers.",
    "aire": "The average energy of each state's response instead of its largest gain, otherwise as LAST.",
    "last-as-released": "LAST by the formula of its released code, which is not always that of the paper.",
    "aire-as-released": "AIRE by the formula of its released code.",
    "h2-optimal": "New states, fitted for the smallest average error, instead of a choice among the old ones.",
    "random": "States at random, the same share of every layer.",
    "unstructured-random": "Single numbers at random instead of whole states.",
    "balanced": "Balanced truncation: new states instead of a choice among the old ones.",
}


def collect_data(results: Results, room: int) -> Content:
    """Return what the page's script reads, in about `room` bytes.

    All curves, poles and masks are in it. Plans follow, small ones first; for one that does not fit, most likely with
    a re-fitted C, it has the command that makes it again.
    """
    names = checkpoints(results)
    if not any(curves(results, name) for name in names):
        raise InputError(f"{results.folder} has no pruned model yet; let the sweep continue.")
    store = Store()
    cuts: list[tuple[Cut, Content]] = []
    models = [_model(results, name, store, cuts) for name in names]
    room -= len(json.dumps(models))
    for cut, point in sorted(cuts, key=lambda entry: sum(map(len, entry[0].pieces))):
        if store.size + store.growth(cut.pieces) <= room:
            point["plan"] = [store.add(piece) for piece in cut.pieces]
    swept = [method for method in results.about["methods"] if any(method in model["curves"] for model in models)]
    winner = _winner(models, swept)
    offered = [winner, *(name for name in shown_first(swept, len(swept)) if name != winner)]
    looks = styles(offered)
    return {
        "about": {key: results.about.get(key) for key in ("date", "machine", "commands", "examples", "split")},
        "methods": [
            {"name": name, "label": label(name), "colour": look["color"], "line": LINES.get(name, "")}
            for name, look in looks.items()
        ],
        "first": min(FEW, len(offered)),  # so many of them are drawn until others are asked for
        "colours": {"kept": COLOURS[0], "pruned": COLOURS[1]},
        "models": models,
        "pieces": store.encoded,
    }


def _model(results: Results, name: str, store: Store, cuts: list[tuple[Cut, Content]]) -> Content:
    layers = systems(results, name)
    check_cells(results, name, layers)
    entry = results.entry(name)
    return {
        "name": name,
        "task": entry["task"],
        "file": entry["file"],
        "layers": [
            {
                "name": layer,
                "states": system.states,
                "mirrored": system.states_per_entry == 2,
                "decay": _encode(system.log_poles.real),  # logarithms: slow poles differ in their last digits alone
                "angle": _encode(np.angle(system.poles)),
            }
            for layer, system in layers.items()
        ],
        "curves": {
            method: [_point(results, curve, place, layers, store, cuts) for place in range(len(curve.cells))]
            for method, curve in curves(results, name).items()
        },
    }


def _point(
    results: Results,
    curve: Curve,
    place: int,
    layers: dict[str, DiagonalSystem],
    store: Store,
    cuts: list[tuple[Cut, Content]],
) -> Content:
    """Return one cell: the mean over its seeds, and the states and plan of the first."""
    cell, *others = curve.cells[curve.ratios[place]]
    path = results.plan_path(cell)
    point: Content = {
        "ratio": cell.ratio,
        "accuracy": float(curve.accuracy[place]),
        "interval": [round(end, 5) for end in interval(float(curve.accuracy[place]), cell.examples)],
        "deviation": float(curve.deviation[place]),
        "seeds": 1 + len(others),
        "states": [cell.states[layer] for layer in layers],
        "parameters": cell.parameters,
        "speed": cell.speed,
    }
    if path.is_file():
        results.plan(cell).check(layers)  # whole, and of this model
        cut = Cut.read(path)
        point |= {
            "keep": [store.add(cut.pieces[cut.keep[layer]]) for layer in layers],
            "file": path.name,
            "command": _command(results, cell),
        }
        cuts.append((cut, point))
    return point


def _winner(models: list[Content], methods: list[str]) -> str:
    """Return the method that is best on average, over all ratios, on the models that have it with all others."""

    def average(method: str) -> float:
        curves = [model["curves"].get(method, []) for model in models]
        return float(np.mean([point["accuracy"] for curve in curves for point in curve[1:]] or [0.0]))

    widest = max(sum(name in model["curves"] for model in models) for name in methods)
    return max((name for name in methods if sum(name in m["curves"] for m in models) == widest), key=average)


def check_cells(results: Results, name: str, layers: dict[str, DiagonalSystem]) -> None:
    """Refuse cells that were not measured on this checkpoint."""
    for cell in results.cells:
        if cell.checkpoint == name and cell.states.keys() != layers.keys():
            raise InputError(
                f"{results.folder}: a cell of {name!r} has the layers {', '.join(cell.states)}; the model has "
                f"{', '.join(layers)}. Put the model that was swept back, or sweep again."
            )


def _command(results: Results, cell: Cell) -> str:
    """Return the command that makes the plan of a cell again; it then lies in results/plans."""
    file = shlex.quote(results.entry(cell.checkpoint)["file"])
    chosen = f"--methods {shlex.quote(cell.method)} --ratios {cell.ratio:.10g} --seeds {cell.seed}"
    return f"ssmprune sweep {file} {chosen} --examples {cell.examples} --out results"


def _encode(values: Real) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()
