"""LRA ListOps: the value, a digit, of a long nested expression such as [MAX 2 [MIN 4 7 ] 0 ]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.tasks import Inputs, Lengths, Split, Task

from .documents import Documents
from .files import Arrays, cache_folder, find_folder, load_or_make, read_rows, track
from .listops_trees import TOKENS, draw

FOLDERS = ("listops", "listops-1000", ".")
LRA_LENGTHS = (500, 2000)
DRAWING = 1  # to be raised when the same seed draws other expressions, so that none are kept from before
SIZES = {"test": 2000, "val": 2000}
_UNKNOWN = 255
_MARKS = {f"{token} ".encode(): bytes([128 + code]) for code, token in enumerate(TOKENS) if token[0] == "["}
_CODES = bytearray([_UNKNOWN] * 256)
for _code, _token in enumerate(TOKENS):
    _CODES[128 + _code if _token[0] in "[<" else ord(_token)] = _code


def encode(expression: bytes) -> bytes:
    """Return the tokens of an expression; the parentheses with which LRA's files group pairs are deleted.

    >>> list(encode(b"( ( ( [MAX 2 ) 9 ) ] )"))
    [12, 3, 10, 15]
    """
    if not expression.isascii():
        return bytes([_UNKNOWN])
    for operator, mark in _MARKS.items():  # one byte a token, then one table for all of them
        expression = expression.replace(operator, mark)
    return expression.translate(_CODES, b" ()")


def read_expressions(path: Path) -> Iterable[tuple[bytes, int]]:
    """Yield tokens and values in one of LRA's files: a line of titles, then expression and value."""
    for number, (source, target) in enumerate(read_rows(path, 2)):
        if number == 0 and source == b"Source":
            continue
        tokens = encode(source)
        if not tokens or _UNKNOWN in tokens or len(target) != 1 or not target.isdigit():
            raise InputError(f"{path}, line {number + 1}: expected an expression and a digit, found {source[:60]!r}.")
        yield tokens, int(target)


def pack(examples: Iterable[tuple[bytes, int]], name: str) -> Arrays:
    """Return expressions and values as three arrays."""
    expressions, values = [], []
    for expression, value in examples:
        expressions.append(np.frombuffer(expression, np.uint8))
        values.append(value)
    documents = Documents.join(expressions)
    return {
        f"{name}.tokens": documents.tokens,
        f"{name}.starts": documents.starts,
        f"{name}.values": np.array(values, np.int64),
    }


@dataclass(frozen=True)
class ListOps(Task):
    """Expressions of shortest < tokens < length, drawn from `seed`, or those in LRA's files where they are found.

    Test and validation come first from the stream: they stay the same when `examples`, the number of expressions
    to train with, changes.
    """

    name = "listops"
    inputs = len(TOKENS)
    outputs = 10
    length: int = LRA_LENGTHS[1]
    tokens = True
    shortest: int = LRA_LENGTHS[0]
    examples: int = 96_000
    seed: int = 0

    def read(self, split: str, root: Path) -> Split:
        """Read LRA's tsv, or draw the expressions once and keep them."""
        if self.shortest + 1 >= self.length:
            raise InputError(
                f"No expression has more than {self.shortest} and less than {self.length} tokens; lower `shortest`, or "
                "raise `length`."
            )
        folder = find_folder(root, FOLDERS, f"basic_{split}.tsv")
        if folder and self.length > LRA_LENGTHS[0]:  # its files have nothing shorter
            rows = read_expressions(folder / f"basic_{split}.tsv")
            fitting = (row for row in rows if self.shortest < len(row[0]) < self.length)
            arrays = pack(islice(fitting, self.examples if split == "train" else None), split)
        else:
            name = f"listops{DRAWING}-{self.seed}-{self.shortest}-{self.length}-{self.examples}.safetensors"
            arrays = load_or_make(cache_folder(root) / name, self.draw)
        documents = Documents(arrays[f"{split}.tokens"], arrays[f"{split}.starts"])

        def read(rows: NDArray[np.int64]) -> tuple[Inputs, Lengths]:
            return documents.padded(rows, self.length)

        return Split(arrays[f"{split}.values"], read, self.inputs, self.outputs, self.length)

    def draw(self) -> Arrays:
        """Draw all three splits."""
        sizes = {**SIZES, "train": self.examples}
        stream = islice(draw(self.shortest, self.length, self.seed), sum(sizes.values()))
        examples = iter(track(stream, sum(sizes.values()), "drawing ListOps"))
        arrays: Arrays = {}
        for split, size in sizes.items():
            arrays |= pack(islice(examples, size), split)
        return arrays


TASK = ListOps()
