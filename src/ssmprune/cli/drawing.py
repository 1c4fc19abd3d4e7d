"""Commands that show what a sweep has found: tables, figures, a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError, need_torch, one_of
from .common import Json, Out, app, say, show, table

ResultsFolder = Annotated[Path, typer.Argument(metavar="RESULTS", help="A folder written by `ssmprune sweep`.")]


@app.command("table")
def table_(
    results: ResultsFolder,
    kind: Annotated[
        str,
        typer.Option("--kind", help="claims, average, tasks, own, surgeon, curves, magnitude, random, speed or rate."),
    ] = "average",
    form: Annotated[str, typer.Option("--format", help="markdown, latex or json.")] = "markdown",
) -> None:
    """Print one of the paper's tables from the results of a sweep, with the paper's own figures beside ours."""
    need_torch()
    from ssmprune_paper import tables

    from ..report import table_formats
    from ..sweeps.store import Results

    write = one_of("format", form, table_formats.FORMATS)
    made = tables.make(Results.read(results), kind)
    if not made.rows:
        raise InputError(
            f"{results} has no results for the table {kind!r}; `ssmprune sweep --help` says how to get them."
        )
    print(write(made))


@app.command()
def figure(
    results: ResultsFolder,
    out: Out,
    kind: Annotated[
        str, typer.Option("--kind", help="trade-off, scores, states, poles, memory or stability.")
    ] = "trade-off",
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Which model; by default the first.")] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Whose poles; by default LAST's.")] = None,
    ratio: Annotated[
        float | None, typer.Option("--ratio", "-r", help="Ratio for poles and scores; by default 0.5.")
    ] = None,
) -> None:
    """Draw a figure from the results of a sweep, as .png, .pdf or .svg."""
    need_torch()
    from ssmprune_paper import figures

    from ..sweeps.store import Results

    swept = Results.read(results)
    figures.save_figure(figures.draw(kind, swept, figures.choose(swept, checkpoint, method, ratio)), out)
    say(f"Drawn to {out}")


@app.command()
def report(results: ResultsFolder, out: Out = Path("report.html"), as_json: Json = False) -> None:
    """Write the results of a sweep as one page to explore offline: ratio slider, methods, poles and plans."""
    need_torch()
    from ..report import page
    from ..sweeps.store import Results

    written = page.write(Results.read(results), out)
    row = {
        "page": str(out),
        "size": f"{written['bytes'] / 1e6:.1f} MB",
        "plans": written["plans"],
        "not in it": written["left out"],
    }
    show({"page": str(out), **written}, as_json, table("Report", [row]))
