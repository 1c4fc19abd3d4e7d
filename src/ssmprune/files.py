"""Files that are complete or absent: every artefact ssmprune writes goes through here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import InputError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` so that a crash leaves the old file or the new one, never a part of one.

    A temporary file in the same folder is filled, flushed to the disk and renamed over the target.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the path of a file to write.")
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"Cannot write {path}: {reason}. Whatever was there before is untouched.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
