"""The data folder, the files that are fetched into it, and the format of MNIST's."""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, need
from ..files import read_whole
from ..progress import Bar

VARIABLE = "SSMPRUNE_DATA"
DEFLATE_RATIO = 1032  # no deflate stream grows more than this, so a larger claim is false
LARGEST_IDX = 512 * 2**20

_NOTHING_NEW: ContextVar[bool] = ContextVar("nothing_new", default=False)


def is_named(root: str | os.PathLike[str] | None) -> bool:
    """Return whether a data folder is named, by an argument or by $SSMPRUNE_DATA."""
    return bool(root or os.environ.get(VARIABLE))


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Return `root`, else $SSMPRUNE_DATA, else the user's cache folder (which need not exist yet)."""
    named = root or os.environ.get(VARIABLE)
    if not named:
        known = find_spec("pooch") is not None
        return Path(need("pooch", "data", "").os_cache("ssmprune") if known else Path.home() / ".cache" / "ssmprune")
    folder = Path(named).expanduser()
    if not folder.is_dir():
        origin = "the data folder" if root else f"${VARIABLE}"
        raise InputError(f"{origin} is {folder}, which is not a folder. Make it, or name another.")
    return folder


@contextmanager
def as_found() -> Iterator[None]:
    """Fetch and make no data inside this context: a missing file is an error."""
    before = _NOTHING_NEW.set(True)
    try:
        yield
    finally:
        _NOTHING_NEW.reset(before)


def refuse_new(path: Path) -> None:
    """Raise an error inside `as_found`: this file does not exist, and may not be made."""
    if _NOTHING_NEW.get():
        raise InputError(f"{path} does not exist.")


@dataclass(frozen=True)
class Source:
    """A published file, with its published checksum."""

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
    refuse_new(target)
    by_hand = f"Get it by hand: {source.url} ({source.size}), to be put into {folder}."
    pooch = need("pooch", "data", f"{source.name} is missing. {by_hand} To have it fetched, pooch is needed")
    level = pooch.get_logger().level
    pooch.get_logger().setLevel("WARNING")
    try:
        bar = Bar(f"{source.name} ({source.size})", in_bytes=True, brief=True)
        download = pooch.HTTPDownloader(progressbar=bar, timeout=30)
        pooch.retrieve(source.url, source.checksum, source.name, folder, downloader=download)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise InputError(f"{source.name} is missing and could not be fetched ({error}). {by_hand}") from error
    finally:
        pooch.get_logger().setLevel(level)
    return target


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
