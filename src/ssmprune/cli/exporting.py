"""The command that takes models out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import need_torch
from ..models import load
from .common import Checkpoint, Json, Out, app, show, table


@app.command()
def export(
    checkpoint: Checkpoint,
    out: Out,
    format: Annotated[str, typer.Option("--format", help="onnx or torch-export.")] = "onnx",
    mode: Annotated[
        str, typer.Option("--mode", help="sequence, or stream: one step, the state goes in and out.")
    ] = "sequence",
    as_json: Json = False,
) -> None:
    """Write a model as a graph in real arithmetic; batch and length stay free."""
    need_torch()
    from ..deploy import export

    export(load(checkpoint), out, format=format, mode=mode)
    facts = {"format": format, "mode": mode, "bytes": Path(out).stat().st_size, "out": str(out)}
    show(facts, as_json, table(str(checkpoint), [facts]))
