"""Generated arrays on disk: made once, complete or absent, and made again if a bit has flipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..files import digest, write_atomically

Arrays = dict[str, NDArray[Any]]


def cached(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in `path`; if it is absent or damaged, the ones from `make()`, which are then put there."""
    arrays = _read(path)
    if arrays is None:
        arrays = make()
        write_atomically(path, save(arrays, {"digest": digest(arrays)}))
    return arrays


def _read(path: Path) -> Arrays | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            announced = (file.metadata() or {}).get("digest")
    except (OSError, SafetensorError, KeyError, TypeError):  # the last two for types that numpy does not have
        return None
    return arrays if announced == digest(arrays) else None
