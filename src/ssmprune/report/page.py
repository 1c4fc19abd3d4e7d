"""The report: a page with all that a sweep has found, to explore offline.

`collect_data` gathers its content: curves with intervals, cells, poles, links to plans. `charts`
describes its three charts; page_files/ has the page itself.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ..budgets import wilson_interval
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..files import write_atomically
from ..sweeps import approaches
from ..sweeps.store import Cell, Results
from .charts import browser_library, charts
from .curves import FEW, checkpoints, method_curves, ranked, systems
from .style import COLOURS, label, styles

FILES = Path(__file__).parent / "page_files"
Content = dict[str, Any]
Masks = Mapping[tuple[str, str, float, int], Mapping[str, NDArray[np.bool_]]]


def write(results: Results, path: Path, masks: Masks | None = None) -> dict[str, int]:
    """Write the page, which links to the plans where they lie; return its bytes and the number of plans.

    masks: which states stay where there is no plan, {(checkpoint, method, ratio, seed): {layer: mask}}.
    """
    code, data = browser_library(), collect_data(results, path.parent, masks)
    inserted = {
        "/*STYLE*/": (FILES / "page.css").read_text(),
        "/*DATA*/": embed(data),
        "/*CHARTS*/": embed(charts(styles(results.about["methods"]))),
        "/*LIBRARY*/": code,
        "/*SCRIPT*/": (FILES / "page.js").read_text(),
    }
    places = "|".join(map(re.escape, inserted))  # all at once, because what is inserted may name another place
    page = re.sub(places, lambda place: inserted[place[0]], (FILES / "page.html").read_text())
    write_atomically(path, page.encode())
    points = [point for model in data["models"] for curve in model["curves"].values() for point in curve]
    return {"bytes": path.stat().st_size, "plans": sum("plan" in point for point in points)}


def embed(data: Any) -> str:
    r"""Return JSON that can stand inside a script element, which neither `</script` in it ends nor `<!--` prolongs.

    >>> print(embed("<!--<script>"))
    "\u003c!--\u003cscript>"
    """
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def collect_data(results: Results, folder: Path, masks: Masks | None = None) -> Content:
    """Return what the script of a page in `folder` reads: all curves, poles and masks, and links to the plans."""
    models = [_model(results, name, folder, masks or {}) for name in checkpoints(results)]
    swept = [method for method in results.about["methods"] if any(method in model["curves"] for model in models)]
    if not swept:
        raise InputError(f"{results.folder} has no pruned model yet; let the sweep continue.")
    winner = _winner(models, swept)
    looks, known = styles(results.about["methods"]), approaches.found()
    return {
        "about": {key: results.about.get(key) for key in ("date", "machine", "commands", "examples", "split")},
        "methods": [
            {
                "name": name,
                "label": label(name),
                "colour": looks[name]["color"],
                "description": known[name].description if name in known else "",
            }
            for name in dict.fromkeys([winner, *ranked(swept)])
        ],
        "first": min(FEW, len(swept)),  # so many curves are drawn until others are asked for
        "colours": {"kept": COLOURS[0], "pruned": COLOURS[1]},
        "models": models,
    }


def _model(results: Results, name: str, folder: Path, masks: Masks) -> Content:
    layers = systems(results, name)
    _check_cells(results, name, layers)
    entry = results.entry(name)
    return {
        "name": name,
        "task": entry["task"],
        "layers": [
            {
                "name": layer,
                "states": system.states,
                "mirrored": system.states_per_entry == 2,
                "decay": _encode(system.log_poles.real.astype("<f4")),  # logarithms, since slow poles are almost equal
                "angle": _encode(np.angle(system.poles).astype("<f4")),
            }
            for layer, system in layers.items()
        ],
        "curves": {
            method: [_point(results, cells, layers, folder, masks) for cells in curve.cells.values()]
            for method, curve in method_curves(results, name).items()
        },
    }


def _point(
    results: Results, cells: list[Cell], layers: dict[str, DiagonalSystem], folder: Path, masks: Masks
) -> Content:
    """Return a point of a curve: the mean over its seeds, and the states and plan of the first."""
    cell, accuracies = cells[0], [cell.accuracy for cell in cells]
    path, accuracy = results.plan_path(cell), float(np.mean(accuracies))
    point: Content = {
        "ratio": cell.ratio,
        "accuracy": accuracy,
        "interval": [round(end, 5) for end in wilson_interval(accuracy, cell.examples)],
        "deviation": float(np.std(accuracies)),
        "seeds": len(cells),
        "states": [cell.states[layer] for layer in layers],
        "parameters": cell.parameters,
        "speed": cell.speed,
    }
    keep = masks.get((cell.checkpoint, cell.method, cell.ratio, cell.seed))
    if path.is_file():
        plan = results.plan(cell)
        plan.check(layers)  # whole, and of this model
        keep = None if plan.new else plan.keep  # the page has the poles that were there
        words = ["ssmprune", "prune", results.entry(cell.checkpoint)["file"], "--from-plan", str(path)]
        point |= {
            "plan": quote(Path(os.path.relpath(path, folder)).as_posix()),
            "command": shlex.join([*words, "--out", "small.safetensors"]),
        }
    if keep is not None:
        point["keep"] = [_encode(np.packbits(keep[layer])) for layer in layers]
    return point


def _winner(models: list[Content], methods: list[str]) -> str:
    """Return the method that is best on average, over all ratios, among those tried on the most models."""

    def rank(method: str) -> tuple[int, float]:
        curves = [model["curves"][method] for model in models if method in model["curves"]]
        return len(curves), float(np.mean([point["accuracy"] for curve in curves for point in curve[1:]] or [0.0]))

    return max(methods, key=rank)


def _check_cells(results: Results, name: str, layers: dict[str, DiagonalSystem]) -> None:
    """Refuse cells that were not measured on this checkpoint."""
    for cell in results.cells:
        if cell.checkpoint == name and cell.states.keys() != layers.keys():
            raise InputError(
                f"{results.folder}: a cell of {name!r} has the layers {', '.join(cell.states)}; the model has "
                f"{', '.join(layers)}. Put the model that was swept back, or sweep again."
            )


def _encode(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
