"""LRA Image: CIFAR-10 in grey, read pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.tasks import Inputs, Lengths, Split, Task, split_published

from .cifar import read_cifar

LUMA = np.array([[0.299], [0.587], [0.114]])  # how bright red, green and blue look (ITU-R BT.601)
MEAN, STD = 0.4809, 0.2392  # of the grey training pixels in [0, 1]


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
        to_grey = np.float32(LUMA / (255 * STD))

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return pixels[rows].astype(np.float32) @ to_grey - np.float32(MEAN / STD), None

        return split_published(Split(labels.astype(np.int64), read, 1, self.outputs, self.length), split)


TASK = GreyCifar()
