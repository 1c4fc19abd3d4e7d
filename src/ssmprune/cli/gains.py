"""What pruning came to, for programs and for people: states, certificates, budgets, bytes and milliseconds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table

from ..budgets import milliseconds_of
from ..errors import InputError
from ..planning.certificates import Certificate
from ..planning.plan import Plan
from ..tasks.cards import read_card, task_of
from .common import literal, show, table
from .planning import Decision, first_sequence

UNKNOWN_LENGTH = 1024  # of the sequences of a checkpoint whose card names no task

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.classifier import Classifier
    from ..recovery import Recovered


class Said(NamedTuple):
    """The same for programs and for people."""

    facts: dict[str, Any]
    lines: list[str]


def gains(decision: Decision, checkpoint: Path, small: Classifier) -> Said:
    """Measure the model before and after pruning, and say it with what the budgets came to."""
    from ..models.checkpoint import stored_bytes

    whole, x = decision.work.model, one_example(decision, checkpoint)
    sizes = [stored_bytes(model) for model in (whole, small)]
    times = [milliseconds_of(model, (x,)) for model in (whole, small)]
    lines = [
        f"Tensors: {sizes[0]:,} -> {sizes[1]:,} bytes",
        f"Time for {len(x)} x {x.shape[1]:,} steps: {times[0]:.3g} -> {times[1]:.3g} ms on this machine",
    ]
    facts: dict[str, Any] = {"bytes": sizes, "milliseconds": times, "budgets": decision.notes}
    return Said(facts, [*decision.notes, *lines])


def one_example(decision: Decision, checkpoint: Path) -> Tensor:
    """Return one sequence, for a model of pairs two: of the calibration data, or random and as long as the task's."""
    import torch

    if decision.work.batches is not None:
        return first_sequence(decision.work)
    try:
        length = task_of(checkpoint).length if read_card(checkpoint).get("task") else UNKNOWN_LENGTH
    except InputError:  # the card names a task that is not known here; it is not needed
        length = UNKNOWN_LENGTH
    config, sequences = decision.work.model.config, 2 if decision.work.model.config.retrieval else 1
    if config.tokens:
        return torch.randint(config.inputs, (sequences, length))
    return torch.randn(sequences, length, config.inputs)


def show_plan(
    plan: Plan,
    out: Path,
    as_json: bool,
    certificates: dict[str, Certificate] | None = None,
    recovered: Recovered[Any] | None = None,
    said: Said | None = None,
) -> None:
    """Print what stays of each layer and, with certificates, how far its output may move; and how recovery went.

    said: what else there is to say, as facts and as lines.
    """
    rows = plan.rows()
    facts: dict[str, Any] = {
        "method": plan.method,
        "ratio": plan.ratio,
        "reached": plan.reached,
        "sequences": plan.sequences,
        "layers": rows,
        "out": str(out),
    }
    readable = [row | {"pruned": f"{row['pruned']:.1%}"} for row in rows]
    tables: list[Any] = [table(f"{plan.title} -> {out}", readable)]
    if certificates:
        facts["certificates"] = certificate_facts(certificates)
        tables.append(certificate_table(certificates))
    if recovered:
        facts["recovery"] = recovered.facts()
        tables.append(literal(recovered))
    if said:
        facts |= said.facts
        tables += [literal(line) for line in said.lines]
    show(facts, as_json, Group(*tables))


def certificate_facts(certificates: dict[str, Certificate]) -> dict[str, Any]:
    """Return certificates as JSON and cards hold them."""
    return {layer: asdict(certificate) for layer, certificate in certificates.items()}


def certificate_table(certificates: dict[str, Certificate]) -> Table:
    """Return how far the output of each layer may move, without the columns that have nothing to say."""
    caption = "exact and bound hold for every input; the paper's expressions for layer and model do not"
    rows = [_row(*item) for item in certificates.items()]
    empty = {name for name in rows[0] if not any(row[name] for row in rows)}
    rows = [{name: text for name, text in row.items() if name not in empty} for row in rows]
    return table("Gain of the error in each layer's output", rows, caption)


def _row(layer: str, certificate: Certificate) -> dict[str, str]:
    figures = {
        "layer's gain": certificate.gain,
        "exact": certificate.exact,
        "bound": certificate.bound,
        "paper, layer": certificate.paper,
        "paper, model": certificate.paper_model,
    }
    written = {name: "" if value is None else f"{value:.3g}" for name, value in figures.items()}
    measured = "" if certificate.measured is None else f"{certificate.measured:.2%}"
    return {"layer": layer, **written, "on data": measured}
