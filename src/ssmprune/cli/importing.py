"""The command that brings other people's models in."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from .. import adapters
from ..adapters import Adapter
from ..adapters.tree_files import load_tree
from ..errors import InputError
from ..models import save
from .common import Json, Out, app, show, table

if TYPE_CHECKING:
    from ..models.classifier import Classifier

KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    float: ((float, int), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a word"),
}
ANY = ((bool, float, int, str), "a value")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A Flax tree (.msgpack) or a torch state dict (.pt, .safetensors).")],
    family: Annotated[str, typer.Option("--family", "-f", help="The codebase it comes from, such as flax_s5.")],
    out: Out,
    answers: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...")] = None,
    as_json: Json = False,
) -> None:
    """Turn a classifier from another codebase into ours, with the same outputs.

    What the file does not record is given as NAME=VALUE. OUT is a .safetensors file, or a folder for model.safetensors.
    """
    model = import_model(load_tree(file), family, dict(map(_split, answers or [])))
    target = out if out.suffix == ".safetensors" else out / "model.safetensors"
    save(model, target)
    config = model.config.to_dict()
    rows = [{"entry": name, "value": value} for name, value in config.items()]
    show({"out": str(target), "config": config}, as_json, table(f"{file} -> {target}", rows))


def import_model(tree: dict[str, Any], family: str, answers: dict[str, Any]) -> Classifier:
    """Return our classifier; an answer is an option of the adapter or an argument of its importer."""
    families = adapters.found()
    importer = families[family].importer() if family in families else None
    if importer is None:
        names = ", ".join(sorted(name for name, adapter in families.items() if adapter.importer()))
        raise InputError(f"Whole models can be imported from the families {names}; got {family!r}.")
    options, arguments = _options(families[family]), _arguments(importer)
    _check(answers, options | arguments)
    if options:
        given = {name: answers[name] for name in options.keys() & answers.keys()}
        importer = type(families[family])(**given).importer() or importer
    model: Classifier = importer(tree, **{name: answers[name] for name in arguments.keys() & answers.keys()})
    return model


@dataclass(frozen=True)
class Question:
    """What an importer may want to know: its type says which answers there are."""

    type: Any  # bool, float, int, str, or a Literal of words; "or None" is left out
    needed: bool

    @property
    def expected(self) -> str:
        """The answers in words.

        >>> Question(Literal["mean", "last", "none"], needed=True).expected
        'mean, last or none'
        """
        if get_origin(self.type) is Literal:
            *words, last = map(str, get_args(self.type))
            return f"{', '.join(words)} or {last}" if words else last
        return KINDS.get(self.type, ANY)[1]

    def allows(self, value: Any) -> bool:
        """Tell whether this is an answer."""
        if get_origin(self.type) is Literal:
            return value in get_args(self.type)
        return type(value) in KINDS.get(self.type, ANY)[0]


def _options(adapter: Adapter) -> dict[str, Question]:
    """Return the adapter's own options; it says which of them a file does not record."""
    kind: Any = type(adapter)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    types = get_type_hints(kind)
    return {name: Question(_without_none(types[name]), name in adapter.asked) for name in names}


def _arguments(function: Callable[..., Any]) -> dict[str, Question]:
    """Return the questions that the keyword arguments of an importer are."""
    types = get_type_hints(function)
    arguments = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name: Question(_without_none(types[p.name]), p.default is p.empty) for p in arguments}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    others = [choice for choice in get_args(kind) if choice is not NoneType]
    return others[0] if len(others) == 1 else kind


def _check(answers: dict[str, Any], questions: dict[str, Question]) -> None:
    if unknown := sorted(answers.keys() - questions.keys()):
        raise InputError(f"This family has no {unknown[0]}; it knows {', '.join(questions)}.")
    missing = [f"{name} ({q.expected})" for name, q in questions.items() if q.needed and name not in answers]
    if missing:
        raise InputError(f"The file does not record {', '.join(missing)}; add NAME=VALUE for each.")
    for name, value in answers.items():
        if not questions[name].allows(value):
            raise InputError(f"{name} must be {questions[name].expected}; got {value!r}.")


def _split(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; true, false and numbers are taken as such."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"Expected NAME=VALUE, for example prenorm=true; got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
