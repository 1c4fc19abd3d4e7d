"""Commands that compare ways of pruning: `sweep` and its `report` on models of one's own, `demo` on the bundled one."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Group

from ..errors import InputError, need_torch
from ..files import check_writable, write_atomically
from ..progress import Bar
from .options import MORE, Count, DataFolder, Engine, Options, Threads, prepare
from .output import Report, literal, say, table

if TYPE_CHECKING:
    from ..report.demo import DemoRow

SUMMED_UP = 0.8
PICTURES = (".png", ".pdf", ".svg")
BEGIN = {  # by --full
    False: "Pruning the shipped model, an S5 that reads handwritten digits pixel by pixel, and testing it on 500 "
    "images: about half a minute on two cores, a few minutes without a C compiler.",
    True: "Pruning the shipped model by five methods at ten ratios and testing it on 1,000 images each time: this "
    "takes a few minutes.",
}
BETWEEN = (
    "LAST scores states by their largest gain. The surgeon looks at 100 unlabelled images and re-fits what stays. "
    "More methods, ratios and images: ssmprune demo --full."
)
WHY_ANSWERS = (
    "At 100% one pair of states stays in every layer and the rest of the network is intact, so the model still "
    "answers, though it remembers little."
)


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Options):
    """What is compared, on which examples, and where that is computed."""

    out: Annotated[Path, Parameter(alias="-o")]
    """Folder for the results; an interrupted sweep resumes."""
    task: str | None = None
    """A task from `ssmprune list`; by default the card's."""
    methods: Annotated[str | None, Parameter(alias="-m")] = None
    """Comma-separated names; by default all."""
    ratios: str = "0.1:1.0:0.1"
    """FIRST:LAST:STEP, or a comma-separated list."""
    seeds: str = "0"
    """Seeds for the random approaches, comma-separated."""
    examples: Count = 2000
    """How many test examples to evaluate."""
    data: DataFolder = None
    engine: Engine = "torch"
    workers: Annotated[Count | None, Parameter(group=MORE)] = None
    """Run on so many workers of a Ray cluster: that at $RAY_ADDRESS, else one that is started here."""
    threads: Threads = None


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """What to make of the results."""

    out: Annotated[Path, Parameter(alias="-o")] = Path("report.html")
    """A page (.html), a table (.md) or the trade-off curves (.png, .pdf, .svg)."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Options):
    """Where to draw the curves, and how many."""

    out: Annotated[Path | None, Parameter(alias="-o")] = None
    """Where to draw the curves; by default demo.png, if matplotlib is installed."""
    full: bool = False
    """Compare five methods at ten ratios on 1,000 images."""


def sweep(
    *checkpoints: Annotated[Path, Parameter(help="Models saved by ssmprune, with a card or --task.")],
    options: SweepOptions,
) -> Report:
    """Prune models by every method at every ratio and evaluate them; if interrupted, the same command resumes."""
    if not checkpoints:
        raise InputError("Name the models to sweep: `ssmprune sweep CHECKPOINT ... --out FOLDER`.")
    prepare(*checkpoints, threads=options.threads)
    from ..deploy.compiled import choose_engine
    from ..report import accuracy_table
    from ..sweeps import approaches, runners, sweeping

    plan = sweeping.Sweep(
        methods=options.methods.split(",") if options.methods else approaches.default(),
        ratios=parse_ratios(options.ratios),
        seeds=[_number(seed, int, "--seeds") for seed in options.seeds.split(",")],
        examples=options.examples,
    )
    swept, data = sweeping.entries(checkpoints, options.task), options.data
    command = ["ssmprune", *("DATA" if data is not None and word == str(data) else word for word in sys.argv[1:])]
    choose_engine(options.engine)  # before a cluster is asked
    with runners.start(options.workers, os.environ.get("RAY_ADDRESS"), options.threads or 1) as runner, Bar() as bar:
        session = sweeping.Session(data, runner, options.engine, " ".join(command), bar.show)
        results = sweeping.sweep(swept, plan, options.out, session)
    made = accuracy_table(results)
    rows = [dict(zip(made.columns, texts, strict=True)) for texts in made.texts()]
    facts = {"results": str(results.folder), "cells": len(results.cells)}
    return Report(facts, table(made.title, rows, " ".join(made.notes)))


def report(
    results: Annotated[Path, Parameter(help="A folder written by `ssmprune sweep`.")],
    /,
    options: ReportOptions = ReportOptions(),  # noqa: B008 (frozen)
) -> Report:
    """Write the results of a sweep as a page to explore offline, a table or a figure, by the ending of --out."""
    need_torch()
    from ..report import accuracy_table, draw_sweep, markdown, save_figure, write_page
    from ..sweeps.store import Results

    found, out, more = Results.read(results), options.out, {}
    if out.suffix in (".html", ".htm"):
        more = write_page(found, out)
    elif out.suffix == ".md":
        write_atomically(out, f"{markdown(accuracy_table(found))}\n".encode())
    elif out.suffix in PICTURES:
        save_figure(draw_sweep(found), out)
    else:
        raise InputError(f"A report is a page (.html), a table (.md) or a figure (.png, .pdf, .svg); got {str(out)!r}.")
    facts = {"out": str(out), **more}
    return Report(facts, table("Report", [{**facts, "bytes": out.stat().st_size}]))


def demo(options: DemoOptions = DemoOptions()) -> Report:  # noqa: B008 (frozen)
    """Prune a trained model that ships with ssmprune and show how much accuracy each method keeps."""
    out = options.out
    if out is None and find_spec("matplotlib"):
        out = Path("demo.png")
    if out is not None and out.suffix not in PICTURES:
        raise InputError(f"The curves are drawn to a .png, .pdf or .svg file; got {str(out)!r}.")
    say(BEGIN[options.full])
    if out is not None:
        check_writable(out)
    prepare()
    from ..deploy.compiled import choose_engine
    from ..report import demo, style

    engine = choose_engine("auto")
    if out is not None:
        style.need_matplotlib()
    scope = demo.FULL if options.full else demo.BRIEF
    with Bar("Pruning and evaluating", scope.evaluations, brief=True) as bar:
        rows = demo.demo(scope, bar.update, engine)
    if out is not None:
        style.save_figure(demo.picture(rows), out)
        say(f"Curves drawn to {out}")
    facts = {"rows": [asdict(row) for row in rows], "engine": engine, "picture": str(out) if out else None}
    title = f"Trained sMNIST S5, {scope.examples:,} test images: accuracy after pruning, no retraining"
    shown = table(title, [_demo_row(row) for row in rows], WHY_ANSWERS if options.full else BETWEEN)
    return Report(facts, Group(shown, literal(_sum_up(rows, engine))))


def _demo_row(row: DemoRow) -> dict[str, Any]:
    """Return a row of the demo as it is shown."""
    figures = {"pruned": f"{row.ratio:.0%}", "states": row.states, "KB": round(row.bytes / 1000)}
    return figures | {"speed": f"{row.speed:.2f}x"} | {name: f"{share:.1%}" for name, share in row.accuracy.items()}


def _sum_up(rows: list[DemoRow], engine: str) -> str:
    """Say in a sentence what the surgeon keeps where four of five states are gone, or at the ratio next to that."""
    whole, small = rows[0], min(rows, key=lambda row: abs(row.ratio - SUMMED_UP))
    others = ", ".join(f"{name} {share:.1%}" for name, share in small.accuracy.items() if name != "Surgeon")
    return (
        f"With {small.ratio:.0%} of the states pruned by the surgeon: {whole.bytes / 1000:,.0f} -> "
        f"{small.bytes / 1000:,.0f} KB, {whole.steps_per_second:,.0f} -> {small.steps_per_second:,.0f} steps a second "
        f"in {'C' if engine == 'compiled' else 'torch'}, {whole.accuracy['Surgeon']:.1%} -> "
        f"{small.accuracy['Surgeon']:.1%} of the images read correctly ({others})."
    )


def parse_ratios(text: str) -> list[float]:
    """Read FIRST:LAST:STEP or comma-separated numbers, exactly as they are written.

    >>> parse_ratios("0.1:0.5:0.2"), parse_ratios("0.25,0.5")
    ([0.1, 0.3, 0.5], [0.25, 0.5])
    """
    if ":" not in text:
        return [float(_number(part, Fraction, "--ratios")) for part in text.split(",")]
    parts = [_number(part, Fraction, "--ratios") for part in text.split(":")]
    if len(parts) != 3 or parts[2] <= 0 or parts[1] < parts[0] or (parts[1] - parts[0]) / parts[2] > 10_000:
        raise InputError(f"--ratios takes FIRST:LAST:STEP, as in 0.1:1.0:0.1, or a comma-separated list; got {text!r}.")
    first, last, step = parts
    return [float(first + k * step) for k in range(int((last - first) / step) + 1)]


def _number(text: str, kind: Any, option: str) -> Any:
    try:
        return kind(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"{option} takes numbers; got {text!r}.") from error
