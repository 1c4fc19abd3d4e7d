"""Files that are complete or absent: every artefact ssmprune writes goes through here."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import is_count, is_number, is_share
from .errors import InputError

ABANDONED = 3600  # seconds after which a temporary file must be that of a process that was killed
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
OURS = "ssmprune-"  # the names of our formats begin with this
READERS = {  # how to read a file of each format
    "ssmprune-classifier": "ssmprune.load(path)",
    "ssmprune-plan": "ssmprune.Plan.load(path)",
    "ssmprune-pruned-module": "ssmprune.load_pruned(model, path), with the model built whole by its own code",
}


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` so that a crash leaves the old file or the new one, both whole.

    A temporary file in the same folder is filled, flushed to the disk and renamed over the target, so of several
    processes that write the same target one wins, with a whole file. A symbolic link stays one: its target is written.
    """
    write_together({Path(path): content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write several files as `write_atomically` does: none is renamed before all are on the disk."""
    temporaries: dict[Path, str] = {}
    path = Path()
    try:
        for path in map(_without_links, contents):
            _refuse_other_than_file(path)
            path.parent.mkdir(parents=True, exist_ok=True)
        for path, content in zip(map(_without_links, contents), contents.values(), strict=True):
            handle, temporaries[path] = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporaries[path], 0o644)
        for path in list(temporaries):
            os.replace(temporaries[path], path)
            del temporaries[path]
            _flush_folder(path.parent)
            _remove_abandoned(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"Cannot write {path}: {reason}. Whatever was there before is untouched.") from error
    finally:
        for temporary in temporaries.values():
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to fill; once it is filled it becomes `path`, so that a crash leaves all of it or nothing."""
    check_new_folder(path)
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent, ignore_cleanup_errors=True) as place:
            yield Path(place)
            os.chmod(place, 0o755)
            _flush_folder(Path(place))
            if path.is_dir():
                path.rmdir()  # empty, and not every system renames over a folder
            os.replace(place, path)
        _flush_folder(path.parent)
        _remove_abandoned(path)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}.") from error


def safe_folder(folder: Path, otherwise: str = "set XDG_CACHE_HOME to a folder that is") -> Path:
    """Return a folder, made if need be, whose content nobody but its owner (or root) can exchange."""
    try:
        for place in (*reversed(folder.parents), folder):  # `mkdir(parents=True)` would not make parents private
            if not place.exists():
                place.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve(strict=True)
    except OSError as error:
        raise InputError(f"Cannot use {folder} for compiled models: {error.strerror or error}.") from error
    for place in (folder, *folder.parents):
        refuse_unsafe(place, otherwise)
    return folder


def refuse_unsafe(path: Path, otherwise: str = "delete it") -> None:
    """Refuse a file or folder that somebody else could have written; what runs must be what was built."""
    if not hasattr(os, "getuid"):  # Windows, where a user's folders are the user's own
        return
    about = path.lstat()
    # In a folder such as /tmp anybody may write but nobody may rename what belongs to another.
    shared = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    if about.st_uid not in (0, os.getuid()) or (about.st_mode & WRITABLE_BY_OTHERS and not shared):
        raise InputError(
            f"{path} can be written by others, so no code is run from below it; "
            f"make it yours alone (chmod go-w) or {otherwise}."
        )


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that exists; refuse folders, pipes and devices."""
    path = Path(path)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise InputError(f"Cannot read {str(path)!r}: {getattr(error, 'strerror', error)}.") from error
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"Cannot read {path}: it is {kind}; give the path of a file.")
    return path


def read_whole(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return all bytes of a file of at most `most` bytes; what cannot be read is an error that names it."""
    path = existing(path)
    try:
        with path.open("rb") as file:
            content = file.read() if most is None else file.read(most + 1)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if most is not None and len(content) > most:
        raise InputError(f"{path} has more than {most:,} bytes; too many for what it should hold.")
    return content


class Kind(NamedTuple):
    """What an entry of a JSON file may be: in words for errors, and as a test."""

    expected: str
    fits: Callable[[Any], bool]


TEXT = Kind("a text", lambda value: isinstance(value, str))
NUMBER = Kind("a number", is_number)
FINITE = Kind("a finite number", lambda value: is_number(value) and abs(value) < 1e300)
SHARE = Kind("a number from 0 to 1", is_share)
COUNT = Kind("a whole number, at least 0", is_count)
COUNTS = Kind("names with whole numbers", lambda value: isinstance(value, dict) and all(map(is_count, value.values())))


