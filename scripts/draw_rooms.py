"""Draw docs/rooms.svg: the rooms of the package in import order, from the imports in the code.

    python scripts/draw_rooms.py

A line runs from a room to each room it imports that no other of its imports leads to already (the transitive
reduction), so the picture stays readable; tests/test_architecture.py checks all imports.
"""

from __future__ import annotations

import ast
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ssmprune"
PICTURE = ROOT / "docs" / "rooms.svg"
SKIPPED = {"__init__", "__main__", "errors", "arrays", "registry", "progress"}  # imported by nearly all rooms


GRID = "quantisation.grid"  # stands apart from its room: checkpoints are read with it


def room_of(module: tuple[str, ...]) -> str:
    """Return the room that a module, given by its path below ssmprune, belongs to."""
    return GRID if ".".join(module[:2]) == GRID else module[0]


def imports_of(path: Path) -> set[str]:
    """Return the rooms a file imports, lazily or not."""
    package = ("ssmprune", *path.relative_to(SOURCE).parent.parts)
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            rooms |= {room_of((*base, *name.split("."))[1:]) for name in names}
    return rooms


def graph() -> dict[str, set[str]]:
    """Return what each room imports."""
    edges: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        edges.setdefault(room_of(path.relative_to(SOURCE).with_suffix("").parts), set()).update(imports_of(path))
    return {room: (targets - SKIPPED - {room}) & edges.keys() for room, targets in edges.items() if room not in SKIPPED}


def reachable(edges: dict[str, set[str]], room: str) -> set[str]:
    """Return the rooms that a room imports directly or through others."""
    return set().union(*({target} | reachable(edges, target) for target in edges[room]))


def reduce(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that no other import of the same room implies."""
    return {
        room: {target for target in targets if not any(target in reachable(edges, other) for other in targets)}
        for room, targets in edges.items()
    }


def levels(edges: dict[str, set[str]]) -> dict[str, int]:
    """Return how many rooms stand above each one on its longest path."""
    level: dict[str, int] = {}

    def measure(room: str) -> int:
        if room not in level:
            level[room] = 1 + max((measure(target) for target in edges[room]), default=-1)
        return level[room]

    for room in edges:
        measure(room)
    return level


def draw(edges: dict[str, set[str]]) -> None:
    """Draw rooms as boxes, level by level from the top, folders filled."""
    level = levels(edges)
    rows = [sorted(room for room in edges if level[room] == row) for row in range(max(level.values()) + 1)]
    place = {
        room: ((i - (len(row) - 1) / 2) * 2.1 + (0.4 if number % 2 else 0), -number)
        for number, row in enumerate(rows)
        for i, room in enumerate(row)
    }
    figure, axes = plt.subplots(figsize=(10, 0.62 * len(rows) + 0.5))
    for room, targets in reduce(edges).items():
        for target in sorted(targets):
            (x, y), (u, v) = place[room], place[target]
            axes.annotate("", (u, v - 0.24), (x, y + 0.24), arrowprops={"arrowstyle": "->", "color": "0.6", "lw": 0.8})
    for room, (x, y) in place.items():
        fill = "#dbe9f6" if (SOURCE / room).is_dir() else "white"
        box = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": "0.35"}
        name = f"{room}/" if (SOURCE / room).is_dir() else room
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box)
    axes.set_xlim(min(x for x, _ in place.values()) - 1.2, max(x for x, _ in place.values()) + 1.2)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.axis("off")
    plt.rcParams["svg.hashsalt"] = "ssmprune"  # the same rooms, the same file
    figure.savefig(PICTURE, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    draw(graph())
    print(f"{PICTURE.relative_to(ROOT)}")
