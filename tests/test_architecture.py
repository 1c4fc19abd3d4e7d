"""The rules of the house: how large it is, who may import whom, what a module may hold, what works without torch.

Numbers are raised only in a commit that says why. The aim is 14,500 lines in all; until it is reached, what the rooms
hold today is the limit.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ssmprune"
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
PICTURE = PAGE.with_name("rooms.svg")

LINES, LINES_OF_A_ROOM, FILES_AT_MOST = 18_390, 1_600, 130
LARGER_ROOMS = {
    "cli": 1_660,  # with `verify`, and `deploy` in floats and in whole numbers
    "deploy": 1_670,  # with `verify`, and with pages for browsers
    "adapters": 1_625,  # with the families that take new states
}
LINES_OF_A_FUNCTION, ARGUMENTS = 60, 7
OF_THE_ENTRANCE = {"pruning.py:prune": 9}  # the one call of most users; each argument is a decision of theirs

# The rooms in the order in which they may import: each only what stands above it. Lazy imports count as well.
ROOMS = (
    *("errors", "arrays", "files", "trees", "registry", "progress"),
    *("core", "methods", "planning"),
    "quantisation.grid",  # which checkpoints are read with; the room's other half works on models
    *("models", "adapters", "pruned_modules", "calibration", "narrowing", "pruning", "budgets"),
    *("recovery", "integers", "quantisation", "deploy", "tasks", "training", "sweeps", "report", "testing", "cli"),
)
NEARLY_EVERYWHERE = {"errors", "arrays", "registry", "progress"}  # the picture leaves out what most rooms import
# Rooms and files that import torch at their top; the others import it when a model arrives.
TORCH = (
    "models/",
    "integers/",
    "quantisation/",
    "deploy/",
    "training/",
    "sweeps/",
    "report/",
    "calibration/",
    "recovery/",
)
TORCH += ("narrowing.py",)
HEAVY = {"torch", "scipy", "matplotlib", "PIL", "pooch", "msgpack", "pytest"}
FILES = sorted(SOURCE.rglob("*.py"))
by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


@cache
def tree(path):
    return ast.parse(path.read_text())


def lines(paths):
    return sum(len(path.read_text().splitlines()) for path in paths)


def imports(path, top_level_only=False):
    """Yield the modules that a file imports, as absolute names; of `from . import name` the name as well."""
    package = ("ssmprune", *path.relative_to(SOURCE).parent.parts)
    for node in tree(path).body if top_level_only else ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (base + name for name in names)


def room(path):
    return room_of(".".join(path.relative_to(SOURCE).with_suffix("").parts))


def room_of(module):
    """Return the entry of ROOMS that a module belongs to, given its name below ssmprune."""
    return module if module in ROOMS else module.split(".")[0]


def test_the_library_can_be_held_in_the_head():
    """Lines and files of the package, lines of its rooms."""
    folders = [path.relative_to(SOURCE).parts[0] for path in FILES]
    rooms = {
        name: lines(path for path, folder in zip(FILES, folders, strict=True) if folder == name) for name in folders
    }
    print(f"{lines(FILES)} lines in {len(FILES)} files:", rooms)
    assert lines(FILES) <= LINES
    assert len(FILES) <= FILES_AT_MOST
    assert {name: count for name, count in rooms.items() if count > LARGER_ROOMS.get(name, LINES_OF_A_ROOM)} == {}


def test_the_list_of_rooms_is_complete():
    assert {room(path) for path in FILES} - {"__init__", "__main__"} == set(ROOMS)


def test_the_picture_shows_the_rooms():
    """`python scripts/draw_rooms.py` draws it anew."""
    drawn = set(re.findall(r"<!-- (\w+)/? -->", PICTURE.read_text()))
    assert drawn == {room for room in ROOMS if "." not in room} - NEARLY_EVERYWHERE


@by_file
def test_imports_point_up(path):
    if room(path) in ("__init__", "__main__"):
        return
    allowed = {*ROOMS[: ROOMS.index(room(path))], room(path), "__version__"}
    names = {name.removeprefix("ssmprune.") for name in imports(path) if name.startswith("ssmprune.")}
    assert {room_of(name) for name in names} <= allowed


@by_file
def test_private_modules_are_imported_by_their_room_alone(path):
    foreign = [
        name
        for name in imports(path)
        if name.startswith("ssmprune.")
        and any(part.startswith("_") and part != "__version__" for part in name.split("."))
        and name.split(".")[1] != room(path)
    ]
    assert foreign == []


@by_file
def test_an_init_only_exports(path):
    """A docstring, imports, `__all__`; `__getattr__` for names that need torch; no class and no other function."""
    if path.name != "__init__.py":
        return
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert {node.name for node in tree(path).body if isinstance(node, kinds)} <= {"__getattr__"}


@by_file
def test_heavy_packages_are_imported_when_they_are_needed(path):
    if not path.relative_to(SOURCE).as_posix().startswith(TORCH) or path.name == "__init__.py":
        assert not {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY


@cache
def functions():
    nodes = ((path, node) for path in FILES for node in ast.walk(tree(path)))
    return [(path, node) for path, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def arguments(node):
    """How many arguments a function has, `self` and `cls` apart."""
    named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def test_functions_are_short_and_take_few_arguments():
    """Commands of the command line too: these take a dataclass of options."""
    names = {f"{path.relative_to(SOURCE)}:{node.name}": node for path, node in functions()}
    assert [name for name, node in names.items() if node.end_lineno - node.lineno >= LINES_OF_A_FUNCTION] == []
    assert [name for name, node in names.items() if arguments(node) > OF_THE_ENTRANCE.get(name, ARGUMENTS)] == []


@by_file
def test_modules_are_described(path):
    """In docs/architecture.md, or in the docstring of their folder."""
    name = path.parent.name if path.name == "__init__.py" else path.stem
    folder = (path.parents[1] if path.name == "__init__.py" else path.parent) / "__init__.py"
    described = PAGE.read_text() + (ast.get_docstring(tree(folder)) or "" if folder.exists() else "")
    assert re.search(rf"\b{name}\b", described), f"{name} occurs neither in {PAGE.name} nor in its folder's __init__"


@pytest.mark.slow
def test_the_core_works_with_torch_absent():
    code = """
import sys
sys.modules["torch"] = None  # importing it raises ImportError
import numpy as np
import ssmprune as sp
system = sp.DiagonalSystem.from_discrete([0.5, 0.9], [[1], [1]], [[1, 1]], gain=2)
print(sp.make_plan({"ssm": system}, ratio=0.5).kept)
assert not any(name.split(".")[0] in ("scipy", "pandas", "safetensors", "cyclopts") for name in sys.modules)
try:
    sp.load("model.safetensors")
except sp.InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "2\nModels need PyTorch; run `pip install '.[torch]'` in a clone of ssmprune.\n"


@pytest.mark.slow
def test_importing_ssmprune_does_not_import_torch():
    code = "import sys, ssmprune, ssmprune.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
