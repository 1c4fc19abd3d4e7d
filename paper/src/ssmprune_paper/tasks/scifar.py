"""Sequential CIFAR: a small colour photograph, read pixel by pixel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssmprune.tasks import Split, Task, features, split_published

from .cifar import read_cifar

MEAN = np.array([0.4914, 0.4822, 0.4465])  # of the training pixels, red, green, blue in [0, 1]
STD = np.array([0.2470, 0.2435, 0.2616])


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


TASK = SequentialCifar()
