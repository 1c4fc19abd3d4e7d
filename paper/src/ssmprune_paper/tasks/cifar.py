"""CIFAR-10 in its binary version, for the tasks that read it as a sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.tasks import Source

from .files import provide_folder, read_records

SOURCE = Source(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "162 MB", "md5:c32a1d4ab5d03f1284b67883e8d87530"
)
FOLDERS = ("cifar-10-batches-bin", "cifar-10-binary/cifar-10-batches-bin")


def read_cifar(part: str, root: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (examples, 1024, 3) and labels (examples,) of "train" or "test".

    All `data_batch_*.bin` that are there make up "train"; the published set has five of 10,000 images.
    """
    folder = provide_folder(SOURCE, root, FOLDERS, "test_batch.bin" if part == "test" else "data_batch_1.bin")
    files = sorted(folder.glob("test_batch.bin" if part == "test" else "data_batch_*.bin"))
    records = np.concatenate([read_records(file, 3 * 1024) for file in files])
    return records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1), records[:, 0]
