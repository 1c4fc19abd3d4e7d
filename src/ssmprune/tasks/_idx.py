"""Reader of idx files, the format of MNIST: a magic number, the dimensions, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

DEFLATE_RATIO = 1032  # no deflate stream grows more than this, so a larger claim is false
LARGEST = 512 * 2**20


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """The unsigned bytes in an idx file of `dims` dimensions, gzipped if its name ends in .gz."""
    packed = path.suffix == ".gz"
    try:
        size = path.stat().st_size * (DEFLATE_RATIO if packed else 1)
        with cast("IO[bytes]", gzip.open(path) if packed else path.open("rb")) as file:
            shape = _read_shape(file, dims, path)
            count = math.prod(shape)
            if count > min(size, LARGEST):
                raise InputError(f"{path} claims {shape} bytes of data, more than such a file can hold.")
            content = file.read(count)
            if len(content) < count:
                raise InputError(f"{path} is cut short: {count} bytes of data announced, {len(content)} there.")
            if file.read(1):
                raise InputError(f"{path} goes on after the {count} bytes it announced; fetch it again.")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {path} ({error}); fetch it again.") from error
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_shape(file: IO[bytes], dims: int, path: Path) -> tuple[int, ...]:
    header = file.read(4 * (1 + dims))
    expected = bytes([0, 0, 8, dims])  # two zeros, the code of unsigned bytes, the number of dimensions
    if header[:4] != expected:
        raise InputError(
            f"{path} is no idx file of {dims}-dimensional bytes: it starts with {header[:4].hex(' ') or 'nothing'}, "
            f"expected {expected.hex(' ')}."
        )
    if len(header) < 4 * (1 + dims):
        raise InputError(f"{path} is cut short inside its header.")
    return cast("tuple[int, ...]", struct.unpack(f">{dims}I", header[4:]))
