"""Files that are complete or absent: every artefact ssmprune writes goes through here."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

ABANDONED = 3600  # seconds after which a part that nobody has renamed belongs to a process that was killed


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` so that a crash leaves the old file or the new one, never a part of one.

    A temporary file in the same folder is filled, flushed to the disk and renamed over the target, so of several
    processes that write the same target one wins, with a whole file.
    """
    path = Path(path)
    temporary = None
    try:
        _refuse_other_than_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
        _flush_folder(path.parent)
        _remove_abandoned(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"Cannot write {path}: {reason}. Whatever was there before is untouched.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is there; folders, pipes and devices are no artefacts."""
    path = Path(path)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise InputError(f"Cannot read {str(path)!r}: {getattr(error, 'strerror', error)}.") from error
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"Cannot read {path}: it is {kind}; give the path of a file.")
    return path


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a file; what cannot be read is an error that names it."""
    try:
        return existing(path).read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error


def digest(arrays: Mapping[str, NDArray[Any]], about: str = "") -> str:
    """Return the same digits for the same names, types, shapes, numbers and description, and others otherwise.

    >>> digest({"x": np.zeros(2)}) == digest({"x": np.zeros(2)}), digest({"x": np.zeros(2)}) == digest({})
    (True, False)
    """
    sums = blake2b(about.encode(), digest_size=16)
    for name in sorted(arrays):
        sums.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        sums.update(np.ascontiguousarray(arrays[name]).tobytes())
    return sums.hexdigest()


def check_writable(path: Path) -> None:
    """Refuse now what `write_atomically` would refuse after hours of work, as far as it can be foreseen."""
    _refuse_other_than_file(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"Cannot write {path}: {folder} is {'write-protected' if folder.is_dir() else 'no folder'}.")


def _refuse_other_than_file(path: Path) -> None:
    """Refuse to rename over a folder or, for example, /dev/null."""
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "no regular file"
        raise InputError(f"{path} is {kind}; give the path of a file to write.")


def _flush_folder(folder: Path) -> None:
    """Make a rename survive a loss of power, where the system can."""
    with suppress(OSError, AttributeError):  # a rename that cannot be flushed is still a whole file
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed in the middle of writing the same target left behind."""
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(OSError):  # its owner, or another writer, was quicker
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()
