"""Reader of wav files: chunks, each with a name and a size; "fmt " tells how "data" is to be understood."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

LARGEST = 16 * 2**20


def read_wav(path: Path) -> tuple[NDArray[np.int16], int]:
    """Samples and rate of a mono file of 16-bit integers."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} has more than {LARGEST:,} bytes; that is no clip of a word.")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error}).") from error
    chunks = _chunks(content, path)
    if len(chunks.get(b"fmt ", b"")) < 16 or b"data" not in chunks:
        raise InputError(f"{path} is no wav file: it needs a 'fmt ' and a 'data' chunk.")
    coding, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunks[b"fmt "][:16])
    if (coding, channels, bits) != (1, 1, 16):
        raise InputError(f"{path} has {channels} channels of {bits} bits in coding {coding}; expected 1 of 16 in 1.")
    samples = chunks[b"data"]
    return np.frombuffer(samples[: len(samples) // 2 * 2], "<i2").astype(np.int16, copy=False), rate


def _chunks(content: bytes, path: Path) -> dict[bytes, bytes]:
    """Every chunk by its name."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise InputError(f"{path} is no wav file: it starts with {content[:12]!r}.")
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        chunks[name] = content[at + 8 : at + 8 + size]
        if len(chunks[name]) < size:
            raise InputError(f"{path} is cut short: {size} bytes of {name!r} announced, {len(chunks[name])} there.")
        at += 8 + size + size % 2  # chunks begin at even places
    return chunks
