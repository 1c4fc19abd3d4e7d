"""Commands that compare ways of pruning: `sweep` and its `report` on models of one's own, `demo` on the bundled one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError, need_torch
from ..files import check_writable, write_atomically
from ..progress import Bar
from .options import MORE, Count, DataFolder, Engine, Threads, prepare
from .output import Report, say, table

if TYPE_CHECKING:
    from ..sweeps import Session, Sweep

PICTURES = (".png", ".pdf", ".svg")
BEGIN = (
    "An S5 that reads handwritten digits pixel by pixel is pruned by five methods at ten ratios and tested on 1,000 "
    "images each time. This takes a few minutes."
)
WHY_ANSWERS = (
    "At 100% one pair of states stays in every layer and the rest of the network is intact, so the model still "
    "answers, though it remembers little."
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SweepOptions:
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
    runner: Annotated[str, Parameter(group=MORE)] = "local"
    """local, or ray to run on a cluster."""
    address: Annotated[str | None, Parameter(group=MORE)] = None
    """Address of a Ray cluster; by default one is started here."""
    workers: Annotated[Count | None, Parameter(group=MORE)] = None
    """Number of Ray workers; by default as many as fit."""
    threads: Threads = None

    @property
    def plan(self) -> Sweep:
        """The cells to fill."""
        from ..sweeps import approaches
        from ..sweeps.sweeping import Sweep

        return Sweep(
            methods=self.methods.split(",") if self.methods else approaches.default(),
            ratios=parse_ratios(self.ratios),
            seeds=[_number(seed, int, "--seeds") for seed in self.seeds.split(",")],
            examples=self.examples,
        )

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Start a runner and a bar on standard error: what was done last, how many cells of how many, the time left."""
        from ..deploy.compiled import choose_engine
        from ..sweeps import runners
        from ..sweeps.sweeping import Session

        if self.engine in ("local", "ray"):
            raise InputError(
                f"--engine says what computes: torch, compiled or auto; where it runs is --runner {self.engine}."
            )
        choose_engine(self.engine)  # before a cluster is asked
        with runners.start(self.runner, self.address, self.workers, self.threads or 1) as runner, Bar() as bar:
            words = ["DATA" if self.data is not None and word == str(self.data) else word for word in sys.argv[1:]]
            yield Session(self.data, runner, self.engine, " ".join(["ssmprune", *words]), bar.show)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to make of the results."""

    out: Annotated[Path, Parameter(alias="-o")] = Path("report.html")
    """A page (.html), a table (.md) or the trade-off curves (.png, .pdf, .svg)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Where to draw the curves, and what computes."""

    out: Annotated[Path | None, Parameter(alias="-o")] = None
    """Where to draw the curves; by default demo.png, if matplotlib is installed."""
    engine: Engine = "torch"


def sweep(
    *checkpoints: Annotated[Path, Parameter(help="Models saved by ssmprune, with a card or --task.")],
    options: SweepOptions,
) -> Report:
    """Prune models by every method at every ratio and evaluate them; if interrupted, the same command resumes."""
    if not checkpoints:
        raise InputError("Name the models to sweep: `ssmprune sweep CHECKPOINT ... --out FOLDER`.")
    prepare(options.threads)
    from ..report import accuracy_table
    from ..sweeps.sweeping import entries, sweep

    plan, swept = options.plan, entries(checkpoints, options.task)
    with options.session() as session:
        results = sweep(swept, plan, options.out, session)
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
    say(BEGIN)
    if out is not None:
        check_writable(out)
    prepare()
    from ..deploy.compiled import choose_engine
    from ..report import demo, style

    engine = choose_engine(options.engine)
    if out is not None:
        style.need_matplotlib()
    with Bar("Pruning and evaluating", demo.EVALUATIONS) as bar:
        rows = demo.demo(bar.update, engine=engine)
    if out is not None:
        style.save_figure(demo.picture(rows), out)
        say(f"Curves drawn to {out}")
    title = "Trained sMNIST S5, 1,000 test images: accuracy after pruning, no retraining"
    readable = [
        {
            "pruned": f"{row.ratio:.0%}",
            "states": row.states,
            "size": f"{row.parameters / 1000:.0f}k",
            "speed": f"{row.speed:.2f}x",
        }
        | {name: f"{accuracy:.1%}" for name, accuracy in row.accuracy.items()}
        for row in rows
    ]
    facts = {"rows": [asdict(row) for row in rows], "picture": str(out) if out else None}
    return Report(facts, table(title, readable, WHY_ANSWERS))


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
