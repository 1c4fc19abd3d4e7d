"""The 1,000 MNIST test images inside the package: for each digit the first 100 of the test set.

Made with `python -m ssmprune.tasks.sample DATA`; the folder is laid out like any other data folder.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from .smnist import FOLDERS, SOURCES, TASK, read_mnist
from .task import Split

FOLDER = Path(__file__).parents[1] / "demo"


def load_sample() -> Split:
    """The images as sequential MNIST.

    >>> len(load_sample())
    1000
    """
    return TASK.load("test", FOLDER)


def make_sample(root: Path, folder: Path = FOLDER) -> None:
    """Choose the images from the MNIST under `root`, in the order of the test set."""
    images, labels = read_mnist("test", root)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:100] for digit in range(10)]))
    for source, array in zip(SOURCES["test"], (images[rows], labels[rows]), strict=True):
        write_atomically(folder / FOLDERS[0] / source.name, to_idx(array))


def to_idx(array: NDArray[np.uint8]) -> bytes:
    """A gzipped idx file, the same bytes every time."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), 9, mtime=0)


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
