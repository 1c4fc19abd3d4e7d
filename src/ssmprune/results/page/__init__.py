"""The report: one page with everything a sweep found, to explore offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...files import write_atomically
from ...sweeps.store import Results
from .charts import charts, embedded, library
from .data import gathered

HERE = Path(__file__).parent
PAGE = 7_500_000  # bytes it should not exceed: small enough to mail and to keep in a repository


def write(results: Results, path: Path) -> dict[str, int]:
    """Write the page; return its bytes, the plans in it and the plans that were too large for it."""
    code = library()
    data = gathered(results, PAGE - len(code))
    write_atomically(path, page(data, code).encode())
    planned = [
        point for model in data["models"] for curve in model["curves"].values() for point in curve if "file" in point
    ]
    inside = sum("plan" in point for point in planned)
    return {"bytes": path.stat().st_size, "plans": inside, "left out": len(planned) - inside}


def page(data: dict[str, Any], code: str) -> str:
    """The page with its data, its charts and all code it needs inside."""
    names = [method["name"] for method in data["methods"]]
    parts = {
        "/*STYLE*/": (HERE / "page.css").read_text(),
        "/*DATA*/": embedded(data),
        "/*CHARTS*/": embedded(charts(names)),
        "/*LIBRARY*/": code,
        "/*SCRIPT*/": (HERE / "page.js").read_text(),
    }
    whole = (HERE / "page.html").read_text()
    for place, text in parts.items():
        before, after = whole.split(place)
        whole = before + text + after
    return whole
