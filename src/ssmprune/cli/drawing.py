"""The command that shows what a sweep has found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import need_torch
from .common import Json, Out, app, show, table

ResultsFolder = Annotated[Path, typer.Argument(metavar="RESULTS", help="A folder written by `ssmprune sweep`.")]


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
    }
    show({"page": str(out), **written}, as_json, table("Report", [row]))
