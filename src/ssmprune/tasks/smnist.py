"""Sequential MNIST: a handwritten digit, read pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..progress import Bar
from .data import Source, data_folder, fetch, is_named, read_idx
from .task import Split, Task, features, split_published

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SOURCES = {
    "train": (
        Source(f"{MIRROR}train-images-idx3-ubyte.gz", "10 MB", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Source(f"{MIRROR}train-labels-idx1-ubyte.gz", "29 kB", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    "test": (
        Source(f"{MIRROR}t10k-images-idx3-ubyte.gz", "2 MB", "md5:9fb629c4189551a2d022fa330f9573f3"),
        Source(f"{MIRROR}t10k-labels-idx1-ubyte.gz", "5 kB", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    ),
}
FOLDERS = ("mnist", "MNIST/raw", ".")
SAMPLE = Path(__file__).parents[1] / "demo"  # a data folder inside the package, made by scripts/sample_mnist.py
SAMPLE_SERVES = (
    "Task {}: no data folder is named, so the images in the package serve, 1,000 of the test set (which also validate) "
    "and 100 to learn from. For all 70,000, give --data FOLDER, into which 11 MB are fetched."
)


def read_mnist(part: str, root: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (examples, 28, 28) and labels (examples,) of "train" (60,000) or "test" (10,000)."""
    files = [_find(source, root) or fetch(source, root / FOLDERS[0]) for source in SOURCES[part]]
    images, labels = read_idx(files[0], 3), read_idx(files[1], 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise InputError(f"Expected 28 x 28 images, one label each; found {images.shape} and {labels.shape}.")
    return images, labels


def _find(source: Source, root: Path) -> Path | None:
    names = (source.name, source.name.removesuffix(".gz"))
    paths = (root / folder / name for name in names for folder in FOLDERS)
    return next((path for path in paths if path.exists()), None)


@cache
def _announce_sample(task: str) -> None:
    """Say, once in a process, that the images in the package serve."""
    Bar().say(SAMPLE_SERVES.format(task))


@dataclass(frozen=True)
class SequentialMnist(Task):
    """784 pixels in [0, 1], row by row; a tenth of the training images validates."""

    name = "smnist"
    inputs = 1
    outputs = 10
    length = 784

    def order(self) -> NDArray[np.int64]:
        """Return the pixel that is read at each step."""
        return np.arange(784)

    def load(self, split: str, root: str | Path | None = None) -> Split:
        """Return the examples of a split; where no data folder is named, those in the package, unless all are cached.

        Of the images in the package those of the test set also validate: eleven others would be too few.
        """
        if is_named(root) or all(_find(source, data_folder()) for pair in SOURCES.values() for source in pair):
            return super().load(split, root)
        _announce_sample(self.name)
        return super().load("test" if split == "val" else split, SAMPLE)

    def read(self, split: str, root: Path) -> Split:
        """Read the idx files."""
        images, labels = read_mnist("test" if split == "test" else "train", root)
        pixels = images.reshape(len(images), 784, 1)[:, self.order()]
        return split_published(features(pixels, labels, self.outputs, scale=1 / 255), split)


TASK = SequentialMnist()


def load_sample(split: str = "test") -> Split:
    """Return the MNIST images inside the package: of each digit 100 of the test set, and 111 to train on, 11 validate.

    >>> len(load_sample("test")), len(load_sample("train"))
    (1000, 100)
    """
    return TASK.load(split, SAMPLE)
