"""The paper's experiments over all trained checkpoints, as one call: sweep, tables, figures, report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from urllib.parse import quote

from ssmprune.budgets import GRID
from ssmprune.errors import InputError, one_of, visible
from ssmprune.files import write_atomically
from ssmprune.report import Table, escape_markdown, markdown, write_page
from ssmprune.sweeps import (
    Cell,
    Entry,
    Key,
    Results,
    Session,
    Sweep,
    default_approaches,
    describe,
    entries,
    fill,
    load_subject,
    open_results,
)
from ssmprune.tasks import card_path

from . import figures, masks, table_formats, tables
from .models_of_cells import measure_speed
from .query import Query
from .search import Search, sweep_and_search

VARIANTS = "variants"  # the folder, below that of the checkpoints, of models with another seed or less training
COMPARED = ("uniform-hinf", "global-hinf", "last", "surgeon")  # what those are pruned by
# What one would choose between; how far the others go is not worth a search each.
SEARCHED = (*COMPARED, *tables.AROUND_SURGEON)
TIMED = ("last", "surgeon")  # speed depends on the sizes alone, so these stand for all
SLOWED = COMPARED  # what is tried at half the sampling rate
SHOWN = ("claims", "average", "surgeon", "rate", "speed")  # tables on the front page; it links to the others
SPENT = "seconds.txt"  # what all runs into a folder took together
NOTED = 10.0  # seconds, after which the time spent is written down again


@dataclass(frozen=True)
class Scale:
    """How much to do: fewer methods, ratios, seeds and examples make it quicker."""

    methods: Sequence[str] | None = None  # else all
    ratios: Sequence[float] = GRID
    seeds: Sequence[int] = (0, 1, 2)  # of the random methods
    examples: int = 1000  # of a cell, and of the validation set that largest ratios are chosen on
    final_examples: int = 10_000  # of the test set, at the ratios that tables report

    def check(self) -> None:
        """Refuse what cannot be swept before anything is loaded."""
        self.sweep(default_approaches() if self.methods is None else self.methods)

    def wants(self, usual: Sequence[str]) -> list[str]:
        """Return those of the usual methods that are wanted."""
        return [name for name in usual if self.methods is None or name in self.methods]

    def sweep(self, usual: Sequence[str]) -> Sweep:
        """Return the sweep of the usual methods, as far as they are wanted."""
        return Sweep(self.wants(usual), self.ratios, self.seeds, self.examples)


def find_trained(folder: Path, names: Sequence[str] | None = None) -> list[Entry]:
    """Return the checkpoints of a folder, and of `variants` below it, that have a card: all, or those with these names.

    Sequences are as long as they were in training, also where a model can read longer ones.
    """
    found = sorted(folder.glob("*.safetensors")) + sorted((folder / VARIANTS).glob("*.safetensors"))
    files = {file.stem: file for file in found if card_path(file).is_file()}
    if not files:
        raise InputError(f"{folder} holds no checkpoint with a card; train one with `ssmprune train`, or name another.")
    chosen = files.values() if names is None else [one_of("trained checkpoint", name, files) for name in names]
    return [_as_trained(entry) for entry in entries(chosen)]


def _as_trained(entry: Entry) -> Entry:
    settings = entry.card.get("settings") or {}
    return replace(entry, task=entry.task.replace(**settings.get("task", {})))


def run_all(checkpoints: Sequence[Entry], scale: Scale, work: Path, session: Session | None = None) -> Results:
    """Do all the sweeps, into a folder from which an interrupted run resumes."""
    clock = Clock(work)
    session = clock.watching(session or Session())
    variants = [entry for entry in checkpoints if entry.file.parent.name == VARIANTS]
    others = [entry for entry in checkpoints if entry not in variants]
    for group, usual in ((others, default_approaches()), (variants, COMPARED)):
        if group and scale.wants(usual):
            sweep_and_search(group, scale.sweep(usual), Search(SEARCHED, scale.final_examples), work, session)
    for entry in checkpoints:
        _sweep_more(entry, scale, work, session)
    clock.note()
    results = Results.read(work)
    # Parts of it may have been done before, by other commands; from nothing, the last one may do all of it.
    if not session.command or scale.methods is not None or not _covers(checkpoints, scale, results):
        return results
    ordered = [results.entry(entry.name) for entry in checkpoints]  # as asked for, whichever was swept first
    return replace(results, about=results.about | {"commands": [session.command], "checkpoints": ordered})


def _covers(checkpoints: Sequence[Entry], scale: Scale, results: Results) -> bool:
    """Tell whether these checkpoints, ratios and seeds are all that there are results of."""
    about = results.about
    swept = ([entry["name"] for entry in about["checkpoints"]], about["ratios"], about["seeds"])
    asked = ([entry.name for entry in checkpoints], scale.ratios, scale.seeds)
    return all(set(some) <= set(others) for some, others in zip(swept, asked, strict=True))


def _sweep_more(entry: Entry, scale: Scale, work: Path, session: Session) -> None:
    """Try half the sampling rate at LAST's largest ratio, where the task has rates; measure speed."""
    query = Query(Results.read(work))
    about = query.results.entry(entry.name)
    tried = [name for name in query.methods if query.seeds(entry.name, name)]
    ratio = query.last_ratio(about)
    if "every" in entry.task.parameters() and ratio and (slowed := [name for name in SLOWED if name in tried]):
        plan = Sweep(slowed, [ratio], examples=scale.examples)
        with open_results(work, describe([entry], plan, session.command)) as writer:
            subject = load_subject(entry, plan.calibration, session.root, every=2)
            keys = [key._replace(examples=scale.final_examples, rate=0.5) for key in plan.keys(entry.name)]
            fill(writer, [subject], keys, session)
    timed = {name: query.largest(about, name) for name in TIMED if name in tried}
    ratios = {ratio, *(largest.on_grid for largest in timed.values() if largest)} - {0.0, None}
    if ratios:
        plan = Sweep(list(timed), sorted(filter(None, ratios)), scale.seeds, scale.examples)
        with open_results(work, describe([entry], plan, session.command)) as writer:
            subject = load_subject(entry, plan.calibration, session.root)
            measure_speed(writer, subject, fill(writer, [subject], plan.keys(entry.name), session))


