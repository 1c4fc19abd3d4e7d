"""Reader of tab-separated files without quoting, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError

LONGEST = 16 * 2**20


def read_rows(path: Path, columns: int) -> Iterator[list[bytes]]:
    """The fields of every line, as many as `columns`."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                fields = line.rstrip(b"\r\n").split(b"\t")
                if len(fields) != columns or (len(line) == LONGEST and not line.endswith(b"\n")):
                    raise InputError(
                        f"{path}, line {number}: {len(fields)} columns in {len(line):,} bytes; "
                        f"expected {columns} in at most {LONGEST:,}."
                    )
                yield fields
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error}).") from error
