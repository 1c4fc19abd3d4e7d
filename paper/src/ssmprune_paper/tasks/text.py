"""LRA Text: is a film review, read character by character, favourable? (IMDB)"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.files import read_whole
from ssmprune.tasks import Inputs, Lengths, Source, Split, Task, split_published

from .documents import Documents
from .files import provide_folder, track

SOURCE = Source(
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "80 MB",
    "md5:7c2ac02c03563afcf9b574c7e56c153a",
)
FOLDERS = ("aclImdb", "aclImdb_v1/aclImdb")
PAD, UNKNOWN, END = 0, 1, 2
OFTEN = 15
LARGEST = 2**20  # the longest review has 14 kB


def read_reviews(folder: Path) -> tuple[list[NDArray[np.uint32]], NDArray[np.int64]]:
    """Return reviews as code points, and labels (1 = favourable), from `neg/*.txt` and `pos/*.txt`, sorted by name."""
    files = [sorted((folder / mood).glob("*.txt")) for mood in ("neg", "pos")]
    if not all(files):
        raise InputError(f"Expected reviews in {folder}/neg/*.txt and {folder}/pos/*.txt; one of them is empty.")
    all_files = files[0] + files[1]
    reviews = [_read(file) for file in track(all_files, len(all_files), f"reading {folder.name} reviews")]
    return reviews, np.repeat([0, 1], [len(files[0]), len(files[1])])


def _read(file: Path) -> NDArray[np.uint32]:
    try:
        return np.frombuffer(read_whole(file, LARGEST).decode("utf-8").encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}).") from error


def vocabulary(reviews: list[NDArray[np.uint32]]) -> NDArray[np.int64]:
    """Return the characters that occur at least 15 times, sorted; the first of them is token 3."""
    return np.flatnonzero(np.bincount(np.concatenate(reviews)) >= OFTEN)


def token_table(characters: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return the token of every character there can be."""
    table = np.full(sys.maxunicode + 1, UNKNOWN, np.uint16)
    table[characters] = END + 1 + np.arange(len(characters))
    return table


@dataclass(frozen=True)
class Text(Task):
    """At most 4,095 characters and <eos>; a tenth of the training reviews validates."""

    name = "text"
    inputs = 136
    outputs = 2
    length: int = 4096
    tokens = True

    def read(self, split: str, root: Path) -> Split:
        """Read the aclImdb folder; its training part decides on the vocabulary, whatever is read."""
        folder = provide_folder(SOURCE, root, FOLDERS, "train")
        reviews, labels = read_reviews(folder / "train")
        characters = vocabulary(reviews)
        if split == "test":
            reviews, labels = read_reviews(folder / "test")
        table, end = token_table(characters), np.array([END], np.uint16)
        documents = Documents.join([np.append(table[review[: self.length - 1]], end) for review in reviews])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return documents.padded(rows, self.length)

        return split_published(Split(labels, read, END + 1 + len(characters), self.outputs, self.length), split)


TASK = Text()