class Clock:
    """Adds up the time that all runs into a folder have taken."""

    def __init__(self, work: Path) -> None:
        """Go on from what earlier runs have noted."""
        self._path, self._start = work / SPENT, monotonic()
        self._before, self._noted = seconds(work), self._start

    def watching(self, session: Session) -> Session:
        """Return a session that also notes the time, now and then, so that a kill loses little of it."""

        def watch(done: int, text: str, total: int) -> None:
            session.watch(done, text, total)
            if monotonic() - self._noted > NOTED:
                self.note()

        return replace(session, watch=watch)

    def note(self) -> None:
        """Write the sum."""
        self._noted = monotonic()
        write_atomically(self._path, f"{self._before + self._noted - self._start:.0f}\n".encode())


def seconds(work: Path) -> float:
    """Return how long the runs into a folder took together."""
    try:
        return float((work / SPENT).read_text())
    except FileNotFoundError:
        return 0.0
    except (OSError, ValueError) as error:
        raise InputError(f"{work / SPENT} should hold a number of seconds ({error}); remove it.") from error


def duration(time: float) -> str:
    """Return a time for people.

    >>> duration(13_260), duration(90)
    ('3 h 41 min', '0 h 2 min')
    """
    minutes = round(time / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def differences(results: Results, committed: Results) -> dict[Key, tuple[Cell, Cell | None]]:
    """Return the cells that another run found otherwise, or did not find; speeds are never the same twice."""
    return {
        key: (cell, other)
        for key, cell in results.by_key.items()
        if (other := committed.by_key.get(key)) is None or replace(cell, speed=None) != replace(other, speed=None)
    }


def write(results: Results, out: Path, spent: float) -> list[Path]:
    """Write the cells into a folder, and all that is made of them."""
    cells = _write(out / "cells.jsonl", (results.folder / "cells.jsonl").read_text())
    about = _write(out / "sweep.json", json.dumps(results.about, indent=2) + "\n")
    time = _write(out / SPENT, f"{spent:.0f}\n")
    return [cells, about, time, masks.write(masks.collect(results), out), *write_pages(out)]


def write_pages(out: Path) -> list[Path]:
    """Write tables, figures, the report and the front page of a folder, from its cells and from nothing else."""
    results, written = Results.read(out), []
    made = {kind: tables.make(results, kind) for kind in tables.KINDS}
    filled = {kind: table for kind, table in made.items() if table.rows}
    writers = {"md": markdown, "tex": table_formats.latex, "json": table_formats.as_json}
    for kind, table in filled.items():
        written += [_write(out / "tables" / f"{kind}.{end}", write(table) + "\n") for end, write in writers.items()]
    drawn = figures.write_all(results, out / "figures")
    write_page(results, out / "report.html", masks.read(out))
    front = _front_page(results, filled, [path.relative_to(out) for path in drawn], out / "notes.md")
    return [*written, *drawn, out / "report.html", _write(out / "README.md", front)]


def _front_page(results: Results, filled: Mapping[str, Table], drawn: Iterable[Path], notes: Path) -> str:
    about = results.about
    commands = "\n".join(f"    {visible(command)}" for command in about["commands"])
    parts = [
        "# Results",
        f"Made on {escape_markdown(about['date'])} on {escape_markdown(about['machine'])}, in "
        f"{duration(seconds(results.folder))}, by\n\n{commands}",
        "`report.html` is the same to explore: one page, no network. `tables/` has every table as Markdown, LaTeX and "
        "JSON. The cells behind all of it are in `cells.jsonl`; `ssmprune-paper table paper/results --kind KIND` reads "
        "them, and `ssmprune-paper pages paper/results` makes all of it anew from them, to the byte, in a minute and "
        "without data.",
        _how_much(results),
    ]
    if notes.is_file():
        parts.append(notes.read_text().strip())
    others = [f"[{table.title}](tables/{kind}.md)" for kind, table in filled.items() if kind not in SHOWN]
    parts += [markdown(filled[kind]) for kind in SHOWN if kind in filled]
    parts.append("More tables: " + ", ".join(others) + ".")
    links = {path: f"[{escape_markdown(path.stem)}]({quote(path.as_posix())})" for path in drawn}
    parts += [f"!{link}" for path, link in links.items() if path.stem == "trade-off"]
    parts.append("More figures: " + ", ".join(links.values()) + ".")
    return "\n\n".join(parts) + "\n"


def _how_much(results: Results) -> str:
    """Say on how much the figures rest, and what was shortened."""
    about, (most, fewer) = results.about, _final_examples(results)
    text = (
        f"{len(results.cells):,} cells of {len(about['checkpoints'])} checkpoints. A cell is {about['examples']:,} "
        "test examples, or all where there are fewer; at the ratios that tables report it is the whole test set, at "
        f"most {most:,} examples{fewer}. Largest ratios, of the methods that one would choose between, are found on "
        f"{about['examples']:,} validation examples; a model that can no longer stay within the loss is not evaluated "
        "to the end, which changes no choice."
    )
    shortened = [
        f"{escape_markdown(entry['name'])} to {entry['task_parameters']['length']:,} steps"
        for entry in about["checkpoints"]
        if _card_length(entry) not in (None, entry.get("task_parameters", {}).get("length"))
    ]
    return text + (f" Sequences are cut as in training: {', '.join(shortened)}." if shortened else "")


def _final_examples(results: Results) -> tuple[int, str]:
    """Return the most test examples of a cell, and the checkpoints whose figures rest on fewer than they could."""
    finals: dict[str, int] = {}
    for cell in results.cells:
        if cell.split == "test":
            finals[cell.checkpoint] = max(cell.examples, finals.get(cell.checkpoint, 0))
    most = max(finals.values(), default=0)
    sizes = {entry["name"]: entry.get("card", {}).get("test_examples", 0) for entry in results.about["checkpoints"]}
    less = {name: count for name, count in finals.items() if count < min(most, sizes[name])}
    by_count = [(n, [name for name in less if less[name] == n]) for n in sorted(set(less.values()))]
    return most, "".join(f", but {n:,} for {escape_markdown(', '.join(names))}" for n, names in by_count)


def _card_length(entry: Mapping[str, dict[str, dict[str, int]]]) -> int | None:
    return entry.get("card", {}).get("task_parameters", {}).get("length")


def _write(path: Path, text: str) -> Path:
    write_atomically(path, text.encode())
    return path
