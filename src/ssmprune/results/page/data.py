"""What the page knows: every curve, cell and pole of a sweep, and as many plans as fit."""

from __future__ import annotations

import base64
import json
import shlex
from typing import Any

import numpy as np

from ...arrays import Real
from ...errors import InputError
from ...sweeps.store import Cell, Results
from ...system import DiagonalSystem
from ..curves import Curve, checkpoints, curves, label, systems
from ..figures._style import COLOURS, styles
from .plan_files import Cut, Store

Content = dict[str, Any]


def collect_data(results: Results, room: int) -> Content:
    """Return what the page's script reads, in about `room` bytes.

    All curves, poles and masks are in it. Plans follow, small ones first; for one that does not fit, most likely with
    a re-fitted C, it has the command that makes it again.
    """
    names = checkpoints(results)
    if not any(curves(results, name) for name in names):
        raise InputError(f"{results.folder} has no pruned model yet; let the sweep go on.")
    store = Store()
    cuts: list[tuple[Cut, Content]] = []
    models = [_model(results, name, store, cuts) for name in names]
    room -= len(json.dumps(models))
    for cut, point in sorted(cuts, key=lambda entry: sum(map(len, entry[0].pieces))):
        if store.size + store.growth(cut.pieces) <= room:
            point["plan"] = [store.add(piece) for piece in cut.pieces]
    shown = {method for model in models for method in model["curves"]}
    looks = styles(method for method in results.about["methods"] if method in shown)
    return {
        "about": {key: results.about.get(key) for key in ("date", "machine", "commands", "examples", "split")},
        "methods": [{"name": name, "label": label(name), "colour": look["color"]} for name, look in looks.items()],
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


def check_cells(results: Results, name: str, layers: dict[str, DiagonalSystem]) -> None:
    """Refuse cells that were not measured on this checkpoint."""
    for cell in results.cells:
        if cell.checkpoint == name and cell.states.keys() != layers.keys():
            raise InputError(
                f"{results.folder}: a cell of {name!r} has the layers {', '.join(cell.states)}; the model has "
                f"{', '.join(layers)}. Put the model that was swept back, or sweep anew."
            )


def _command(results: Results, cell: Cell) -> str:
    """Return the command that makes the plan of a cell again; it then lies in results/plans."""
    file = shlex.quote(results.entry(cell.checkpoint)["file"])
    chosen = f"--methods {shlex.quote(cell.method)} --ratios {cell.ratio:.10g} --seeds {cell.seed}"
    return f"ssmprune sweep {file} {chosen} --examples {cell.examples} --out results"


def _encode(values: Real) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()
