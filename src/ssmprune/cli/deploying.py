"""Commands that make models ready for where they run: `quantize`, `export`, `verify`, and `deploy`, which does all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Group
from rich.table import Table

from ..budgets import certify_model, wilson_interval
from ..errors import InputError
from ..files import check_new_folder, check_writable
from ..models import load, save
from ..tasks import cards
from .options import CalibrationOptions, Checkpoint, Options, Out, parse_whole_number, prepare
from .output import WRONG, Report, literal, say, table
from .pruning import PruningOptions, Width, find_plan, forget_recoveries, recover_found, report_certificates

if TYPE_CHECKING:
    from ..models.classifier import Classifier
    from ..tasks.task import Split

Bits = Annotated[int, Parameter(converter=parse_whole_number, help="Bits per weight: 8 or 4.")]
Arithmetic = Annotated[
    Literal["float", "integer"],
    Parameter(help="What the C computes with: floats, or whole numbers from the inputs to the logits."),
]
ROWS = {  # of the table that `deploy` prints, with the names of the card
    "states": ("states", "{:,}"),
    "features": ("width", "{:,}"),
    "parameters": ("parameters", "{:,}"),
    "checkpoint, bytes": ("checkpoint_bytes", "{:,}"),
    "code and weights in C, bytes": ("compiled_bytes", "{:,}"),
    "state of a stream in C, bytes": ("state_bytes", "{:,}"),
    "stack of a call in C, at most, bytes": ("stack_bytes", "{:,}"),
    "steps per second in C, one by one": ("steps_per_second", "{:,.0f}"),
    "accuracy": ("accuracy", "{:.2%}"),
    "with 95 % confidence": ("interval", "{0[0]:.1%} to {0[1]:.1%}"),
}
FORMATS = {".c": "c", ".html": "wasm", ".onnx": "onnx", ".pt2": "torch-export"}  # by the ending of --out


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(CalibrationOptions):
    """How to round weights, on which data."""

    out: Out
    bits: Bits = 8
    arithmetic: Arithmetic = "float"


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Where to write a model, and for which use."""

    out: Annotated[Path, Parameter(alias="-o")]
    """Its ending says the format: .c, .html (a page that runs it, with .wasm and .js), .onnx or .pt2 (torch.export)."""
    mode: str = "sequence"
    """sequence, or stream: one step at a time, state in and state out. C has both; pages stream."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """What builds and runs a C file."""

    cc: str | None = None
    """The command line of a compiler, as "arm-linux-gnueabi-gcc -static"; by default this machine's."""
    run: str | None = None
    """What runs its programs, as qemu-arm-static; by default nothing."""


@dataclass(frozen=True, kw_only=True)
class DeployOptions(PruningOptions):
    """How far to prune, by which method, on which data, and how to round weights."""

    out: Annotated[Path, Parameter(alias="-o")] = field()
    """A new folder for all files."""
    width: Width = None
    """Share of the features to prune as well, on data of --calibrate; by default budgets weigh both, as "auto" does."""
    bits: Bits = 8
    arithmetic: Arithmetic = "float"


def quantize(checkpoint: Checkpoint, /, options: QuantizeOptions) -> Report:
    """Round the large weights of a model to 8 or 4 bits; --calibrate makes rounding errors offset one another."""
    prepare(checkpoint)
    check_writable(out := options.out)
    from ..quantisation.quantise import quantize

    model = load(checkpoint)
    cards.read_card(checkpoint)  # a damaged card is noticed before anything is written
    inputs = options.load(checkpoint)
    raw = options.raw(checkpoint) if options.arithmetic == "integer" else None
    small = quantize(model, options.bits, data=inputs, sequences=None, arithmetic=options.arithmetic, raw=raw)
    save(small, out)
    cards.copy_card(checkpoint, out, _samples(small))
    before, after = (path.stat().st_size for path in (checkpoint, out))
    facts = {"bits": options.bits, "bytes before": before, "bytes after": after, "out": str(out)}
    return Report(facts | {"history": small.history}, table(small.history[-1], [facts]))


