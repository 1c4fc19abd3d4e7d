"""LRA Retrieval: are two papers, read byte by byte, linked by citations? (ACL Anthology Network)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ._data import find_folder
from ._formats import read_rows
from ._padding import Documents
from ._task import Inputs, Lengths, Split, Task

Numbers = NDArray[np.int64]
FOLDERS = ("aan", "tsv_data", "film_pairs", ".")
FILES = {split: f"new_aan_pairs.{part}.tsv" for split, part in (("train", "train"), ("val", "eval"), ("test", "test"))}


def read_pairs(path: Path, length: int, *, halves: bool = False) -> tuple[Documents, Numbers, Numbers]:
    """Return distinct documents, the pairs (examples, 2) of their numbers, and labels.

    A row is: label, id, id, text, text. Papers occur in many pairs and are kept once, cut to `length` bytes.

    halves: compare the first half of a text with the second, of the same text where the label is 1.
    """
    numbers: dict[bytes, int] = {}
    pairs: list[list[int]] = []
    labels: list[int] = []
    for label, _, _, *texts in read_rows(path, 5):
        labels.append(_label(label, path))
        if halves:
            first, second = texts[0], texts[0] if labels[-1] else texts[1]
            texts = [first[: len(first) // 2], second[len(second) // 2 :]]
        pairs.append([numbers.setdefault(text[:length], len(numbers)) for text in texts])
    # A byte becomes the token one higher: 0 is the padding.
    documents = Documents.join([np.frombuffer(text, np.uint8).astype(np.uint16) + 1 for text in numbers])
    return documents, np.array(pairs, np.int64), np.array(labels, np.int64)


def _label(text: bytes, path: Path) -> int:
    if text not in (b"0", b"1", b"0.0", b"1.0"):
        raise InputError(f"{path} has a label {text[:20]!r}; expected 0 or 1 in the first column.")
    return int(text[:1])


@dataclass(frozen=True)
class Retrieval(Task):
    """At most 4,000 bytes a document; x holds the first documents, then the second.

    To learn from before the real pairs: with `documents=1`, those that belong together are halves of one document.
    """

    name = "retrieval"
    inputs = 257
    outputs = 2
    length: int = 4000
    documents: int = 2  # that pairs with label 1 are of
    tokens = True
    retrieval = True

    def __post_init__(self) -> None:
        """Refuse other numbers of documents than one or two."""
        if self.documents not in (1, 2):
            raise InputError(f"A pair is of 1 or 2 documents; got documents={self.documents}.")

    def read(self, split: str, root: Path) -> Split:
        """Read LRA's tsv of this split."""
        folder = find_folder(root, FOLDERS, FILES[split])
        if folder is None:
            raise InputError(
                f"There is no {FOLDERS[0]}/{FILES[split]} in {root}. It is part of the Long Range Arena: unpack "
                "https://storage.googleapis.com/long-range-arena/lra_release.gz (7.7 GB) there."
            )
        documents, pairs, labels = read_pairs(folder / FILES[split], self.length, halves=self.documents == 1)

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return documents.padded(pairs[rows].T.ravel(), self.length)

        return Split(labels, read, self.inputs, self.outputs, self.length)


TASK = Retrieval()
