"""Which states the cells of a sweep keep: what figures and the page show of plans, in a file that can be committed.

RESULTS/masks.jsonl    a line for each cell that curves show and that has a plan: its layers' sizes, and a bit for
                       each stored state, layer after layer, zlib, base64
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.files import write_atomically
from ssmprune.report import checkpoints, method_curves
from ssmprune.sweeps import Cell, Key, Results

from .statistics import unpack

FILE = "masks.jsonl"
Place = tuple[str, str, float, int]  # checkpoint, method, ratio, seed: cells on other examples have the same plan
Masks = dict[Place, dict[str, NDArray[np.bool_]]]


def place(cell: Cell | Key) -> Place:
    """Return what a plan depends on."""
    return cell.checkpoint, cell.method, cell.ratio, cell.seed


def read(folder: Path) -> Masks:
    """Return the masks of a folder, none where it has no file of them."""
    path, masks = folder / FILE, {}
    for number, line in enumerate(path.read_text().splitlines() if path.is_file() else [], 1):
        try:
            content = json.loads(line)
            sizes = content["sizes"]
            bits = np.split(unpack(content["keep"], sum(sizes.values())), np.cumsum([*sizes.values()])[:-1])
            at = content["checkpoint"], content["method"], content["ratio"], content["seed"]
        except (ValueError, TypeError, KeyError, AttributeError, InputError) as error:
            raise InputError(
                f"Line {number} of {path} does not say which states stay ({error!r}); remove it."
            ) from error
        masks[at] = dict(zip(sizes, bits, strict=True))
    return masks


def collect(results: Results) -> Masks:
    """Return the masks of all cells that curves show, by their plans, else by the folder's file."""
    known, masks = read(results.folder), {}
    for name in checkpoints(results):
        for curve in method_curves(results, name).values():
            for cell, *_ in curve.cells.values():
                if results.plan_path(cell).is_file():
                    plan = results.plan(cell)
                    if not plan.new:  # else its states are not among those that were there
                        masks[place(cell)] = plan.keep
                elif place(cell) in known:
                    masks[place(cell)] = known[place(cell)]
    return masks


def write(masks: Mapping[Place, Mapping[str, NDArray[np.bool_]]], folder: Path) -> Path:
    """Write masks into a folder."""
    lines = [json.dumps(_line(at, keep), separators=(",", ":")) + "\n" for at, keep in masks.items()]
    write_atomically(folder / FILE, "".join(lines).encode())
    return folder / FILE


def _line(at: Place, keep: Mapping[str, NDArray[np.bool_]]) -> dict[str, object]:
    bits = np.packbits(np.concatenate([*keep.values()])).tobytes()
    text = base64.b64encode(zlib.compress(bits, 9)).decode()
    sizes = {layer: len(mask) for layer, mask in keep.items()}
    return dict(zip(("checkpoint", "method", "ratio", "seed"), at, strict=True)) | {"sizes": sizes, "keep": text}
