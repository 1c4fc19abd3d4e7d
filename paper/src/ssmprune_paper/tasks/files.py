"""Files of data sets: folders and archives, found or fetched; tables and records; data that are made once and kept."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.files import existing, load_tensors, save_tensors, write_atomically
from ssmprune.progress import Bar
from ssmprune.tasks import Source, fetch, refuse_new

MEMBERS, BYTES = 250_000, 6 * 2**30  # Speech Commands, the largest, has 106,000 files and 3.8 GB
LONGEST_LINE = 16 * 2**20

Arrays: TypeAlias = dict[str, NDArray[Any]]
Item = TypeVar("Item")


def cache_folder(root: Path) -> Path:
    """Return where generated and unpacked data is kept."""
    return root / "cache"


def find_folder(root: Path, folders: Iterable[str], marker: str) -> Path | None:
    """Return the first of `folders` below `root` (or below an unpacked LRA release) that holds `marker`."""
    for folder in folders:
        for above in (root, root / "lra_release", root / "lra_release" / "lra_release", cache_folder(root)):
            if (above / folder / marker).exists():
                return above / folder
    return None


def provide_folder(source: Source, root: Path, folders: tuple[str, ...], marker: str) -> Path:
    """Return the folder that holds `marker`: as found, or unpacked from the archive, which is there or fetched."""
    if folder := find_folder(root, folders, marker):
        return folder
    archive = fetch(source, root)
    unpack(archive, cache_folder(root) / archive.name.removesuffix(".tar.gz"))
    if folder := find_folder(root, folders, marker):
        return folder
    raise InputError(f"{archive} was unpacked, but there is no {folders[0]}/{marker} in it.")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar into `folder`, which is complete or absent, and which no member can leave."""
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            with tarfile.open(archive) as tar:
                tar.extractall(inside, _plain_members(tar, archive), filter="data")
            try:
                os.replace(inside, folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster, with the same content
                    raise
    except InputError:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError, ArithmeticError, zlib.error) as error:
        raise InputError(f"Cannot unpack {archive} to {folder} ({error}); is it complete?") from error
    return folder


def _plain_members(tar: tarfile.TarFile, archive: Path) -> Iterator[tarfile.TarInfo]:
    """Yield files and folders, as many as a data set may have; the filter "data" sees to it that they stay inside."""
    written = 0
    for number, member in enumerate(tar):
        written += member.size
        if number >= MEMBERS or written > BYTES:
            raise InputError(f"{archive} holds more than {MEMBERS:,} files or {BYTES:,} bytes; not what we expect.")
        if not (member.isreg() or member.isdir()):
            raise InputError(f"{archive} has a member {member.name!r} that is not a plain file; not unpacked.")
        if member.name.startswith("/"):  # the filter would put it inside
            raise InputError(f"{archive} has a member {member.name!r} outside its folder; not unpacked.")
        yield member


def load_or_make(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays in `path`; if it is absent or damaged, those from `make()`, which are then put there."""
    with suppress(InputError):
        return load_tensors(path)[0]
    refuse_new(path)
    arrays = make()
    save_tensors(path, arrays)
    return arrays


def load_or_make_records(path: Path, pixels: int, make: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return the records in `path`; if there are none, those from `make()`, which are then put there."""
    with suppress(InputError):
        return read_records(path, pixels)
    refuse_new(path)
    write_atomically(path, make().tobytes())
    return read_records(path, pixels)


def read_rows(path: Path, columns: int) -> Iterator[list[bytes]]:
    """Yield the fields of every line of a tab-separated file without quoting, as many as `columns`."""
    try:
        with existing(path).open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                fields = line.rstrip(b"\r\n").split(b"\t")
                if len(fields) != columns or (len(line) == LONGEST_LINE and not line.endswith(b"\n")):
                    raise InputError(
                        f"{path}, line {number}: {len(fields)} columns in {len(line):,} bytes; "
                        f"expected {columns} in at most {LONGEST_LINE:,}."
                    )
                yield fields
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error}).") from error


def read_records(path: Path, pixels: int) -> NDArray[np.uint8]:
    """Return records (examples, 1 + pixels) mapped from a file: a byte for the label, then the pixels.

    The format of CIFAR-10's binary version and of our own pictures; nothing is read before it is used.
    """
    try:
        size = existing(path).stat().st_size
        if size == 0 or size % (1 + pixels):
            raise InputError(f"{path} has {size} bytes, not a multiple of {1 + pixels}; fetch it again.")
        return np.memmap(path, np.uint8, "r").reshape(-1, 1 + pixels)
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error}).") from error


def track(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Yield the items, showing how many of `total` are done.

    >>> list(track("abc", total=3, text="Spelling"))
    ['a', 'b', 'c']
    """
    with Bar(text, total, brief=True) as bar:
        for item in items:
            yield item
            bar.update()