def list_of(kind: Kind) -> Kind:
    """Return the kind of lists whose members are all of one kind."""
    return Kind(f"a list, each {kind.expected}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


def check_entries(origin: object, entries: Any, needed: Mapping[str, Kind], optional: Mapping[str, Kind]) -> None:
    """Refuse anything but a JSON object that has all needed entries, each of its kind.

    origin: the file, and the place in it, for the error. optional: entries that may also be absent, or null.

    >>> check_entries("card.json", {"task": ["x"]}, {}, {"task": TEXT})
    Traceback (most recent call last):
    ssmprune.errors.InputError: card.json: 'task' must be a text; it is ['x'].
    """
    if not isinstance(entries, dict):
        raise InputError(f"{origin} must hold a JSON object; it holds {type(entries).__name__}.")
    if missing := [name for name in needed if name not in entries]:
        raise InputError(f"{origin} lacks {', '.join(map(repr, missing))}; it is damaged.")
    for name, kind in {**needed, **optional}.items():
        value = entries.get(name)
        if not kind.fits(value) and not (name not in needed and value is None):
            raise InputError(f"{origin}: {name!r} must be {kind.expected}; it is {value!r:.100}.")


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], about: Mapping[str, str] | None = None
) -> None:
    """Write arrays, and texts about them, as one safetensors file: complete or absent, with a digest of its content.

    The same content gives the same bytes, and a file that `load_tensors` accepts is the one that was written.
    """
    from safetensors.numpy import save

    tensors = {name: np.asarray(values, order="C") for name, values in tensors.items()}  # saved as they lie in memory
    metadata = {**(about or {})}
    metadata["digest"] = _digest_of_file(tensors, metadata)
    write_atomically(path, _with_metadata(save(tensors), metadata))


def load_tensors(
    path: str | os.PathLike[str], *, needs_digest: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and the texts that `save_tensors` wrote; a damaged file, or one of another kind, is an error.

    needs_digest: False accepts a file without a digest; a wrong one is refused all the same.
    """
    from safetensors import SafetensorError, safe_open

    path = existing(path)
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # the last three for types numpy lacks
        raise InputError(f"{path} is damaged or not a safetensors file that numpy can read ({error}).") from error
    announced = about.pop("digest", None)
    if announced is None and needs_digest:
        raise InputError(f"{path} was not saved by ssmprune, or is damaged: it has no digest.")
    if announced not in (None, _digest_of_file(tensors, about)):
        raise InputError(f"{path} is damaged: its digest is wrong. Fetch or make it again.")
    return tensors, about


def check_format(path: str | os.PathLike[str], about: Mapping[str, str], name: str, version: int) -> None:
    """Refuse a file whose `format` and `version` are not those that a reader expects."""
    given = about.get("format", "")
    if given != name and given.startswith(OURS):
        kinds = [kind.removeprefix(OURS).replace("-", " ") for kind in (given, name)]
        reader = f" Read it with {READERS[given]}." if given in READERS else ""
        raise InputError(f"{path} is a {kinds[0]:.40}; expected a {kinds[1]}.{reader}")
    if given != name:
        raise InputError(f"{path} was not saved by ssmprune (its format is {given or None!r:.40}).")
    if about.get("version") != str(version):
        raise InputError(f"{path} has version {about.get('version')}; this ssmprune reads version {version}.")


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


def _digest_of_file(tensors: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> str:
    """Return the digest of arrays and texts, but for format and version: those are compared with what is expected."""
    return digest(tensors, "".join(about[key] for key in sorted(about.keys() - {"format", "version"})))


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Put texts into a safetensors file, ordered by name, since the library's own order changes from run to run."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = {"__metadata__": dict(sorted(metadata.items())), **json.loads(content[8:start])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def check_writable(path: Path) -> None:
    """Refuse now, as far as can be foreseen, what `write_atomically` would refuse after hours of work."""
    path = _without_links(path)
    _refuse_other_than_file(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(
            f"Cannot write {path}: {folder} is {'write-protected' if folder.is_dir() else 'not a folder'}."
        )


def check_new_folder(path: Path) -> None:
    """Refuse now a folder that `new_folder` could not make: one with something in it, or in a protected place."""
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"The folder {path} is not empty; give a new one, or remove it first.")
    check_writable(path / "file")
    if path.is_dir():
        check_writable(path.absolute().parent / "file")


def _without_links(path: Path) -> Path:
    """Return the path that a symbolic link leads to, whether or not anything is there."""
    final = Path(os.path.realpath(path))
    if final.is_symlink():
        raise InputError(f"Cannot write {path}: it is a link that leads in a circle.")
    return final


def _refuse_other_than_file(path: Path) -> None:
    """Refuse to rename over a folder or, for example, /dev/null."""
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
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
    """Remove the temporary files of processes that were killed while they wrote the same target."""
    for temporary in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(OSError):  # another process may have removed it
            if time.time() - temporary.stat().st_mtime > ABANDONED:
                shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
