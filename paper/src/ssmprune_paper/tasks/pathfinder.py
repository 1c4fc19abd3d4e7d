"""LRA Pathfinder and Path-X: are two discs joined by a dashed contour? 32 x 32 or 128 x 128 pixels in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.tasks import Inputs, Lengths, Split, Task

from .contours import Look, draw
from .files import cache_folder, find_folder, load_or_make_records, track
from .lra_pictures import metadata, read_pictures

DRAWING = 1  # to be raised when the same seed draws other pictures, so that none are kept from before
SHARD = 1000  # pictures in a file of the cache
BATCH = 500 * 32  # pictures begun at once, times their size
LRA_NAMES = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}  # by number of dashes
PARTS = {"train": (0.0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1.0)}  # of every shard


def draw_records(look: Look, count: int, seed: tuple[int, ...]) -> NDArray[np.uint8]:
    """Draw `count` pictures as records: the label, then the pixels."""
    rng = np.random.default_rng(seed)
    records = np.empty((0, 1 + look.size**2), np.uint8)
    while len(records) < count:
        pictures = draw(look, BATCH // look.size, rng)
        pixels = pictures.images.reshape(-1, look.size**2)
        records = np.concatenate([records, np.column_stack([pictures.labels.astype(np.uint8), pixels])])
    return records[:count]


@dataclass(frozen=True)
class Pathfinder(Task):
    """Pixels in [-1, 1] of pictures drawn from `seed`, or of LRA's where they are found.

    Pictures come in shards of 1,000, the first 800 to train with, 100 to validate, 100 to test. What a shard holds
    depends on the seed and its number alone: `examples` (rounded up to thousands) only says how many there are.
    Fewer dashes and distractors make easier pictures, to learn from before the paper's.
    """

    name = "pathfinder"
    inputs = 1
    outputs = 2
    length = 1024
    examples: int = 200_000
    seed: int = 0
    dashes: int = 14  # in a contour
    distractors: int = 5

    hardest: ClassVar[Look] = Look(
        size=32, dash=2, thickness=0.5, margins=(1,), distance=7, radius=1.5, straightness=1.0, distractors=5
    )

    def __post_init__(self) -> None:
        """Refuse pictures that would be harder than the paper's: contours would find no room."""
        for name, value, most in (
            ("dashes", self.dashes, self.hardest.dashes),
            ("distractors", self.distractors, self.hardest.distractors),
        ):
            if value > most:
                raise InputError(f"Pictures of {self.name} have room for {most} {name}; got {value}.")

    @property
    def look(self) -> Look:
        """The measures of these pictures."""
        return replace(self.hardest, dashes=self.dashes, distractors=self.distractors)

    def read(self, split: str, root: Path) -> Split:
        """Map the shards that are there, and make those that are not."""
        first, last = PARTS[split]
        shards = [shard[round(first * len(shard)) : round(last * len(shard))] for shard in self.shards(root)]
        ends = np.cumsum([len(shard) for shard in shards])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            where = np.searchsorted(ends, rows, side="right")
            pixels = [shards[i][row - ends[i], 1:] for i, row in zip(where, rows, strict=True)]  # from the end
            return np.stack(pixels).astype(np.float32)[:, :, None] * np.float32(2 / 255) - np.float32(1), None

        labels = np.concatenate([shard[:, 0] for shard in shards]).astype(np.int64)
        return Split(labels, read, self.inputs, self.outputs, self.length)

    def shards(self, root: Path) -> list[NDArray[np.uint8]]:
        """Return the records of every shard."""
        makers = self.makers(root)
        folder = cache_folder(root) / self.name
        return [
            load_or_make_records(folder / f"{name}.records", self.length, make)
            for name, make in track(makers.items(), len(makers), f"preparing {self.name}")
        ]

    def makers(self, root: Path) -> dict[str, Callable[[], NDArray[np.uint8]]]:
        """Return how to make each shard that is not there: read LRA's pictures, or draw them."""
        count, size, look = ceil(self.examples / SHARD), min(self.examples, SHARD), self.look
        if folder := self._lra_folder(root):
            listings, kind = metadata(folder)[:count], f"lra-{look.dashes}"
            return {f"{kind}-{listing.stem}": partial(read_pictures, listing, look.size) for listing in listings}
        kind = f"drawn{DRAWING}-{look.dashes}-{look.distractors}-{self.seed}"
        return {
            f"{kind}-{number}-{size}": partial(draw_records, look, size, (self.seed, number)) for number in range(count)
        }

    def _lra_folder(self, root: Path) -> Path | None:
        """Return where LRA's pictures of this kind are; all of them have as many distractors as the paper's."""
        if self.dashes not in LRA_NAMES or self.distractors < self.hardest.distractors:
            return None
        level = f"pathfinder{self.hardest.size}/{LRA_NAMES[self.dashes]}"
        return find_folder(root, (level, f"pathfinder/{level}"), "metadata")


@dataclass(frozen=True)
class PathX(Pathfinder):
    """The same question, sixteen times as long."""

    name = "pathx"
    length = 128 * 128
    distractors: int = 8

    hardest: ClassVar[Look] = Look(
        size=128, dash=5, thickness=1.5, margins=(2, 3), distance=20, radius=3, straightness=1.8, distractors=8
    )


TASKS = [Pathfinder(), PathX()]
