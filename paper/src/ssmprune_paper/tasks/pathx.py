"""LRA Path-X: Pathfinder in 128 x 128 pixels, a sequence of 16,384 steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .contours import Look
from .pathfinder import Pathfinder


@dataclass(frozen=True)
class PathX(Pathfinder):
    """The same question, sixteen times as long."""

    name = "pathx"
    length = 128 * 128
    distractors: int = 8

    hardest: ClassVar[Look] = Look(
        size=128, dash=5, thickness=1.5, margins=(2, 3), distance=20, radius=3, straightness=1.8, distractors=8
    )


TASK = PathX()
