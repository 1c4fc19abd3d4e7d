"""Readers of formats that data sets are published in: idx and wav."""

from __future__ import annotations

import gzip
import io
import math
import struct
import wave
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..files import read_whole

DEFLATE_RATIO = 1032  # no deflate stream grows more than this, so a larger claim is false
LARGEST_IDX = 512 * 2**20
LARGEST_WAV = 16 * 2**20


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes in an idx file of `dims` dimensions, gzipped if its name ends in .gz.

    The format of MNIST: a magic number, the dimensions, then bytes.
    """
    content = read_whole(path, LARGEST_IDX)
    packed = path.suffix == ".gz"
    most = min(LARGEST_IDX, len(content) * (DEFLATE_RATIO if packed else 1))
    file = io.BytesIO(content)
    try:
        return _read_idx(cast("IO[bytes]", gzip.open(file)) if packed else file, dims, most, path)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {path} ({error}); fetch it again.") from error


def _read_idx(file: IO[bytes], dims: int, most: int, path: Path) -> NDArray[np.uint8]:
    header = file.read(4 * (1 + dims))
    expected = bytes([0, 0, 8, dims])  # two zeros, the code of unsigned bytes, the number of dimensions
    if header[:4] != expected:
        raise InputError(
            f"{path} is not an idx file of {dims}-dimensional bytes: it starts with "
            f"{header[:4].hex(' ') or 'nothing'}, expected {expected.hex(' ')}."
        )
    if len(header) < 4 * (1 + dims):
        raise InputError(f"{path} is cut short inside its header.")
    shape = struct.unpack(f">{dims}I", header[4:])
    count = math.prod(shape)
    if count > most:
        raise InputError(f"{path} claims {shape} bytes of data, more than such a file can hold.")
    data = file.read(count)
    if len(data) < count:
        raise InputError(f"{path} is cut short: {count} bytes of data announced, {len(data)} there.")
    if file.read(1):
        raise InputError(f"{path} continues after the {count} bytes it announced; fetch it again.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def to_idx(array: NDArray[np.uint8]) -> bytes:
    """Return a gzipped idx file, the same bytes every time."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), 9, mtime=0)


def read_wav(path: Path) -> tuple[NDArray[np.int16], int]:
    """Return samples and rate of a mono file of 16-bit integers."""
    content = read_whole(path, LARGEST_WAV)
    try:
        with wave.open(io.BytesIO(content)) as clip:
            channels, size, rate, count = clip.getparams()[:4]
            samples = clip.readframes(count)
    except (wave.Error, EOFError, RuntimeError) as error:  # the last one from seeking past the end
        raise InputError(f"{path} is not a wav file, or is cut short ({error or 'its end is missing'}).") from error
    if (channels, size) != (1, 2):
        raise InputError(f"{path} has {channels} channels of {8 * size} bits; expected 1 of 16.")
    if len(samples) < 2 * count:
        raise InputError(f"{path} is cut short: {2 * count} bytes of samples announced, {len(samples)} there.")
    return np.frombuffer(samples, "<i2").astype(np.int16, copy=False), rate
