"""Commands that make models ready for where they run: `quantize`, `export`, and `deploy`, which does it all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from ..budgets import certify_model
from ..errors import InputError, need_torch, one_of
from ..files import check_new_folder, check_writable
from ..models import load, save
from ..tasks import cards
from .common import Checkpoint, Data, Json, Out, app, literal, prepare, say, show, table
from .gains import certificate_facts, certificate_table
from .planning import Calibrate, Sequences, calibration_inputs, decide, takes_options_of, task_name

if TYPE_CHECKING:
    from ..models.classifier import Classifier
    from ..planning.certificates import Certificate
    from ..tasks.task import Split

Bits = Annotated[int, typer.Option("--bits", help="Bits per weight: 8 or 4.")]
ROWS = {  # of the table that `deploy` prints, with the names of the card
    "states": ("states", "{:,}"),
    "parameters": ("parameters", "{:,}"),
    "checkpoint, bytes": ("checkpoint_bytes", "{:,}"),
    "state of a stream in C, bytes": ("state_bytes", "{:,}"),
    "steps per second in C": ("steps_per_second", "{:,.0f}"),
    "accuracy": ("accuracy", "{:.2%}"),
}
FORMATS = {".c": "c", ".onnx": "onnx", ".pt2": "torch-export"}  # by the ending of --out


@app.command()
def quantize(
    checkpoint: Checkpoint,
    out: Out,
    bits: Bits = 8,
    calibrate: Calibrate = None,
    sequences: Sequences = 200,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Round the large weights of a model to 8 or 4 bits; --calibrate makes rounding errors offset one another."""
    prepare()
    check_writable(out)
    from ..quantisation.quantise import quantize

    model = load(checkpoint)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    inputs = None if calibrate is None else calibration_inputs(checkpoint, calibrate, sequences, data)
    small = quantize(model, bits, data=inputs, sequences=None)
    save(small, out)
    cards.copy_card(checkpoint, out)
    sizes = {"before": checkpoint.stat().st_size, "after": out.stat().st_size}
    facts = {"bits": bits, "bytes before": sizes["before"], "bytes after": sizes["after"], "out": str(out)}
    show(facts | {"history": small.history}, as_json, table(str(checkpoint), [facts]))


@app.command()
def export(
    checkpoint: Checkpoint,
    out: Out,
    format: Annotated[
        str | None, typer.Option("--format", help="c, onnx or torch-export; by default as --out ends, else onnx.")
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="sequence, or stream: one step at a time, state in and state out.")
    ] = "sequence",
    as_json: Json = False,
) -> None:
    """Write a model as one C99 file with its header, or as a graph in real arithmetic for any batch size and length."""
    need_torch()
    from ..deploy.c import export_c
    from ..deploy.onnx import export_onnx, export_torch

    format = _format(format, out)
    if format == "c":
        export_c(load(checkpoint), out)
        mode = "sequence and stream"
    else:
        write = one_of("format", format, {"c": export_onnx, "onnx": export_onnx, "torch-export": export_torch})
        write(load(checkpoint), out, mode=mode)
    facts = {"format": format, "mode": mode, "bytes": Path(out).stat().st_size, "out": str(out)}
    show(facts, as_json, table(str(checkpoint), [facts]))


def _format(named: str | None, out: Path) -> str:
    """Return the format that is named, else the one that the file's ending stands for; both must agree."""
    by_ending = FORMATS.get(out.suffix)
    if named in FORMATS.values() and by_ending not in (None, named):
        raise InputError(f"--format {named} does not match {out.name}, whose ending means {by_ending}.")
    return named or by_ending or "onnx"


def rounding(bits: Bits = 8) -> None:
    """Name the options of quantising that `deploy` takes in addition to those of `decide`."""


@app.command()
@takes_options_of(decide, rounding)
def deploy(bits: int, **options: Any) -> None:
    """Prune and quantise a model and write it in every form to a new folder, with a card of the gains and costs.

    The folder --out gets the checkpoint and its card, a C file and its header, and, if onnxscript is installed, an ONNX
    graph. Budgets, such as --max-loss, are those of the pruned and quantised model. Accuracy is measured on --examples
    test examples if the task's data are available.
    """
    need_torch()
    from ..deploy import bundle
    from ..quantisation.quantise import check_bits, quantize

    checkpoint, folder = options["checkpoint"], options["out"]
    check_bits(bits)
    check_new_folder(folder)
    say(f"Pruning {checkpoint}, rounding it to {bits} bits, measuring it, writing {folder}: this takes a few minutes.")
    name = bundle.bundle_name(checkpoint)
    split = _test_examples(options)
    decision = decide(
        **options | {"out": folder / f"{name}.safetensors", "certify": False},  # what it certifies is not rounded yet
        finish=lambda small, inputs: quantize(small, bits, data=inputs, sequences=None),
    )
    model = decision.work.model
    small = decision.small or model
    say("Measuring the size, speed and accuracy of the model before and after.")
    before, after = (bundle.measure(seen) | _score(seen, split) for seen in (model, small))
    before["checkpoint_bytes"] = checkpoint.stat().st_size
    card = cards.inherited(checkpoint) | {"history": small.history, "before": before, "after": after}
    card |= {"budgets": decision.notes} if decision.notes else {}
    certificates = certify_model(decision.work, small) if options["certify"] else {}
    card |= {"certificates": certificate_facts(certificates)} if certificates else {}
    say("Writing the checkpoint, C and ONNX.")
    with bundle.new_bundle(folder, name, small) as (written, sizes):
        card |= {"files": sizes, "after": after | {"checkpoint_bytes": sizes[written.name]}}
        cards.write_card(written, card)
    _show_bundle(card, certificates, folder, decision.as_json)


def _test_examples(options: dict[str, Any]) -> Split | None:
    """Return test examples of the model's task; None, with a word on stderr, if the data are missing."""
    from ..tasks.data import as_found, data_folder
    from ..tasks.task import fewer
    from ..training.evaluation import check_fits

    checkpoint, root = options["checkpoint"], options["data"]
    name = task_name(checkpoint, options["validate"], options["calibrate"])
    if root is not None:
        data_folder(root)  # one that is named must exist
    if name is None:
        return None
    task = cards.task_of(checkpoint, name)
    try:
        with as_found():
            split = fewer(task.load("test", root), options["examples"])
    except InputError as error:
        say(f"Accuracies are left out. {error}")
        return None
    check_fits(load(checkpoint), split)
    return split


def _score(model: Classifier, split: Split | None) -> dict[str, Any]:
    from ..training import evaluate

    if split is None:
        return {}
    seen = evaluate(model, split, engine="auto")
    return {"accuracy": seen.accuracy, "examples": seen.examples}


def _show_bundle(card: dict[str, Any], certificates: dict[str, Certificate], folder: Path, as_json: bool) -> None:
    """Print what a model was and what it became, its certificates, and the files that were written."""
    rows = [
        {"": title, **{when: _text(card[when].get(key), form) for when in ("before", "after")}}
        for title, (key, form) in ROWS.items()
    ]
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}  # the card's is in no card
    files = table(f"{folder}", [{"file": name, "bytes": f"{size:,}"} for name, size in sizes.items()])
    changes = table("; then ".join(card["history"]), [row for row in rows if row["before"] or row["after"]])
    bounds = [certificate_table(certificates)] if certificates else []
    said = map(literal, card.get("budgets", []))
    show(card | {"out": str(folder)}, as_json, Group(changes, *bounds, *said, files))


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
