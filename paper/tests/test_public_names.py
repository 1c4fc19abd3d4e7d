"""The package is a client of ssmprune's public names alone: what it can do, others can."""

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ssmprune_paper"
NAMES = ("adapters", "core", "methods", "models", "recovery", "report", "sweeps", "tasks", "training")
ROOMS = {"ssmprune", *(f"ssmprune.{name}" for name in NAMES)}
FLOOR = {f"ssmprune.{module}" for module in ("arrays", "budgets", "errors", "files", "progress")}  # plain modules


def names_of_ssmprune(path: Path) -> list[tuple[str, str]]:
    """Every (module, name) of ssmprune that a file imports; a module that is imported whole has no name."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [(str(node.module), alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "ssmprune"]


def is_public(module: str, name: str) -> bool:
    if module in FLOOR:
        return bool(name) and not name.startswith("_")
    return module in ROOMS and (not name or name in importlib.import_module(module).__all__)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_are_of_public_names(path):
    assert [pair for pair in names_of_ssmprune(path) if not is_public(*pair)] == []


@pytest.mark.parametrize(
    ("line", "public"),
    [
        ("import ssmprune as sp", True),
        ("from ssmprune import prune", True),
        ("from ssmprune.tasks import Task", True),
        ("from ssmprune.errors import InputError", True),
        ("from ssmprune.tasks.task import Task", False),
        ("from ssmprune.tasks import cards", False),
        ("from ssmprune.registry import Registry", False),
        ("from ssmprune.errors import _anything", False),
    ],
)
def test_the_rule_knows_public_names(line, public, tmp_path):
    (tmp_path / "module.py").write_text(line)
    (pair,) = names_of_ssmprune(tmp_path / "module.py")
    assert is_public(*pair) == public
