"""The command that shows what pruning does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from ..files import check_writable
from ..progress import Bar
from .common import Engine, Json, app, prepare, say, show, table

BEGIN = (
    "An S5 that reads handwritten digits pixel by pixel is pruned by five methods at ten ratios and tested on 1,000 "
    "images each time. This takes a few minutes."
)
WHY_ANSWERS = (
    "At 100% one pair of states stays in every layer and the rest of the network is intact, so the model still "
    "answers, though it remembers little."
)


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to draw the curves.", show_default="demo.png; with --json they are not drawn"
        ),
    ] = None,
    engine: Engine = "torch",
    as_json: Json = False,
) -> None:
    """Prune a trained model that ships with ssmprune and show how much accuracy each method keeps."""
    out = Path("demo.png") if out is None and not as_json else out
    if out is not None and out.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"The curves are drawn to a .png, .pdf or .svg file; got {str(out)!r}.")
    say(BEGIN)
    if out is not None:
        check_writable(out)
    prepare()
    from ..deploy.compiled import choose_engine
    from ..report import demo
    from ..report import style as figures

    engine = choose_engine(engine)
    if out is not None:
        figures.need_matplotlib()
    with Bar("Pruning and evaluating", demo.EVALUATIONS) as bar:
        rows = demo.demo(bar.update, engine=engine)
    if out is not None:
        figures.save_figure(demo.picture(rows), out)
    readable = table(
        "Trained sMNIST S5, 1,000 test images: accuracy after pruning, no retraining",
        [
            {
                "pruned": f"{row.ratio:.0%}",
                "states": row.states,
                "size": f"{row.parameters / 1000:.0f}k",
                "speed": f"{row.speed:.2f}x",
            }
            | {name: f"{accuracy:.1%}" for name, accuracy in row.accuracy.items()}
            for row in rows
        ],
        WHY_ANSWERS,
    )
    show({"rows": [asdict(row) for row in rows], "picture": str(out) if out else None}, as_json, readable)
    if out is not None:
        say(f"Curves drawn to {out}")
