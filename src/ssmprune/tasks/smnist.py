"""Sequential MNIST: a handwritten digit, read pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .data import Source, fetch, read_idx
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


def read_mnist(part: str, root: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (examples, 28, 28) and labels (examples,) of "train" (60,000) or "test" (10,000)."""
    images, labels = (read_idx(_file(source, root), dims) for source, dims in zip(SOURCES[part], (3, 1), strict=True))
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise InputError(f"Expected 28 x 28 images, one label each; found {images.shape} and {labels.shape}.")
    return images, labels


def _file(source: Source, root: Path) -> Path:
    for name in (source.name, source.name.removesuffix(".gz")):
        for folder in FOLDERS:
            if (path := root / folder / name).exists():
                return path
    return fetch(source, root / FOLDERS[0])


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
