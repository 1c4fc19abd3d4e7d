"""The MNIST images inside the package: for each digit the first 100 of the test set, and the first 111 to train on.

Made with `python -m ssmprune.tasks.sample DATA`; the folder is laid out like any other data folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ..files import write_atomically
from .formats import to_idx
from .smnist import FOLDERS, SOURCES, TASK, read_mnist
from .task import Split

FOLDER = Path(__file__).parents[1] / "demo"
TRAINING = 111  # images, of which 11 validate


def load_sample(split: str = "test") -> Split:
    """Return the images as sequential MNIST; of the training images a tenth validates, as in the whole set.

    >>> len(load_sample("test")), len(load_sample("train"))
    (1000, 100)
    """
    return TASK.load(split, FOLDER)


def make_sample(root: Path, folder: Path = FOLDER) -> None:
    """Choose the images out of the MNIST under `root`, in the order of the sets."""
    for part, (images, labels) in {part: read_mnist(part, root) for part in SOURCES}.items():
        rows = np.arange(TRAINING)
        if part == "test":
            rows = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:100] for digit in range(10)]))
        for source, array in zip(SOURCES[part], (images[rows], labels[rows]), strict=True):
            write_atomically(folder / FOLDERS[0] / source.name, to_idx(array))


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
