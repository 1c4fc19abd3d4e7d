"""Commands that bring models of other codebases in, and that list what ssmprune knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter

from .. import adapters, tasks
from ..errors import InputError
from ..methods import criteria, named
from ..models import save
from ..sweeps import approaches
from ..trees import load_tree
from .options import Options, Out
from .output import Report, table

if TYPE_CHECKING:
    from ..models.classifier import Classifier

FIRST = ("last", "surgeon")  # the methods that are used by default
PAIRED = (
    ". Every pair CRITERION/ALLOCATION without a name above is a method, too, as in energy/pooled; allocations are "
    "uniform, pooled, layer_adaptive, layer_share"
)
NAMES = {bool: "true or false", float: "a number", int: "a whole number", str: "a word"}


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Options):
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
    with_names = [*FIRST, *(name for name in names["methods"] if "/" not in name and name not in FIRST)]
    shown = names | {"methods": with_names, "criteria": [*names["criteria"][:-1], names["criteria"][-1] + PAIRED]}
    rows = [{"kind": kind, "names": ", ".join(members)} for kind, members in shown.items()]
    return Report(names, table("What ssmprune knows", rows))


def import_model(tree: dict[str, Any], family: str, answers: dict[str, Any]) -> Classifier:
    """Return our classifier; an answer is an option of the adapter or a keyword argument of its importer."""
    families = adapters.found()
    importer = families[family].classifier if family in families else None
    if importer is None:
        names = ", ".join(sorted(name for name, adapter in families.items() if adapter.classifier))
        raise InputError(f"Whole models can be imported from the families {names}; got {family!r}.")
    adapter = type(families[family])
    options, parameters = (signature(function, eval_str=True).parameters for function in (adapter, importer))
    arguments = {name: it for name, it in parameters.items() if it.kind is it.KEYWORD_ONLY}
    needed = {*adapter.asked, *(name for name, it in arguments.items() if it.default is it.empty)}
    _check(answers, {name: _choices(it.annotation) for name, it in {**options, **arguments}.items()}, needed)
    given, others = ({name: answers[name] for name in names if name in answers} for names in (options, arguments))
    if given:
        importer = adapter(**given).classifier or importer
    model: Classifier = importer(tree, **others)
    return model


def _choices(kind: Any) -> list[Any]:
    """Return the words and the types that an answer may be.

    >>> from typing import Literal
    >>> _choices(Literal["zoh", "bilinear"] | None), _choices(bool)
    (['zoh', 'bilinear'], [<class 'bool'>])
    """
    parts = get_args(kind) or [kind]
    return [choice for part in parts for choice in get_args(part) or [part] if choice is not NoneType]


def _check(answers: dict[str, Any], choices: dict[str, list[Any]], needed: set[str]) -> None:
    """Refuse answers that an importer does not know, and say which are missing."""
    expected = {}
    for name, allowed in choices.items():
        *words, last = (NAMES.get(choice, str(choice)) for choice in allowed)
        expected[name] = f"{', '.join(words)} or {last}" if words else last
    if unknown := sorted(answers.keys() - choices.keys()):
        raise InputError(f"This family has no {unknown[0]}; it knows {', '.join(choices)}.")
    if missing := [f"{name} ({text})" for name, text in expected.items() if name in needed - answers.keys()]:
        raise InputError(f"The file does not record {', '.join(missing)}; add NAME=VALUE for each.")
    for name, value in answers.items():
        kinds = {int, float} if type(value) is int else {type(value)}
        if value not in choices[name] and not kinds.intersection(choices[name]):
            raise InputError(f"{name} must be {expected[name]}; got {value!r}.")


def _split(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; true, false and numbers are taken as such."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"Expected NAME=VALUE, for example prenorm=true; got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
