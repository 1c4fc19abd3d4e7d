"""Where data lies: the data folder, files that are fetched and unpacked into it, and what is made once and kept."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, need
from ..files import load_tensors, save_tensors, write_atomically
from ..progress import Bar
from .formats import read_records

VARIABLE = "SSMPRUNE_DATA"
MEMBERS, BYTES = 250_000, 6 * 2**30  # Speech Commands, the largest, has 106,000 files and 3.8 GB

_NOTHING_NEW: ContextVar[bool] = ContextVar("nothing_new", default=False)

Arrays: TypeAlias = dict[str, NDArray[Any]]


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Return `root`, else $SSMPRUNE_DATA, else the user's cache folder (which need not exist yet)."""
    named = root or os.environ.get(VARIABLE)
    if not named:
        unnamed = f"No data folder was named: give one (--data) or set ${VARIABLE}."
        why = f"{unnamed} To fetch data into your cache folder, pooch is needed"
        return Path(need("pooch", "data", why).os_cache("ssmprune"))
    folder = Path(named).expanduser()
    if not folder.is_dir():
        origin = "the data folder" if root else f"${VARIABLE}"
        raise InputError(f"{origin} is {folder}, which is not a folder. Make it, or name another.")
    return folder


@contextmanager
def as_found() -> Iterator[None]:
    """Fetch and make no data inside this context: what is not there is an error."""
    before = _NOTHING_NEW.set(True)
    try:
        yield
    finally:
        _NOTHING_NEW.reset(before)


def _refuse_new(path: Path) -> None:
    if _NOTHING_NEW.get():
        raise InputError(f"{path} does not exist.")


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


@dataclass(frozen=True)
class Source:
    """A file somebody publishes, with the checksum they publish."""

    url: str
    size: str  # for people: "11 MB"
    checksum: str  # "md5:..." or "sha256:..."

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[1]


def fetch(source: Source, folder: Path) -> Path:
    """Return `folder/name`, downloaded with a progress bar if it is not there yet, its checksum verified."""
    target = folder / source.name
    if target.exists():
        return target
    _refuse_new(target)
    by_hand = f"Get it by hand: {source.url} ({source.size}), to be put into {folder}."
    pooch = need("pooch", "data", f"{source.name} is missing. {by_hand} To have it fetched, pooch is needed")
    level = pooch.get_logger().level
    pooch.get_logger().setLevel("WARNING")
    try:
        bar = Bar(f"{source.name} ({source.size})", unit="bytes", brief=True)
        download = pooch.HTTPDownloader(progressbar=bar, timeout=30)
        pooch.retrieve(source.url, source.checksum, source.name, folder, downloader=download)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise InputError(f"{source.name} is missing and could not be fetched ({error}). {by_hand}") from error
    finally:
        pooch.get_logger().setLevel(level)
    return target


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
    _refuse_new(path)
    arrays = make()
    save_tensors(path, arrays)
    return arrays


def load_or_make_records(path: Path, pixels: int, make: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return the records in `path`; if there are none, those from `make()`, which are then put there."""
    with suppress(InputError):
        return read_records(path, pixels)
    _refuse_new(path)
    write_atomically(path, make().tobytes())
    return read_records(path, pixels)