def _samples(model: Classifier) -> dict[str, Any]:
    """Return what a card says of the inputs of a model that computes in whole numbers; nothing of others."""
    if model.grid is None or model.grid.ranges is None or model.config.tokens:
        return {}
    scale, offset = model.grid.ranges.scale, model.grid.ranges.offset
    text = "the C takes samples of 16 bits; the model was trained on scale * sample + offset"
    return {"samples": {"meaning": text, "scale": list(scale), "offset": list(offset)}}


def export(checkpoint: Checkpoint, /, options: ExportOptions) -> Report:
    """Write a model as a C99 file with its header, a page for browsers, or a graph for any batch size and length."""
    prepare(checkpoint)
    from ..deploy import bundle, export_c, wasm
    from ..deploy.onnx import export_onnx, export_torch

    out = options.out
    if out.suffix not in FORMATS:
        raise InputError(f"The ending of --out says the format, {', '.join(FORMATS)}; got {out.name!r}.")
    format, mode, model = FORMATS[out.suffix], options.mode, load(checkpoint)
    if format == "c":
        export_c(model, out, origin=bundle.origin_of(checkpoint, cards.about_task(checkpoint)))
        mode, sizes = "sequence and stream", bundle.sizes_of_c(model, out)
    elif format == "wasm":
        task = cards.read_card(checkpoint).get("task")
        mode, sizes = "stream", {**wasm.write_page(model, out, task, bundle.origin_of(checkpoint))}
    else:
        (export_onnx if format == "onnx" else export_torch)(model, out, mode=mode)
        sizes = {"bytes": out.stat().st_size}
    facts = {"format": format, "mode": mode, **sizes, "out": str(out)}
    return Report(facts, table(str(checkpoint), [facts]))


def verify(
    file: Annotated[Path, Parameter(help="A C file that `export` or `deploy` wrote.")],
    checkpoint: Annotated[
        Path | None, Parameter(help="Its model; by default the one that it names, beside it.")
    ] = None,
    inputs: Annotated[str | None, Parameter(help="A task, or a .npy file; by default random numbers.")] = None,
    /,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 (frozen)
) -> Report:
    """Build a C file with your compiler, run it and compare it with its checkpoint; exit code 2 if it differs.

    Deviations are in units of the last place (ULP) of the largest logit; 256, or 0 in whole numbers, and the file's
    self-test must pass.
    """
    prepare(file)
    from ..deploy import verify as c
    from ..training.calibration_inputs import load_unlabelled

    checkpoint = c.find_checkpoint(file, checkpoint)
    model, x = load(checkpoint), []
    if inputs is not None:
        parameters = cards.task_parameters(checkpoint, inputs)
        x = [batch.x.numpy() for batch in load_unlabelled(inputs, c.SEQUENCES, None, parameters)]
    found = c.verify(file, model, x or [c.random_inputs(model.config)], options.cc, options.run)
    facts: dict[str, Any] = {"deviation": found.ulp, "bound": found.bound, "self-test": found.self_test}
    facts |= {"result": "as the checkpoint" if found.passed else "differs", "id": found.id}
    titles = {"deviation": "largest deviation, ULP"} | {name: name for name in ("bound", "self-test", "result")}
    return Report(facts, table(f"{file} and {checkpoint}", [facts], found.id, titles), 0 if found.passed else WRONG)


