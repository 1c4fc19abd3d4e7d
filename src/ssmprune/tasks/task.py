"""What every task hands to training: its sizes, three splits, batches of numpy arrays."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError, one_of
from .data import VARIABLE, data_folder, is_named

SPLITS = ("train", "val", "test")
MOST = 2**31 - 1  # of any parameter: no sequence is longer, no data set larger

Inputs = NDArray[np.float32] | NDArray[np.int64]
Lengths = NDArray[np.int64] | None
Labels = NDArray[np.int64]  # the class of each example


@dataclass(frozen=True)
class Batch:
    """Some examples, ready for a model.

    Retrieval tasks stack their documents: the first half of `x` is paired with the second half.
    """

    x: Inputs  # (batch, length, inputs) features, or (batch, length) tokens; 2 * batch documents for retrieval
    y: Labels  # (batch,)
    lengths: Lengths = None  # (batch,), or (2 * batch,) for retrieval; None when nothing is padded


@dataclass(frozen=True)
class Split:
    """Examples in compact form (bytes, 16-bit samples); they become floats or tokens one batch at a time.

    The sizes are those of the files that were found. They equal the task's when these are the published ones,
    and say how large a model must be when they are not (12 words of 35, another rate, another vocabulary).
    """

    labels: Labels  # (examples,)
    read: Callable[[NDArray[np.int64]], tuple[Inputs, Lengths]]  # indices -> the batch's x and lengths
    inputs: int
    outputs: int
    length: int
    raw: tuple[list[float], list[float]] | None = None  # x = scale * sample + offset, of samples of at most 16 bits

    def __post_init__(self) -> None:
        """Refuse labels outside the classes, which would index past the end of the logits."""
        if not len(self.labels):
            raise InputError("No examples: the files were read, but nothing in them belongs to this split.")
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            shape, kind = self.labels.shape, self.labels.dtype
            raise InputError(f"Labels must be whole numbers of shape {(len(self),)}, not {kind} of shape {shape}.")
        if self.labels.min() < 0 or self.labels.max() >= self.outputs:
            span = f"{self.labels.min()} to {self.labels.max()}"
            raise InputError(f"Labels go from {span}; expected 0 to {self.outputs - 1}. Is this the right file?")

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def batch(self, indices: ArrayLike) -> Batch:
        """Return the examples at `indices`, in that order."""
        rows = np.asarray(indices, np.int64)
        x, lengths = self.read(rows)
        return Batch(x, self.labels[rows], lengths)

    def subset(self, indices: ArrayLike) -> Split:
        """Return the split that consists of the examples at `indices`, in that order."""
        rows = np.asarray(indices, np.int64)
        return dataclasses.replace(self, labels=self.labels[rows], read=lambda chosen: self.read(rows[chosen]))


class Task(ABC):
    """A data set with its sizes. A task is a frozen dataclass that states them as class attributes.

    What it declares as a field instead is a parameter, a whole number that `replace` can change: how recipes
    shorten, thin out or resample a task.
    """

    name: str
    inputs: int  # features per step, or the size of the vocabulary when `tokens`
    outputs: int  # classes
    length: int  # steps of one (padded) example
    tokens: bool = False
    retrieval: bool = False

    def parameters(self) -> dict[str, int]:
        """Return the current value of everything `replace` can change."""
        return dataclasses.asdict(cast(Any, self))

    def replace(self, /, **changes: int) -> Task:
        """Return the same task with other parameters.

        >>> from ssmprune.tasks import get
        >>> get("text").replace(length=1024)
        Text(length=1024)
        """
        for name, value in changes.items():
            if name not in self.parameters():
                names = ", ".join(self.parameters()) or "none"
                raise InputError(f"Task {self.name!r} has no parameter {name!r}; its parameters: {names}.")
            least = 0 if name == "seed" else 1
            if type(value) is not int or not least <= value <= MOST:
                raise InputError(
                    f"Parameter {name!r} of task {self.name!r} is {value!r:.40}; expected {least} to {MOST:,}."
                )
        return cast(Task, dataclasses.replace(cast(Any, self), **changes))

    def load(self, split: str, root: str | Path | None = None) -> Split:
        """Return the examples of "train", "val" or "test".

        Files are looked for under `root`, else $SSMPRUNE_DATA, else the user's cache folder; what is not there
        is fetched into the same folder (or generated, for tasks that are programs rather than recordings).
        """
        one_of("split", split, dict.fromkeys(SPLITS))
        try:
            return self.read(split, data_folder(root))
        except InputError as error:
            hint = "" if is_named(root) else f" No data folder was named: give one (--data) or set ${VARIABLE}."
            raise InputError(f"Task {self.name!r}, split {split!r}: {error}{hint}") from error

    @abstractmethod
    def read(self, split: str, root: Path) -> Split:
        """Read one split from the data folder."""


def features(
    raw: NDArray[Any],  # (examples, length, inputs), compact
    labels: NDArray[Any],  # (examples,)
    outputs: int,
    scale: ArrayLike,  # x = raw * scale + shift, per input
    shift: ArrayLike = 0.0,
) -> Split:
    """Return a split of equally long examples: x = raw * scale + shift in float32."""
    factor, offset = np.asarray(scale, np.float32), np.asarray(shift, np.float32)

    def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
        return raw[rows].astype(np.float32) * factor + offset, None

    affine = tuple(np.broadcast_to(part, raw.shape[2:]).astype(float).tolist() for part in (scale, shift))
    samples = affine if np.can_cast(raw.dtype, np.int16) else None
    return Split(labels.astype(np.int64), read, raw.shape[2], outputs, raw.shape[1], samples)


def split_published(published: Split, split: str) -> Split:
    """Return `split` where no validation set is published: a fixed random tenth of "train" validates."""
    if split == "test":
        return published
    shuffled = np.argsort(np.random.default_rng(0).random(len(published)), kind="stable")
    cut = round(len(published) / 10)
    return published.subset(np.sort(shuffled[:cut] if split == "val" else shuffled[cut:]))


def fewer(split: Split, examples: int | None) -> Split:
    """Return a fixed random part of `split` when fewer `examples` are asked for than it has."""
    if examples is None or examples >= len(split):
        return split
    return split.subset(some_of(len(split), examples))


def some_of(count: int, most: int) -> NDArray[np.int64]:
    """Return at most so many of the first `count` whole numbers, at random but always the same, in order.

    >>> some_of(3, 5).tolist(), len(some_of(1000, 5))
    ([0, 1, 2], 5)
    """
    return np.sort(np.random.default_rng(0).permutation(count)[:most])
