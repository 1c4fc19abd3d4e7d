"""The paper's experiments over all trained checkpoints, as one call: sweep, tables, figures, report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from ..errors import InputError, visible
from ..files import write_atomically
from ..models.cards import card_path
from ..sweeps import approaches
from ..sweeps.store import Results
from ..sweeps.sweep import ALL, Entry, Session, Sweep, entries, sweep
from ..targets.bisection import GRID
from . import figures, page, table_formats, tables
from .query import BUDGET, Query
from .table_formats import escape_markdown

TIMED = ("last", "surgeon")  # speed depends on the sizes alone, so these stand for all
SLOWED = ("uniform-hinf", "global-hinf", "last", "surgeon")  # what is tried at half the sampling rate
SHOWN = ("trade-off",)  # figures on the front page; it links to the others


@dataclass(frozen=True)
class Scale:
    """How much to do: fewer ratios, seeds and examples make it quicker."""

    ratios: Sequence[float] = GRID
    seeds: Sequence[int] = (0, 1, 2)
    examples: int = 2000
    final_examples: int = ALL


def find_trained(folder: Path) -> list[Entry]:
    """Return every checkpoint of a folder that has a card."""
    files = sorted(file for file in folder.glob("*.safetensors") if card_path(file).is_file())
    if not files:
        raise InputError(f"{folder} holds no checkpoint with a card; train one with `ssmprune train`, or name another.")
    return entries(files)


def run_all(checkpoints: Sequence[Entry], scale: Scale, work: Path, session: Session | None = None) -> Results:
    """Do all the sweeps, into a folder from which an interrupted run goes on."""
    timed = Sweep(TIMED, scale.ratios, scale.seeds, scale.examples, speed=True)
    searched = replace(
        timed, methods=approaches.default(), speed=False, max_loss=BUDGET, final_examples=scale.final_examples
    )
    results = Results(work, {})
    for plan in (timed, searched):
        results = sweep(checkpoints, plan, work, session)
    for entry in checkpoints:
        ratio = Query(results).last_ratio(results.entry(entry.name))
        if "every" in entry.task.parameters() and ratio:
            slow = Sweep(methods=SLOWED, ratios=[ratio], examples=scale.final_examples, every=2)
            results = sweep([entry], slow, work, session)
    return results


def write(results: Results, out: Path) -> list[Path]:
    """Write tables, figures, the report and the cells themselves into a folder, with a front page."""
    written = []
    made = {kind: tables.make(results, kind) for kind in tables.KINDS}
    filled = {kind: table for kind, table in made.items() if table.rows}
    writers = {"md": table_formats.markdown, "tex": table_formats.latex, "json": table_formats.as_json}
    for kind, table in filled.items():
        written += [_write(out / "tables" / f"{kind}.{end}", write(table) + "\n") for end, write in writers.items()]
    drawn = figures.write_all(results, out / "figures")
    page.write(results, out / "report.html")
    raw = {name: (results.folder / name).read_text() for name in ("sweep.json", "cells.jsonl")}
    written += [_write(out / name, text) for name, text in raw.items()]  # `ssmprune table OUT` makes tables of them
    front = _front_page(results, filled.values(), [path.relative_to(out) for path in drawn], out / "notes.md")
    return [*written, *drawn, out / "report.html", _write(out / "README.md", front)]


def _front_page(results: Results, filled: Iterable[table_formats.Table], drawn: list[Path], notes: Path) -> str:
    about = results.about
    commands = "\n".join(f"    {visible(command)}" for command in about["commands"])
    parts = [
        "# Results",
        f"Made on {escape_markdown(about['date'])} on {escape_markdown(about['machine'])}, by\n\n{commands}\n",
        "`report.html` is the same to explore: one page, no network. `tables/` has every table as Markdown, LaTeX and "
        "JSON. The cells behind all of it are in `cells.jsonl`; `ssmprune table docs/results --kind KIND` reads them.",
    ]
    if notes.is_file():
        parts.append(notes.read_text().strip())
    links = {path: f"[{escape_markdown(path.stem)}]({quote(path.as_posix())})" for path in drawn}
    parts += [f"!{link}" for path, link in links.items() if path.stem.startswith(SHOWN)]
    parts.append("More figures: " + ", ".join(links.values()) + ".")
    parts += map(table_formats.markdown, filled)
    return "\n\n".join(parts) + "\n"


def _write(path: Path, text: str) -> Path:
    write_atomically(path, text.encode())
    return path
