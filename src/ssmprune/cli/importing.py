"""Commands that bring models of other codebases in, and that list what ssmprune knows."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter

from .. import adapters, tasks
from ..adapters import Adapter
from ..errors import InputError
from ..methods import criteria, named
from ..models import save
from ..sweeps import approaches
from ..trees import load_tree
from .options import Out
from .output import Report, table

if TYPE_CHECKING:
    from ..models.classifier import Classifier

NAMES = {bool: "true or false", float: "a number", int: "a whole number", str: "a word"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Where a model comes from and goes to."""

    family: Annotated[str, Parameter(alias="-f")]
    """The codebase it comes from, such as flax_s5."""
    out: Out


def import_(
    file: Annotated[Path, Parameter(help="A Flax tree (.msgpack) or a torch state dict (.pt, .safetensors).")],
    /,
    *answers: Annotated[str, Parameter(name="NAME=VALUE", help="What the file does not record, as in prenorm=true.")],
    options: ImportOptions,
) -> Report:
    """Turn a classifier from another codebase into ours, with the same outputs.

    What the file does not record is given as NAME=VALUE. OUT is a .safetensors file, or a folder for model.safetensors.
    """
    out = options.out
    model = import_model(load_tree(file), options.family, dict(map(_split, answers)))
    target = out if out.suffix == ".safetensors" else out / "model.safetensors"
    save(model, target)
    config = model.config.to_dict()
    rows = [{"entry": name, "value": value} for name, value in config.items()]
    return Report({"out": str(target), "config": config}, table(f"{file} -> {target}", rows))


def list_() -> Report:
    """List methods, what else sweeps can compare, criteria, model families and tasks."""
    names = {
        "methods": sorted(named()),
        "also in sweeps": sorted(approaches.found().keys() - named().keys()),
        "criteria": sorted(criteria()),
        "families": sorted(adapters.found()),
        "tasks": sorted(tasks.found()),
    }
    rows = [{"kind": kind, "names": ", ".join(members)} for kind, members in names.items()]
    return Report(names, table("What ssmprune knows", rows))


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
    """What an importer may want to know, and which answers its type allows."""

    type: Any
    needed: bool

    @property
    def choices(self) -> list[Any]:
        """The words of a Literal and the other types that are allowed."""
        kinds = [kind for kind in (get_args(self.type) or [self.type]) if kind is not NoneType]
        return [choice for kind in kinds for choice in (get_args(kind) or [kind])]

    @property
    def expected(self) -> str:
        """The answers in words.

        >>> Question(Literal["mean", "last", "none"], needed=True).expected
        'mean, last or none'
        """
        *words, last = (NAMES.get(choice, str(choice)) for choice in self.choices)
        return f"{', '.join(words)} or {last}" if words else last

    def allows(self, value: Any) -> bool:
        """Tell whether this is an answer."""
        kinds = {int, float} if type(value) is int else {type(value)}
        return any(value == choice if isinstance(choice, str) else choice in kinds for choice in self.choices)


def _options(adapter: Adapter) -> dict[str, Question]:
    """Return the adapter's own options; it says which of them a file does not record."""
    types = get_type_hints(type(adapter))
    names: list[str] = [field.name for field in fields(adapter)] if is_dataclass(adapter) else []
    return {name: Question(types[name], name in adapter.asked) for name in names}


def _arguments(importer: Callable[..., Any]) -> dict[str, Question]:
    """Return the questions that the keyword arguments of an importer are."""
    types = get_type_hints(importer)
    arguments = [p for p in inspect.signature(importer).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name: Question(types[p.name], p.default is p.empty) for p in arguments}


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
