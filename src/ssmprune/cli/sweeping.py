"""Commands that compare ways of pruning over whole models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..progress import Bar
from .common import Data, Engine, Json, Module, Threads, app, prepare, show, table

if TYPE_CHECKING:
    from ..sweeps.store import Results
    from ..sweeps.sweeping import Session

RunnerOptions = tuple[str | None, int | None, int]  # address, workers, threads
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; an interrupted sweep resumes.")]
Ratios = Annotated[str, typer.Option("--ratios", help="FIRST:LAST:STEP, or a comma-separated list.")]
Seeds = Annotated[str, typer.Option("--seeds", help="Seeds for the random approaches, comma-separated.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="How many test examples to evaluate.")]
FinalExamples = Annotated[
    int | None, typer.Option("--final-examples", min=1, help="Test examples for what --max-loss finds; by default all.")
]
RunnerName = Annotated[str, typer.Option("--runner", help="local, or ray to run on a cluster.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Address of a Ray cluster; by default one is started here.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of Ray workers; by default as many as fit.")
]


@app.command()
def sweep(
    checkpoints: Annotated[list[Path], typer.Argument(help="Models saved by ssmprune, with a card or --task.")],
    out: Folder,
    task: Annotated[
        str | None, typer.Option("--task", help="A task from `ssmprune list`; by default the card's.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option("--methods", "-m", help="Comma-separated names; by default all.")
    ] = None,
    ratios: Ratios = "0.1:1.0:0.1",
    seeds: Seeds = "0",
    examples: Examples = 2000,
    max_loss: Annotated[
        float | None,
        typer.Option("--max-loss", help="Also find the largest ratio that costs at most this many points."),
    ] = None,
    final_examples: FinalExamples = None,
    every: Annotated[
        int, typer.Option("--every", min=1, help="Keep every n-th sample, with steps longer by that factor.")
    ] = 1,
    speed: Annotated[
        bool, typer.Option("--speed", help="Also measure how much faster each model is in torch.")
    ] = False,
    data: Data = None,
    module: Module = None,
    engine: Engine = "torch",
    runner: RunnerName = "local",
    address: Address = None,
    workers: Workers = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Prune models by every method at every ratio and evaluate them; if interrupted, the same command resumes."""
    prepare(threads)
    from ..sweeps import approaches
    from ..sweeps.sweeping import ALL, Sweep, entries
    from ..sweeps.sweeping import sweep as run

    plan = Sweep(
        methods=methods.split(",") if methods else approaches.default(),
        ratios=parse_ratios(ratios),
        seeds=_parse_seeds(seeds),
        examples=examples,
        every=every,
        speed=speed,
        max_loss=max_loss,
        final_examples=final_examples or ALL,
    )
    swept = entries(checkpoints, task)
    with open_session(data, engine, runner, (address, workers, threads or 1)) as session:
        results = run(swept, plan, out, session)
    _show(results, as_json)


@contextmanager
def open_session(data: Path | None, engine: str, runner: str, options: RunnerOptions) -> Iterator[Session]:
    """Start a runner and a bar on standard error: what was done last, how many cells of how many, the time left."""
    from ..deploy.compiled import choose_engine
    from ..sweeps import runners
    from ..sweeps.sweeping import Session

    if engine in ("local", "ray"):
        raise InputError(f"--engine says what computes: torch, compiled or auto; where it runs is --runner {engine}.")
    choose_engine(engine)  # before a cluster is asked
    with runners.start(runner, *options) as chosen, Bar() as bar:

        def watch(text: str, done: int, total: int) -> None:
            bar.total = total
            bar.show(done, text)

        yield Session(data, chosen, engine, typed_command(data), watch)


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


def typed_command(data: Path | None) -> str:
    """Return what was typed, without where the data lies."""
    words = ["DATA" if data is not None and word == str(data) else word for word in sys.argv[1:]]
    return " ".join(["ssmprune", *words])


def _parse_seeds(text: str) -> list[int]:
    return [_number(seed, int, "--seeds") for seed in text.split(",")]


def _number(text: str, kind: Any, option: str) -> Any:
    try:
        return kind(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"{option} takes numbers; got {text!r}.") from error


def _show(results: Results, as_json: bool) -> None:
    from ..report.tables import accuracy_table

    made = accuracy_table(results)
    rows = [dict(zip(made.columns, texts, strict=True)) for texts in made.texts()]
    readable = table(made.title, rows, " ".join(made.notes))
    show({"results": str(results.folder), "cells": len(results.cells)}, as_json, readable)
