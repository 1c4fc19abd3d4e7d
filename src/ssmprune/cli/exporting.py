"""Commands that make models ready for where they run: `quantize` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import need_torch
from ..files import check_writable
from ..models import cards, load, save
from .common import Checkpoint, Data, Json, Out, app, prepare, show, table
from .planning import Calibrate, calibration_inputs


@app.command()
def quantize(
    checkpoint: Checkpoint,
    out: Out,
    bits: Annotated[int, typer.Option("--bits", help="8 or 4 bits a weight.")] = 8,
    calibrate: Calibrate = None,
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="How many inputs to calibrate on.")] = 200,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Round the large weights of a model to 8 or 4 bits; --calibrate lets their errors make up for each other."""
    prepare()
    check_writable(out)
    from ..deploy.quantize import quantize

    model = load(checkpoint)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    inputs = None if calibrate is None else calibration_inputs(checkpoint, calibrate, sequences, data)
    small = quantize(model, bits, data=inputs, sequences=None)
    save(small, out)
    cards.pass_on(checkpoint, out)
    sizes = {"before": checkpoint.stat().st_size, "after": out.stat().st_size}
    facts = {"bits": bits, "bytes before": sizes["before"], "bytes after": sizes["after"], "out": str(out)}
    show(facts | {"history": small.history}, as_json, table(str(checkpoint), [facts]))


@app.command()
def export(
    checkpoint: Checkpoint,
    out: Out,
    format: Annotated[str, typer.Option("--format", help="c, onnx or torch-export.")] = "onnx",
    mode: Annotated[
        str, typer.Option("--mode", help="sequence, or stream: one step, the state goes in and out.")
    ] = "sequence",
    as_json: Json = False,
) -> None:
    """Write a model as one C99 file with its header, or as a graph in real arithmetic; batch and length stay free."""
    need_torch()
    from ..deploy import export
    from ..deploy.c import export_c

    if format == "c":
        export_c(load(checkpoint), out)
        mode = "sequence and stream"
    else:
        export(load(checkpoint), out, format=format, mode=mode)
    facts = {"format": format, "mode": mode, "bytes": Path(out).stat().st_size, "out": str(out)}
    show(facts, as_json, table(str(checkpoint), [facts]))
