"""Files of records: a byte for the label, then the pixels. CIFAR-10's binary version and our own pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..files import write_atomically


def read_records(path: Path, pixels: int) -> NDArray[np.uint8]:
    """Records (examples, 1 + pixels) mapped from the file: nothing is read before it is used."""
    try:
        size = path.stat().st_size
        if size == 0 or size % (1 + pixels):
            raise InputError(f"{path} has {size} bytes, not a multiple of {1 + pixels}; fetch it again.")
        return np.memmap(path, np.uint8, "r").reshape(-1, 1 + pixels)
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error}).") from error


def kept_records(path: Path, pixels: int, make: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The records in `path`; if there are none, those from `make()`, which are then put there."""
    if not path.is_file() or path.stat().st_size == 0 or path.stat().st_size % (1 + pixels):
        write_atomically(path, make().tobytes())
    return read_records(path, pixels)
