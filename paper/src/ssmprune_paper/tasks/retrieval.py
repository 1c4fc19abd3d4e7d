"""LRA Retrieval: are two papers, read byte by byte, linked by citations? (ACL Anthology Network)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.tasks import Inputs, Lengths, Split, Task, data_folder

from .documents import Documents
from .files import find_folder, read_rows

Numbers = NDArray[np.int64]
LONGEST = 4000  # bytes of a document
FORMER = ("documents", "topics")
FOLDERS = ("aan", "tsv_data", "film_pairs", ".")
FILES = {split: f"new_aan_pairs.{part}.tsv" for split, part in (("train", "train"), ("val", "eval"), ("test", "test"))}


def read_pairs(path: Path, length: int) -> tuple[list[bytes], Numbers, Numbers]:
    """Return distinct documents, the pairs (examples, 2) of their numbers, and labels.

    A row is: label, id, id, text, text. Papers occur in many pairs and are kept once, cut to `length` bytes.
    """
    numbers: dict[bytes, int] = {}
    pairs: list[list[int]] = []
    labels: list[int] = []
    for label, _, _, *texts in read_rows(path, 5):
        labels.append(_label(label, path))
        pairs.append([numbers.setdefault(text[:length], len(numbers)) for text in texts])
    return list(numbers), np.array(pairs, np.int64), np.array(labels, np.int64)


def read_texts(split: str, root: str | Path | None = None) -> list[bytes]:
    """Return the documents of a split, each once, without the pairs that they are in."""
    return read_pairs(_find(split, data_folder(root)), LONGEST)[0]


def as_tokens(text: bytes) -> NDArray[np.uint16]:
    """Return a token for each byte, one higher: 0 is the padding."""
    return np.frombuffer(text, np.uint8).astype(np.uint16) + 1


def _find(split: str, root: Path) -> Path:
    folder = find_folder(root, FOLDERS, FILES[split])
    if folder is None:
        raise InputError(
            f"There is no {FOLDERS[0]}/{FILES[split]} in {root}. It is part of the Long Range Arena: unpack "
            "https://storage.googleapis.com/long-range-arena/lra_release.gz (7.7 GB) there."
        )
    return folder / FILES[split]


def _label(text: bytes, path: Path) -> int:
    if text not in (b"0", b"1", b"0.0", b"1.0"):
        raise InputError(f"{path} has a label {text[:20]!r}; expected 0 or 1 in the first column.")
    return int(text[:1])


@dataclass(frozen=True)
class Retrieval(Task):
    """At most 4,000 bytes a document; x holds the first documents, then the second."""

    name = "retrieval"
    inputs = 257
    outputs = 2
    length: int = LONGEST
    tokens = True
    retrieval = True

    def replace(self, /, **changes: int) -> Task:
        """Return the same task with other parameters; cards of version 0.2.0 name two that it no longer has."""
        return super().replace(**{name: value for name, value in changes.items() if name not in FORMER})

    def read(self, split: str, root: Path) -> Split:
        """Read LRA's tsv of this split."""
        texts, pairs, labels = read_pairs(_find(split, root), self.length)
        documents = Documents.join([as_tokens(text) for text in texts])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return documents.padded(pairs[rows].T.ravel(), self.length)

        return Split(labels, read, self.inputs, self.outputs, self.length)


TASK = Retrieval()
