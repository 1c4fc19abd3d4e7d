"""Who may import whom, how large the rooms are, and what must work without torch."""

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

# The rooms in the order in which they may import: each only what stands above it. Lazy imports count as well.
ROOMS = (
    *("errors", "arrays", "files", "trees", "registry", "progress"),
    *("core", "methods", "planning"),
    "quantisation.grid",  # which checkpoints are read with; the room's other half works on models
    *("bisection", "models", "adapters", "calibration", "pruning", "budgets", "testing", "recovery"),
    *("quantisation", "deploy"),
    *("tasks", "training", "sweeps", "report", "cli"),
)
TORCH_ROOMS = {
    "models",
    "quantisation",
    "deploy",
    "recovery",
    "training",
    "sweeps",
    "report",
}  # the others import it when a model arrives
TORCH_FILES = {  # when a model arrives
    *(f"calibration/{name}.py" for name in ("answers", "record", "sums")),
}
HEAVY = {"torch", "scipy", "matplotlib", "PIL", "pooch", "msgpack", "pytest"}
FILES = sorted(SOURCE.rglob("*.py"))
by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


def imports(path, top_level_only=False):
    """Yield the modules a file imports, as absolute names."""
    tree = ast.parse(path.read_text())
    package = ("ssmprune", *path.relative_to(SOURCE).parent.parts)
    for node in tree.body if top_level_only else ast.walk(tree):
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


def plain(folder):
    """The names a reader sees in a folder: its modules and the folders in it, without what has an underscore."""
    entries = (entry for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists())
    return sorted(entry.stem for entry in entries if not entry.name.startswith("_"))


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} - {"__init__", "__main__"} == set(ROOMS)


def test_the_picture_has_every_room():
    """But for what nearly all rooms import; `python scripts/draw_rooms.py` draws it anew."""
    drawn = set(re.findall(r"<!-- (\w+)/? -->", PICTURE.read_text()))
    assert drawn == set(ROOMS) - {"errors", "arrays", "trees", "registry", "progress"}


@by_file
def test_imports_point_up(path):
    if room(path) in ("__init__", "__main__"):
        return
    allowed = {*ROOMS[: ROOMS.index(room(path))], room(path), "__version__"}
    names = {name.removeprefix("ssmprune.") for name in imports(path) if name.startswith("ssmprune.")}
    assert {room_of(name) for name in names} <= allowed


@by_file
def test_heavy_packages_are_imported_when_they_are_needed(path):
    if room(path) not in TORCH_ROOMS and path.relative_to(SOURCE).as_posix() not in TORCH_FILES:
        assert not {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY


def test_rooms_are_small():
    """At most 18 modules at the top, at most 12 in a folder; helpers, which have an underscore, do not count."""
    top = [name for name in plain(SOURCE) if (SOURCE / f"{name}.py").exists()]
    folders = sorted({path.parent for path in FILES} - {SOURCE})
    print(f"{len(FILES)} files; {len(top)} modules at the top: {', '.join(top)}")
    for folder in folders:
        print(f"{folder.relative_to(SOURCE)}: {', '.join(plain(folder))}")
    assert len(top) <= 18, "one too many: put it into a room, or give a helper an underscore (as _registry)"
    assert [str(folder) for folder in folders if len(plain(folder)) > 12] == []


@cache
def functions():
    nodes = ((path, node) for path in FILES for node in ast.walk(ast.parse(path.read_text())))
    return [(path, node) for path, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def arguments(node):
    """How many arguments a function has, `self` and `cls` apart."""
    named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def commands():
    """The functions whose arguments are options of the command line: commands, and those that lend them options."""
    for path, node in functions():
        calls = [call for call in node.decorator_list if isinstance(call, ast.Call) and room(path) == "cli"]
        if any(ast.unparse(call.func) == "app.command" for call in calls):
            yield node.name
        for call in calls:
            if ast.unparse(call.func) == "takes_options_of":
                yield from map(ast.unparse, call.args)


def test_functions_are_short_and_take_few_arguments():
    """At most 60 lines, and at most 7 arguments (`self` and `cls` apart), but for the commands of the command line."""
    free = set(commands())
    long = [
        f"{path.relative_to(SOURCE)}:{node.name}" for path, node in functions() if node.end_lineno - node.lineno >= 60
    ]
    wide = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path, node in functions()
        if arguments(node) > 7 and not (room(path) == "cli" and node.name in free)
    ]
    print(f"longest: {max(node.end_lineno - node.lineno + 1 for _, node in functions())} lines")
    print(f"free to take more: {', '.join(sorted(free))}")
    assert (long, wide) == ([], [])


@by_file
def test_every_module_is_described(path):
    """In docs/architecture.md, or in the docstring of its folder."""
    name = path.parent.name if path.name == "__init__.py" else path.stem
    folder = (path.parents[1] if path.name == "__init__.py" else path.parent) / "__init__.py"
    described = PAGE.read_text() + (ast.get_docstring(ast.parse(folder.read_text())) if folder.exists() else "")
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
    assert result.stdout == "2\nModels need PyTorch; run `pip install 'ssmprune[torch]'`.\n"


@pytest.mark.slow
def test_importing_ssmprune_does_not_import_torch():
    code = "import sys, ssmprune, ssmprune.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
