"""CIFAR-10, read pixel by pixel: in colour (sequential CIFAR) and in grey (LRA Image)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.tasks import Inputs, Lengths, Source, Split, Task, features, split_published

from .files import provide_folder, read_records

SOURCE = Source(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "162 MB", "md5:c32a1d4ab5d03f1284b67883e8d87530"
)
FOLDERS = ("cifar-10-batches-bin", "cifar-10-binary/cifar-10-batches-bin")
MEAN = np.array([0.4914, 0.4822, 0.4465])  # of the training pixels, red, green, blue in [0, 1]
STD = np.array([0.2470, 0.2435, 0.2616])
LUMA = np.array([[0.299], [0.587], [0.114]])  # how bright red, green and blue look (ITU-R BT.601)
GREY_MEAN, GREY_STD = 0.4809, 0.2392  # of the grey training pixels in [0, 1]


def read_cifar(part: str, root: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (examples, 1024, 3) and labels (examples,) of "train" or "test".

    All `data_batch_*.bin` that are there make up "train"; the published set has five of 10,000 images.
    """
    folder = provide_folder(SOURCE, root, FOLDERS, "test_batch.bin" if part == "test" else "data_batch_1.bin")
    files = sorted(folder.glob("test_batch.bin" if part == "test" else "data_batch_*.bin"))
    records = np.concatenate([read_records(file, 3 * 1024) for file in files])
    return records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1), records[:, 0]


@dataclass(frozen=True)
class SequentialCifar(Task):
    """1,024 colours, each channel with mean 0 and variance 1; a tenth of the training images validates."""

    name = "scifar"
    inputs = 3
    outputs = 10
    length = 1024

    def read(self, split: str, root: Path) -> Split:
        """Read the binary version of CIFAR-10."""
        pixels, labels = read_cifar("test" if split == "test" else "train", root)
        return split_published(features(pixels, labels, self.outputs, 1 / (255 * STD), -MEAN / STD), split)


@dataclass(frozen=True)
class GreyCifar(Task):
    """1,024 grey values with mean 0 and variance 1; a tenth of the training images validates."""

    name = "image"
    inputs = 1
    outputs = 10
    length = 1024

    def read(self, split: str, root: Path) -> Split:
        """Read the binary version of CIFAR-10; a batch turns grey when it is asked for."""
        pixels, labels = read_cifar("test" if split == "test" else "train", root)
        to_grey = np.float32(LUMA / (255 * GREY_STD))

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return pixels[rows].astype(np.float32) @ to_grey - np.float32(GREY_MEAN / GREY_STD), None

        return split_published(Split(labels.astype(np.int64), read, 1, self.outputs, self.length), split)


TASKS = [SequentialCifar(), GreyCifar()]
