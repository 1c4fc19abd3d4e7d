"""The command `ssmprune-paper`: repeat the paper's experiments, print its tables, draw its figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number
from rich.console import Console

from ssmprune.budgets import GRID
from ssmprune.errors import InputError, one_of, visible
from ssmprune.progress import Bar
from ssmprune.report import Table, markdown
from ssmprune.sweeps import Cell, Results, Session
from ssmprune.tasks import data_folder

from . import figures, reproduce, tables
from .joining import join
from .table_formats import FORMATS

RESULTS, CHECKPOINTS = Path("paper/results"), Path("paper/checkpoints")  # in a clone, where the command is run
WRONG, INTERRUPTED, DIFFERENT = 2, 130, 1  # exit codes

app = App(name="ssmprune-paper", help="Repeat the experiments of LAST (NeurIPS 2024): sweep, tables, figures.")
Names = Annotated[str | None, Parameter(help="Comma-separated; by default all.")]
ResultsFolder = Annotated[Path, Parameter(help="A folder written by `ssmprune sweep` or `ssmprune-paper reproduce`.")]
Count = Annotated[int, Parameter(validator=Number(gte=1))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much of the experiments to do."""

    checkpoints: Names = None
    methods: Annotated[Names, Parameter(alias="-m")] = None
    ratios: Annotated[str | None, Parameter(help="Comma-separated; by default 0.1 to 1.0.")] = None
    seeds: Annotated[str, Parameter(help="Seeds for the random methods, comma-separated.")] = "0,1,2"
    examples: Annotated[Count, Parameter(help="How many test examples to evaluate.")] = 1000
    final_examples: Annotated[Count, Parameter(help="Most test examples at the ratios that tables report.")] = 10_000

    @property
    def scale(self) -> reproduce.Scale:
        """Return what to sweep; an unknown method or ratio is an error before anything is loaded."""
        methods = self.methods.split(",") if self.methods else None
        ratios = GRID if self.ratios is None else _numbers("--ratios", self.ratios, float)
        seeds = _numbers("--seeds", self.seeds, int)
        scale = reproduce.Scale(methods, ratios, seeds, self.examples, self.final_examples)
        scale.check()
        return scale


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the experiments run and where their data lie."""

    data: Annotated[Path | None, Parameter(help="Folder with the data sets; else $SSMPRUNE_DATA or a cache.")] = None
    engine: Annotated[str, Parameter(help="What computes: torch, compiled (C) or auto.")] = "auto"
    threads: Annotated[int | None, Parameter(help="Number of threads torch may use.")] = None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Return where the data are and what computes, with a bar on standard error."""
        torch.set_flush_denormal(True)  # before there are other threads, which inherit it
        if self.threads:
            torch.set_num_threads(self.threads)
        with Bar() as bar:
            words = ["DATA" if self.data is not None and word == str(self.data) else word for word in sys.argv[1:]]
            command = " ".join([app.name[0], *words])
            root = data_folder(self.data)  # named, so that MNIST is all of it and not the images in the package
            root.mkdir(parents=True, exist_ok=True)
            yield Session(root, engine=self.engine, command=command, watch=bar.show)


@app.command(name="reproduce")
def reproduce_(
    amount: Amount = Amount(),  # noqa: B008 (frozen)
    machine: Machine = Machine(),  # noqa: B008
    *,
    out: Annotated[Path | None, Parameter(alias="-o", help="Folder to write; by default paper/results.")] = None,
    models: Annotated[Path, Parameter(help="Folder of models with cards.")] = CHECKPOINTS,
    work: Annotated[
        tuple[Path, ...],
        Parameter(help="Folder of the sweep; an interrupted one resumes. More of them are read for what they have."),
    ] = (Path("runs/reproduce"),),
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of a table.")] = False,
) -> int:
    """Repeat the paper's experiments on every trained checkpoint: sweep, tables, figures, report.

    Given only some checkpoints or methods and no --out, it compares the results with paper/results and writes nothing.
    """
    scale = amount.scale
    trained = reproduce.find_trained(models, amount.checkpoints.split(",") if amount.checkpoints else None)
    join(work[0], work[1:], trained)
    with machine.session() as session:
        results = reproduce.run_all(trained, scale, work[0], session)
    seconds = sum(map(reproduce.seconds, work))
    title = f"{len(results.cells)} cells in {reproduce.duration(seconds)}"
    facts = {"cells": len(results.cells), "seconds": seconds}
    if out is None and (amount.checkpoints or amount.methods):
        return _show_differences(results, title, facts, as_json)
    written = [str(path) for path in reproduce.write(results, out or RESULTS, seconds)]
    _show(facts | {"written": written}, as_json, Table(title, [{"written": path} for path in written]))
    return 0


