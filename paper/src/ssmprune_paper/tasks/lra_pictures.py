"""Reader of the Long Range Arena's Pathfinder folders: metadata/*.npy lists the pictures, imgs/*/*.png are they.

The metadata files are text in spite of their names. A line is: folder, file, number, label, and more.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError, need
from ssmprune.files import read_whole

LARGEST = 2**20


def metadata(folder: Path) -> list[Path]:
    """Return the metadata files, in the order of their numbers."""
    files = [file for file in (folder / "metadata").glob("*.npy") if file.stem.isdigit()]
    if not files:
        raise InputError(f"{folder}/metadata has no files named 0.npy, 1.npy, ...")
    return sorted(files, key=lambda file: int(file.stem))


def read_pictures(listing: Path, size: int) -> NDArray[np.uint8]:
    """Return records (pictures, 1 + size^2) of the pictures in one metadata file: the label, then the pixels."""
    folder = listing.parent.parent
    records = []
    for number, line in enumerate(read_whole(listing, LARGEST).decode("utf-8", "replace").splitlines()):
        fields = line.split()
        if not line.isprintable() or len(fields) < 4 or fields[3] not in ("0", "1"):
            raise InputError(f"{listing}, line {number + 1}: expected folder, file, number and a label 0 or 1.")
        file = (folder / fields[0] / fields[1]).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise InputError(f"{listing}, line {number + 1}: {file} lies outside {folder}.")
        content = read_whole(file, LARGEST)
        if content:  # the published set has an empty file in it
            records.append(np.append(np.uint8(fields[3]), _decode(content, size, file)))
    if not records:
        raise InputError(f"{listing} lists no pictures.")
    return np.stack(records)


def _decode(content: bytes, size: int, file: Path) -> NDArray[np.uint8]:
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[16:24] != struct.pack(">II", size, size):
        raise InputError(f"{file} is not a PNG of {size} x {size} pixels.")
    image = need("PIL.Image", "data", "Pathfinder pictures need Pillow")
    try:
        return np.asarray(image.open(io.BytesIO(content), formats=["PNG"]).convert("L")).ravel()
    except Exception as error:  # a decoder meets a broken file with whatever it happens to raise
        raise InputError(f"{file} cannot be decoded ({error}).") from error
