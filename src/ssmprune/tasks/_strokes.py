"""Strokes on many small canvases at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Canvas = NDArray[np.uint8]  # (pictures, side, side)


def paint(canvas: Canvas, start: Floats, end: Floats, radius: float | Floats) -> None:
    """Draw a stroke on every canvas: all that is within `radius` of the line from start to end, (pictures, 2) each.

    The canvas has to have room around the stroke.

    >>> canvas = np.zeros((1, 5, 7), np.uint8)
    >>> paint(canvas, np.array([[2.0, 2.0]]), np.array([[2.0, 4.0]]), 0.5)
    >>> canvas[0, 1:4].tolist()
    [[0, 0, 0, 0, 0, 0, 0], [0, 0, 255, 255, 255, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
    """
    line = (end - start).astype(np.float32)
    wide = np.broadcast_to(np.asarray(radius, np.float32), len(canvas))[:, None, None]
    reach = math.ceil(np.abs(line).max(initial=0) / 2 + wide.max(initial=0))
    window = np.rint((start + end) / 2).astype(np.int64)[:, :, None] + np.arange(-reach, reach + 1)
    y, x = (window - start[:, :, None]).astype(np.float32).transpose(1, 0, 2)
    y, x = y[:, :, None], x[:, None, :]
    dy, dx = line.T[:, :, None, None]
    along = np.clip((y * dy + x * dx) / np.maximum(dy * dy + dx * dx, 1e-9), 0, 1)  # the nearest point of the line
    distance = np.sqrt((y - along * dy) ** 2 + (x - along * dx) ** 2)  # not hypot: it rounds as the platform likes
    ink = (255 * np.clip(wide + 0.5 - distance, 0, 1)).astype(np.uint8)
    place = np.arange(len(canvas))[:, None, None], window[:, 0, :, None], window[:, 1, None, :]
    canvas[place] = np.maximum(canvas[place], ink)


def touches(canvas: Canvas, points: Floats) -> Mask:
    """Whether any of some points (pictures, groups, points, 2) is painted: (pictures, groups)."""
    y, x = np.rint(points).astype(np.int64).transpose(3, 0, 1, 2)
    return np.asarray((canvas[np.arange(len(canvas))[:, None, None], y, x] > 127).any(axis=2))