@app.command
def pages(results: ResultsFolder) -> None:
    """Write the tables, figures, report and front page of a folder anew from its cells; needs no data."""
    for path in reproduce.write_pages(results):
        print(path)


@app.command
def table(
    results: ResultsFolder,
    *,
    kind: Annotated[str, Parameter(help=", ".join(tables.KINDS))] = "average",
    form: Annotated[str, Parameter(name="--format", help=", ".join(FORMATS))] = "markdown",
) -> None:
    """Print one of the paper's tables from the results of a sweep, with the paper's own figures beside ours."""
    write = one_of("format", form, FORMATS)
    made = tables.make(Results.read(results), kind)
    if not made.rows:
        raise InputError(
            f"{results} has no results for the table {kind!r}; `ssmprune sweep --help` says how to get them."
        )
    print(write(made))


@app.command
def figure(
    results: ResultsFolder,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="A .png, .pdf or .svg file.")],
    kind: Annotated[str, Parameter(help=", ".join(figures.found()))] = "trade-off",
    checkpoint: Annotated[str | None, Parameter(help="Which model; by default the first.")] = None,
    method: Annotated[str | None, Parameter(alias="-m", help="Whose poles; by default LAST's.")] = None,
    ratio: Annotated[float | None, Parameter(alias="-r", help="Ratio for poles and scores; by default 0.5.")] = None,
) -> None:
    """Draw a figure from the results of a sweep."""
    swept = Results.read(results)
    figures.save_figure(figures.draw(kind, swept, figures.choose(swept, checkpoint, method, ratio)), out)
    print(f"Drawn to {out}", file=sys.stderr)


def _show_differences(results: Results, title: str, facts: dict[str, Any], as_json: bool) -> int:
    """Say whether the cells are those of paper/results; return the exit code, which tells of others."""
    committed = Results.read(RESULTS) if (RESULTS / "sweep.json").is_file() else Results(RESULTS, {})
    differ = reproduce.differences(results, committed)
    names = ("checkpoint", "method", "ratio", "seed", "split", "examples", "rate", "accuracy")
    rows = [
        {name: getattr(cell, name) for name in names} | {"there": _accuracy(other)} for cell, other in differ.values()
    ]
    same = len(results.cells) - len(differ)
    title = f"{title}; {len(differ)} are not in {RESULTS} as they are here"
    readable = Table(title, rows or [{"as in": str(RESULTS), "cells": same}])
    _show(facts | {"same": same, "different": rows}, as_json, readable)
    return DIFFERENT if differ else 0


def _accuracy(cell: Cell | None) -> Any:
    return "absent" if cell is None else cell.accuracy


def _show(facts: dict[str, Any], as_json: bool, readable: Table) -> None:
    print(json.dumps(facts, indent=2) if as_json else markdown(readable))


def _numbers(option: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} takes comma-separated numbers; got {text!r}.") from error


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; what the user can fix is a line on stderr."""
    try:
        return app(arguments, exit_on_error=False, print_error=False, result_action="return_value") or 0
    except (InputError, CycloptsError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"Error: {visible(str(error))}", highlight=False, markup=False)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def main() -> NoReturn:
    """Run the command line and leave the process."""
    sys.exit(run(sys.argv[1:]))
