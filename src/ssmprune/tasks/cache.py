"""Generated arrays on disk: made once, complete or absent, and made again if a bit has flipped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..files import write_atomically

Arrays = dict[str, NDArray[Any]]


def cached(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in `path`; if it is absent or damaged, the ones from `make()`, which are then put there."""
    arrays = _read(path)
    if arrays is None:
        arrays = make()
        write_atomically(path, save(arrays, {"digest": _digest(arrays)}))
    return arrays


def _read(path: Path) -> Arrays | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            announced = (file.metadata() or {}).get("digest")
    except SafetensorError:
        return None
    return arrays if announced == _digest(arrays) else None


def _digest(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
