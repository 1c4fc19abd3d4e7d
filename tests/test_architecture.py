"""Who may import whom, and what must work without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ssmprune"
FLOOR = {"errors", "files", "arrays"}
CORE = FLOOR | {"discretization", "system", "norms", "criteria", "allocation", "methods", "limits", "plan"}
SURGEON = {"features", "elimination", "calibration", "surgeon", "sequence", "certificates", "balanced"}
PRUNING = CORE | SURGEON | {"adapters", "surgery", "checkpoint", "budget", "pruning", "targets"}
MAY_IMPORT = {
    "arrays": set(),
    "errors": set(),
    "files": {"errors"},
    "discretization": {"arrays"},
    "system": FLOOR | {"discretization"},
    "norms": FLOOR | {"system"},
    "criteria": FLOOR | {"system", "norms", "criteria"},
    "allocation": FLOOR,
    "methods": FLOOR | {"criteria", "allocation"},
    "budget": FLOOR | {"allocation"},
    "limits": FLOOR | {"system", "allocation"},
    "plan": CORE,
    "features": FLOOR | {"system"},
    "elimination": FLOOR,
    "calibration": FLOOR | {"system", "features", "adapters", "checkpoint", "sampling"},
    "leaps": FLOOR | {"system", "features"},
    "sampling": FLOOR | {"system", "features", "calibration", "leaps"},
    "surgeon": CORE | {"features", "elimination", "calibration"},
    "sequence": CORE | {"features", "adapters", "checkpoint", "sampling", "surgeon"},
    "certificates": CORE | {"features", "calibration"},
    "balanced": CORE | {"features", "calibration", "adapters"},
    "adapters": CORE | {"adapters", "models", "checkpoint"},
    "surgery": CORE | {"adapters", "checkpoint"},
    "pruning": CORE | SURGEON | {"adapters", "surgery"},
    "targets": CORE | SURGEON | {"pruning", "budget", "checkpoint"},
    "testing": PRUNING,
    "checkpoint": FLOOR | {"models"},
    "tree_files": FLOOR | {"checkpoint"},
    "models": FLOOR | {"models"},
    "export": FLOOR | {"models"},
    "tasks": FLOOR | {"tasks"},
    "experiments": PRUNING | {"models", "tasks", "experiments"},
}
NUMPY_ONLY = (
    CORE
    | SURGEON
    | {"adapters", "surgery", "pruning", "targets", "testing", "checkpoint", "tree_files", "cli", "__init__", "tasks"}
)


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
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("ssmprune.")}
    if room(path) not in ("cli", "__init__", "__main__"):
        assert ours - {room(path)} <= MAY_IMPORT[room(path)]
    if room(path) in NUMPY_ONLY:
        heavy = {"torch", "scipy", "matplotlib", "PIL", "pooch", "msgpack", "pytest"}
        assert not {name.split(".")[0] for name in imports(path, top_level_only=True)} & heavy


def test_the_core_works_with_torch_absent():
    code = """
import sys
sys.modules["torch"] = None  # importing it raises ImportError
import numpy as np
import ssmprune as sp
system = sp.DiagonalSystem.from_discrete([0.5, 0.9], [[1], [1]], [[1, 1]], gain=2)
print(sp.make_plan({"ssm": system}, ratio=0.5).kept)
assert not any(name.split(".")[0] in ("scipy", "pandas", "safetensors", "typer") for name in sys.modules)
try:
    sp.load("model.safetensors")
except sp.InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "2\nModels need PyTorch; install it with `pip install 'ssmprune[torch]'`.\n"


def test_importing_ssmprune_does_not_import_torch():
    code = "import sys, ssmprune, ssmprune.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
