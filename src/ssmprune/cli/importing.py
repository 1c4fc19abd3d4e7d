"""The command that brings other people's models in."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import adapters
from ..adapters._files import load_tree
from ..errors import InputError
from ..models import save
from .common import Json, Out, app, show, table

if TYPE_CHECKING:
    from ..models.classifier import Classifier

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "float": ((float, int), "a number"),
    "str": ((str,), "a word"),
}
ANY = ((bool, float, int, str), "a value")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A Flax tree (.msgpack) or a torch state dict (.pt, .safetensors).")],
    family: Annotated[str, typer.Option("--family", "-f", help="The code it comes from, such as flax_s5.")],
    out: Out,
    answers: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...")] = None,
    as_json: Json = False,
) -> None:
    """Turn a classifier of another code into ours, with the same outputs.

    What the file does not record is asked for by name. OUT is a .safetensors file, or a folder for model.safetensors.
    """
    model = imported(load_tree(file), family, dict(map(_answer, answers or [])))
    target = out if out.suffix == ".safetensors" else out / "model.safetensors"
    save(model, target)
    config = model.config.to_dict()
    rows = [{"entry": name, "value": value} for name, value in config.items()]
    show({"out": str(target), "config": config}, as_json, table(f"{file} -> {target}", rows))


def imported(tree: dict[str, Any], family: str, answers: dict[str, Any]) -> Classifier:
    """Return our classifier; an answer is an option of the adapter or of its importer."""
    able = {name: adapter for name, adapter in adapters.found().items() if hasattr(adapter, "classifier")}
    if family not in able:
        raise InputError(f"Whole models can be imported from the families {', '.join(sorted(able))}; got {family!r}.")
    adapter: Any = able[family]
    options = {field.name: str(field.type) for field in fields(adapter)} if is_dataclass(adapter) else {}
    parameters = [p for p in inspect.signature(adapter.classifier).parameters.values() if p.kind is p.KEYWORD_ONLY]
    questions = {one.name: str(one.annotation) for one in parameters}
    needed = [*getattr(adapter, "asked", ()), *(one.name for one in parameters if one.default is one.empty)]
    _check_answers(answers, options | questions, needed)
    if options:
        adapter = type(adapter)(**{name: answers[name] for name in options.keys() & answers.keys()})
    model: Classifier = adapter.classifier(tree, **{name: answers[name] for name in questions.keys() & answers.keys()})
    return model


def _check_answers(answers: dict[str, Any], known: dict[str, str], needed: list[str]) -> None:
    kinds = {name: KINDS.get(annotation.split(" ")[0], ANY) for name, annotation in known.items()}
    if unknown := sorted(answers.keys() - known.keys()):
        raise InputError(f"This family has no {unknown[0]}; it knows {', '.join(known)}.")
    if missing := [f"{name} ({kinds[name][1]})" for name in needed if name not in answers]:
        raise InputError(f"The file does not record {', '.join(missing)}; add NAME=VALUE for each.")
    for name, value in answers.items():
        types, words = kinds[name]
        if type(value) not in types:
            raise InputError(f"{name} must be {words}; got {value!r}.")


def _answer(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; true, false and numbers are taken as such."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"Expected NAME=VALUE, for example prenorm=true; got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