def deploy(checkpoint: Checkpoint, /, options: DeployOptions) -> Report:
    """Prune, recover and quantise a model; write it in every form to a new folder, with a card of the gains and costs.

    The folder --out gets the checkpoint and its card, a C file and its header, and, if onnxscript is installed, an ONNX
    graph. Budgets, such as --max-loss, are those of the pruned and quantised model; with --recover, what was recovered
    is pruned further and recovered again, a few times, while budgets of a loss are kept. Accuracy is measured on the
    test examples, or --examples of them, if the task's data are available.
    """
    prepare(checkpoint)
    from ..deploy import bundle
    from ..quantisation.quantise import check_bits, quantize

    bits, folder = options.bits, options.out
    check_bits(bits)
    options.check_amount()
    options.check_recovery()
    check_new_folder(folder)
    recovery = f", plus up to {options.minutes:g} for each recovery" if options.recover else ""
    say(f"Pruning {checkpoint}, rounding to {bits} bits, measuring, writing {folder}: a few minutes{recovery}.")
    split = _test_examples(checkpoint, options)
    raw = options.calibration.raw(checkpoint) if options.arithmetic == "integer" else None
    rounded = partial(quantize, bits=bits, sequences=None, arithmetic=options.arithmetic, raw=raw)
    found = find_plan(checkpoint, options, finish=lambda small, inputs: rounded(small, data=inputs))
    if options.recover:
        found, _ = recover_found(checkpoint, options, folder, found, further=True)
    small = found.model
    bounds = report_certificates(certify_model(found.pruning, small)) if options.certify else None
    say("Measuring the size, speed and accuracy of the model before and after.")
    before, after = (_measure(model, split) for model in (found.pruning.model, small))
    before["checkpoint_bytes"] = checkpoint.stat().st_size
    card = cards.inherited(checkpoint) | {"history": small.history, "before": before, "after": after} | _samples(small)
    card |= ({"budgets": found.notes} if found.notes else {}) | (bounds.facts if bounds else {})
    say("Writing the checkpoint, C and ONNX.")
    name, about = bundle.bundle_name(checkpoint), cards.about_task(checkpoint)
    with bundle.new_bundle(folder, name, small, about) as (written, sizes):
        in_c = bundle.sizes_of_c(small, written.with_suffix(".c"))
        after |= {f"{name}_bytes": size for name in ("compiled", "stack") if (size := in_c[f"{name} bytes"])}
        after["checkpoint_bytes"] = sizes[written.name]
        cards.write_card(written, card | {"files": sizes})
    if options.recover:
        forget_recoveries(folder)
    files = [{"file": path.name, "bytes": path.stat().st_size} for path in sorted(folder.iterdir())]
    more = [*([bounds.readable] if bounds else []), *map(literal, found.notes), table(str(folder), files)]
    return Report(card | {"files": sizes, "out": str(folder)}, Group(_compare(card), *more))


def _test_examples(checkpoint: Path, options: DeployOptions) -> Split | None:
    """Return test examples of the model's task; None, with a word on stderr, if the data are missing."""
    from ..tasks.data import as_found, data_folder
    from ..tasks.task import fewer

    root, name = options.calibration.data, options.task_name(checkpoint)
    if root is not None:
        data_folder(root)  # a folder that is named must exist
    if name is None:
        say(f"Accuracies are left out: {checkpoint} has no card that names its task; --validate TASK does.")
        return None
    task = cards.task_of(checkpoint, name)
    try:
        with as_found():
            return fewer(task.load("test", root), options.examples)
    except InputError as error:
        say(f"Accuracies are left out. {error}")
        return None


def _measure(model: Classifier, split: Split | None) -> dict[str, Any]:
    """Measure a model in C where there is a compiler, and count its right answers."""
    from ..deploy.compiled import forward
    from ..sweeps.timing import measure
    from ..training import evaluate

    with forward(model, "auto") as engine:
        figures = measure(model, engine)
        if split is not None:
            score = evaluate(model, split, engine=engine)
            figures |= {"accuracy": score.accuracy, "examples": score.examples}
            figures["interval"] = wilson_interval(score.accuracy, score.examples)
    return figures


def _compare(card: dict[str, Any]) -> Table:
    """Show what a model was and what it became."""
    rows = []
    for title, (key, form) in ROWS.items():
        figures = {when: card[when].get(key) for when in ("before", "after")}
        texts = {when: None if figure is None else form.format(figure) for when, figure in figures.items()}
        rows += [{"": title, **texts}] if any(texts.values()) else []
    return table("; then ".join(card["history"]), rows)
