"""Choose the MNIST images inside the package: `python scripts/sample_mnist.py DATA`.

For each digit the first 100 of the test set, and the first 111 images of the training set.
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.files import write_atomically
from ssmprune.tasks.smnist import FOLDERS, SAMPLE, SOURCES, read_mnist

TRAINING = 111  # images, of which 11 validate


def make_sample(root: Path, folder: Path = SAMPLE) -> None:
    """Choose the images out of the MNIST under `root`, in the order of the sets."""
    for part, (images, labels) in {part: read_mnist(part, root) for part in SOURCES}.items():
        rows = np.arange(TRAINING)
        if part == "test":
            rows = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:100] for digit in range(10)]))
        for source, array in zip(SOURCES[part], (images[rows], labels[rows]), strict=True):
            write_atomically(folder / FOLDERS[0] / source.name, to_idx(array))


def to_idx(array: NDArray[np.uint8]) -> bytes:
    """Return a gzipped idx file, the same bytes every time."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), 9, mtime=0)


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
