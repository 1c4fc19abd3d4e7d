"""LRA Retrieval: are two papers, read byte by byte, linked by citations? (ACL Anthology Network)

And what a single text is about, to learn to read from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.tasks import Documents, Inputs, Lengths, Split, Task

from .files import find_folder, read_rows
from .topics import shares, sort_words

Numbers = NDArray[np.int64]
LONGEST = 4000  # bytes of a document
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


def as_tokens(text: bytes) -> NDArray[np.uint16]:
    """Return a token for each byte, one higher: 0 is the padding."""
    return np.frombuffer(text, np.uint8).astype(np.uint16) + 1


def _label(text: bytes, path: Path) -> int:
    if text not in (b"0", b"1", b"0.0", b"1.0"):
        raise InputError(f"{path} has a label {text[:20]!r}; expected 0 or 1 in the first column.")
    return int(text[:1])


@dataclass(frozen=True)
class Retrieval(Task):
    """At most 4,000 bytes a document; x holds the first documents, then the second.

    To learn to read before the real pairs: with `documents=1` an example is a piece of one document, `length` bytes of
    it, and what is asked is how much of it is about each of the `topics`.
    """

    name = "retrieval"
    inputs = 257
    outputs = 2
    length: int = LONGEST
    documents: int = 2  # of an example
    topics: int = 64  # of words, where an example is one document
    tokens = True
    retrieval = True

    def __post_init__(self) -> None:
        """Refuse other numbers of documents than one or two; one document is another question."""
        if self.documents not in (1, 2):
            raise InputError(f"An example is of 1 or 2 documents; got documents={self.documents}.")
        if self.documents == 1:
            for name, value in (("outputs", self.topics), ("retrieval", False)):
                object.__setattr__(self, name, value)

    def read(self, split: str, root: Path) -> Split:
        """Read LRA's tsv of this split."""
        folder = find_folder(root, FOLDERS, FILES[split])
        if folder is None:
            raise InputError(
                f"There is no {FOLDERS[0]}/{FILES[split]} in {root}. It is part of the Long Range Arena: unpack "
                "https://storage.googleapis.com/long-range-arena/lra_release.gz (7.7 GB) there."
            )
        return self._read_pairs(folder / FILES[split]) if self.documents == 2 else self._read_pieces(folder, split)

    def _read_pairs(self, path: Path) -> Split:
        texts, pairs, labels = read_pairs(path, self.length)
        documents = Documents.join([as_tokens(text) for text in texts])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return documents.padded(pairs[rows].T.ravel(), self.length)

        return Split(labels, read, self.inputs, self.outputs, self.length)

    def _read_pieces(self, folder: Path, split: str) -> Split:
        """Cut documents into pieces; those of the training split decide on the topics, whatever is read."""
        training, _, _ = read_pairs(folder / FILES["train"], LONGEST)
        topics = sort_words(training, self.topics)
        texts = training if split == "train" else read_pairs(folder / FILES[split], LONGEST)[0]
        pieces, usual = self._pieces(texts), self._pieces(training)
        amounts, others = (np.stack([shares(piece, topics, self.topics) for piece in part]) for part in (pieces, usual))
        deviation = others.std(0)
        deviation[deviation == 0] = 1  # of a topic that has lost all its words
        amounts = (amounts - others.mean(0)) / deviation
        tokens = np.stack([as_tokens(piece) for piece in pieces])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return tokens[rows].astype(np.int64), np.full(len(rows), self.length, np.int64)

        return Split(amounts, read, self.inputs, self.outputs, self.length)

    def _pieces(self, texts: list[bytes]) -> list[bytes]:
        starts = [range(0, len(text) - self.length + 1, self.length) for text in texts]
        pieces = [text[at : at + self.length] for text, places in zip(texts, starts, strict=True) for at in places]
        if not pieces:
            raise InputError(f"No document is {self.length} bytes long; choose a smaller `length`.")
        return pieces


TASK = Retrieval()
