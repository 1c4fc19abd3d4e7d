"""A single layer as C, for programs whose other parts are written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import DiagonalSystem
from ...errors import InputError
from ...integers.numbers import Array
from .source import Parts, floats, integers


def layer_parts(system: DiagonalSystem, D: Any = None) -> Parts:
    """Return what fills the texts of a layer; for channels with states of their own, B is part of C."""
    if system.directions == 2:
        raise InputError("A layer of two directions needs the whole sequence; only forward layers are written as C.")
    if D is None:
        raise InputError(f"Say what {system} adds of its input to its output: D=layer.D, or D=0 where it adds nothing.")
    C, owners, feed = system.gain * system.C[0], system.channel, _feed_through(system, D)
    values = {"POLE": system.poles} | ({"B": system.B, "C": C} if owners is None else {"C": C[0] * system.B[:, 0]})
    arrays = [floats(f"{key}_RE", value.real) + floats(f"{key}_IM", value.imag) for key, value in values.items()]
    arrays += [] if owners is None else [integers("CHANNEL", owners)]
    arrays += [] if feed is None else [floats("D", feed)]
    sizes = {"MODEL_INPUTS": system.inputs, "MODEL_OUTPUTS": system.outputs, "MODEL_STATES": max(1, system.n)}
    gain, plus_D = "2 " if system.gain == 2 else "", "" if feed is None else " + D u_k"
    words = {"SYSTEM": repr(system), "GAIN": gain, "PLUS_D": plus_D}
    matrix = feed is not None and feed.ndim == 2
    features = {"CHANNELS": owners is not None, "HAS_D": feed is not None, "D_MATRIX": matrix}
    return Parts(features, words, sizes, {"STATES": system.n}, "\n".join(arrays))


def _feed_through(system: DiagonalSystem, D: Any) -> Array | None:
    values = np.asarray(D.detach().cpu() if hasattr(D, "detach") else D, float)
    if values.ndim == 0 and not values:
        return None
    shapes: list[tuple[int, ...]] = [(system.outputs,)] if system.inputs == system.outputs else []
    shapes += [(system.outputs, system.inputs)] if system.channel is None else []
    if values.shape not in shapes:
        raise InputError(f"D of {system} must have the shape {' or '.join(map(str, shapes))}; it has {values.shape}.")
    return values
