"""Fetch a publisher's file once, check it, unpack it safely."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ._locations import cache_folder, find, optional

MEMBERS, BYTES = 250_000, 6 * 2**30  # Speech Commands, the largest, has 106,000 files and 3.8 GB


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
    """`folder/name`, downloaded with a progress bar if it is not there yet, its checksum verified."""
    target = folder / source.name
    if target.exists():
        return target
    by_hand = f"Get it by hand: {source.url} ({source.size}), to be put into {folder}."
    pooch = optional("pooch", f"{source.name} is not there. {by_hand}")
    quiet = pooch.get_logger().level
    pooch.get_logger().setLevel("WARNING")
    try:
        download = pooch.HTTPDownloader(progressbar=_Bar(f"{source.name} ({source.size})"), timeout=30)
        pooch.retrieve(source.url, source.checksum, source.name, folder, downloader=download)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise InputError(f"{source.name} is not there and could not be fetched ({error}). {by_hand}") from error
    finally:
        pooch.get_logger().setLevel(quiet)
    return target


def unpacked(source: Source, root: Path, folders: tuple[str, ...], marker: str) -> Path:
    """The folder with `marker` in it: found, or unpacked from the archive, which is there or fetched."""
    if folder := find(root, folders, marker):
        return folder
    archive = fetch(source, root)
    unpack(archive, cache_folder(root) / archive.name.removesuffix(".tar.gz"))
    if folder := find(root, folders, marker):
        return folder
    raise InputError(f"{archive} was unpacked, but there is no {folders[0]}/{marker} in it.")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar into `folder`, which is complete or absent, and out of which no member can reach."""
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            inside = Path(temporary) / folder.name
            inside.mkdir()
            with tarfile.open(archive) as tar:
                _extract(tar, inside, archive)
            try:
                os.replace(inside, folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster, with the same content
                    raise
    except InputError:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise InputError(f"Cannot unpack {archive} to {folder} ({error}); is it complete?") from error
    return folder


def _extract(tar: tarfile.TarFile, folder: Path, archive: Path) -> None:
    written = 0
    for number, member in enumerate(tar):
        written += member.size
        if number >= MEMBERS or written > BYTES:
            raise InputError(f"{archive} holds more than {MEMBERS:,} files or {BYTES:,} bytes; not what we expect.")
        target = Path(os.path.normpath(folder / member.name))
        if not target.is_relative_to(folder):
            raise InputError(f"{archive} has a member {member.name!r} outside its folder; not unpacked.")
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        content = tar.extractfile(member) if member.isreg() else None
        if content is None:
            raise InputError(f"{archive} has a member {member.name!r} that is no plain file; not unpacked.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)


class _Bar:
    """A rich progress bar that pooch can drive (it expects the interface of tqdm)."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bars.add_task(what, total=None)
        self.total: int | None = None

    def update(self, size: int) -> Any:
        """More bytes came."""
        self._bars.start()
        self._bars.update(self._task, advance=size, total=self.total)

    def reset(self) -> None:
        """Pooch winds the bar back before it closes it."""
        self._bars.reset(self._task)

    def close(self) -> None:
        """The file is complete."""
        self._bars.stop()
