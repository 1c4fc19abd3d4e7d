"""Plan files inside the page: cut into pieces, so that what plans share is there once, and put together on download."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Cut:
    """A plan file as consecutive pieces: its header, then one tensor each."""

    pieces: list[bytes]
    keep: dict[str, int]  # {layer: which piece is its mask}

    @classmethod
    def read(cls, path: Path) -> Cut:
        """Cut a safetensors file at the borders of its tensors; the pieces joined are the file."""
        content = path.read_bytes()
        start = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        tensors = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        bounds = [start + tensor["data_offsets"][0] for _, tensor in tensors] + [len(content)]
        pieces = [content[: bounds[0]], *(content[a:b] for a, b in pairwise(bounds))]
        keep = {
            name.removeprefix("keep/"): place for place, (name, _) in enumerate(tensors, 1) if name.startswith("keep/")
        }
        return cls(pieces, keep)


class Store:
    """Compressed pieces, each different one once; masks are stored as bits, and say of how many states they are."""

    def __init__(self) -> None:
        """Start empty."""
        self.encoded: list[str | list[int | str]] = []
        self._places: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Return its bytes in the page."""
        return sum(map(_size, self.encoded))

    def add(self, piece: bytes) -> int:
        """Store a piece unless it is there, and return its number."""
        if piece not in self._places:
            self._places[piece] = len(self.encoded)
            self.encoded.append(_encode(piece))
        return self._places[piece]

    def growth(self, pieces: list[bytes]) -> int:
        """Return by how many bytes these would let the page grow."""
        return sum(_size(_encode(piece)) for piece in set(pieces) if piece not in self._places)


def _encode(piece: bytes) -> str | list[int | str]:
    numbers = np.frombuffer(piece, np.uint8)
    if len(numbers) and numbers.max() <= 1:
        return [len(numbers), _compress(np.packbits(numbers).tobytes())]
    return _compress(piece)


def _compress(piece: bytes) -> str:
    return base64.b64encode(zlib.compress(piece, 9)).decode()


def _size(encoded: str | list[int | str]) -> int:
    return len(encoded) if isinstance(encoded, str) else len(json.dumps(encoded))
