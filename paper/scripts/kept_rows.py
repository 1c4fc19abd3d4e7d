"""What scripts share that measure checkpoint by checkpoint: finished rows are kept in a file, so that they resume.

A row has the SHA-256 of its checkpoint; when another model takes that name, its rows are measured anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from ssmprune.files import write_atomically

ROOT = Path(__file__).parents[1]
CHECKPOINTS, RESULTS = ROOT / "checkpoints", ROOT / "results"
Row = dict[str, Any]


def measure_all(
    description: str,
    file: Path,
    rows_of: Callable[[str, Path, list[Row]], Iterable[Row]],
    write_table: Callable[[list[Row]], None],
    names: Sequence[str] = (),
) -> None:
    """Read the command line, and measure the rows that the file does not have yet.

    rows_of: yields the rows of a checkpoint, by name, that are missing; it is given the folder of the data and the rows
    that are finished. write_table: is called with all rows after each. names: of the checkpoints to measure where the
    command line names none; all unless given.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"checkpoints; {', '.join(names) or 'all'} unless given")
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    rows = read_rows(file)
    for name in arguments.names or names or all_names():
        known = {"checkpoint": name, "sha256": content_of(name)}
        for row in rows_of(name, arguments.data, [row for row in rows if row["checkpoint"] == name]):
            rows = [*read_rows(file), known | row]  # read again: a second process may measure other checkpoints
            write_rows(file, rows)
            print(rows[-1], flush=True)
            write_table(rows)
    write_table(rows)  # also if nothing was missing: rows may come from elsewhere


def read_rows(file: Path) -> list[Row]:
    """Return the finished rows of a file, without those of models that are no longer shipped under their names."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row for row in rows if row["sha256"] == content_of(row["checkpoint"])]


def write_rows(file: Path, rows: list[Row]) -> None:
    """Write the rows of a file anew."""
    write_atomically(file, "".join(json.dumps(line) + "\n" for line in rows).encode())


def all_names() -> list[str]:
    """Return the names of the shipped checkpoints."""
    return sorted(path.stem for path in CHECKPOINTS.glob("*.safetensors"))


def content_of(name: str) -> str:
    """Return the SHA-256 of a shipped checkpoint, nothing where there is none."""
    path = CHECKPOINTS / f"{name}.safetensors"
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
