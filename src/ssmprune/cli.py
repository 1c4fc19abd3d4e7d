"""The command line: one verb is one function. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import __version__, adapters, criteria, surgery
from .allocation import energy_normalised
from .arrays import Real
from .checkpoint import load, save
from .errors import InputError
from .methods import Method, named
from .plan import Plan, make_plan
from .system import DiagonalSystem

if TYPE_CHECKING:
    from .models.classifier import Classifier

app = typer.Typer(
    help="Make trained diagonal state space models smaller and faster, without retraining.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Checkpoint = Annotated[Path, typer.Argument(help="A model saved by ssmprune (.safetensors).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Ratio = Annotated[float, typer.Option("--ratio", "-r", help="Share of all states to prune, from 0 to 1.")]
MethodName = Annotated[str, typer.Option("--method", "-m", help="One of `ssmprune list`.")]
Exclude = Annotated[list[str], typer.Option("--exclude", help="A layer that stays whole; may be repeated.")]
Cap = Annotated[float, typer.Option("--cap", help="Largest share to prune from any layer.")]
RoundTo = Annotated[int, typer.Option("--round-to", help="Round each layer's kept states up to a multiple of this.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random method.")]
Unstable = Annotated[bool, typer.Option("--keep-unstable", help="Keep states with unstable poles instead of refusing.")]


def main() -> None:
    """Run the command line; what the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except InputError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Options of every command."""
    if version:
        print(__version__)
        raise typer.Exit


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the methods, criteria and model families there are."""
    known = {"methods": sorted(named()), "criteria": sorted(criteria.found()), "families": sorted(adapters.found())}
    rows = [{"kind": kind, "names": ", ".join(names)} for kind, names in known.items()]
    _show(known, as_json, _table("What ssmprune knows", rows))


@app.command()
def inspect(checkpoint: Checkpoint, unstable: Unstable = False, as_json: Json = False) -> None:
    """Show the layers of a model: states, poles, and how its scores spread."""
    systems = _read(load(checkpoint), unstable)
    scores = make_plan(systems, 0).scores
    layers = [_describe(layer, system, scores[layer]) for layer, system in systems.items()]
    rows = [
        {
            "layer": layer["layer"],
            "kind": layer["kind"],
            "states": layer["states"],
            "memory in steps": "{:.3g} to {:.3g}".format(*layer["memory_steps"]),
            "LAST scores 10, 50, 90 %": "{:.1e} {:.1e} {:.1e}".format(*layer["last_scores"]),
        }
        for layer in layers
    ]
    _show({"layers": layers}, as_json, _table(str(checkpoint), rows))


@app.command()
def plan(
    checkpoint: Checkpoint,
    ratio: Ratio,
    out: Out,
    method: MethodName = "last",
    exclude: Exclude = [],  # noqa: B006 (typer copies it)
    cap: Cap = 1.0,
    round_to: RoundTo = 1,
    seed: Seed = 0,
    unstable: Unstable = False,
    as_json: Json = False,
) -> None:
    """Decide which states to prune and write the decision to a file."""
    made = make_plan(
        _read(load(checkpoint), unstable),
        ratio,
        _method(method),
        exclude=exclude,
        caps=cap,
        round_to=round_to,
        seed=seed,
    )
    made.save(out)
    _show_plan(made, out, as_json)


@app.command()
def mask(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Silence the states a plan prunes; the model keeps its size."""
    made = Plan.load(plan_file)
    save(surgery.mask(load(checkpoint), made), out)
    _show_plan(made, out, as_json)


@app.command()
def shrink(checkpoint: Checkpoint, plan_file: Path, out: Out, as_json: Json = False) -> None:
    """Remove the states a plan prunes; the model gets smaller and faster."""
    made = Plan.load(plan_file)
    save(surgery.shrink(load(checkpoint), made), out)
    _show_plan(made, out, as_json)


@app.command()
def prune(
    checkpoint: Checkpoint,
    ratio: Ratio,
    out: Out,
    method: MethodName = "last",
    exclude: Exclude = [],  # noqa: B006 (typer copies it)
    cap: Cap = 1.0,
    round_to: RoundTo = 1,
    seed: Seed = 0,
    unstable: Unstable = False,
    as_json: Json = False,
) -> None:
    """Plan and shrink at once."""
    model = load(checkpoint)
    made = make_plan(
        _read(model, unstable), ratio, _method(method), exclude=exclude, caps=cap, round_to=round_to, seed=seed
    )
    save(surgery.shrink(model, made), out)
    _show_plan(made, out, as_json)


def _read(model: Classifier, unstable: bool) -> dict[str, DiagonalSystem]:
    return surgery.read(model, unstable="keep" if unstable else "refuse")


def _method(name: str) -> Method:
    if name not in named():
        raise InputError(f"There is no method {name!r}; the methods are {', '.join(sorted(named()))}.")
    return named()[name]


def _describe(layer: str, system: DiagonalSystem, scores: Real) -> dict[str, Any]:
    """Sizes of a layer, the memory 1/(1 - |pole|) of its fastest and slowest pole, quantiles of its LAST scores."""
    memory = -1 / np.expm1(system.log_poles.real)
    return {
        "layer": layer,
        "kind": "MIMO" if system.channel is None else "multi-SISO",
        "width": system.inputs,
        "directions": system.directions,
        "states": system.states,
        "memory_steps": [float(memory.min()), float(memory.max())],
        "last_scores": np.quantile(np.exp(energy_normalised(scores)), [0.1, 0.5, 0.9]).tolist(),
    }


def _show_plan(made: Plan, out: Path, as_json: bool) -> None:
    rows = made.rows()
    title = f"{made.method} at {made.ratio:.0%} -> {out}"
    table = _table(title, [row | {"pruned": f"{row['pruned']:.1%}"} for row in rows])
    _show({"method": made.method, "ratio": made.ratio, "layers": rows, "out": str(out)}, as_json, table)


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def _show(data: Any, as_json: bool, table: Table) -> None:
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        Console().print(table)


if __name__ == "__main__":
    main()
