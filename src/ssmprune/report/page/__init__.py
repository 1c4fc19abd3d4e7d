"""The report: one page with everything a sweep has found, to explore offline.

`data` collects what the page knows, `plan_files` packs plans into it, `charts` describes its three charts; page.html,
page.css and page.js are the page itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ...files import write_atomically
from ...sweeps.store import Results
from .charts import charts, embed, library
from .data import collect_data

HERE = Path(__file__).parent
PAGE = 5_000_000  # bytes beyond which no plan is added: small enough to mail and to keep in a repository


def write(results: Results, path: Path) -> dict[str, int]:
    """Write the page; return its bytes, the plans in it and the plans that were too large for it."""
    code = library()
    data = collect_data(results, PAGE - len(code))
    write_atomically(path, page(data, code).encode())
    points = [point for model in data["models"] for curve in model["curves"].values() for point in curve]
    with_plans = [point for point in points if "file" in point]
    inside = sum("plan" in point for point in with_plans)
    return {"bytes": path.stat().st_size, "plans": inside, "left out": len(with_plans) - inside}


def page(data: dict[str, Any], code: str) -> str:
    """Return the page with its data, its charts and all code it needs inside."""
    names = [method["name"] for method in data["methods"]]
    parts = {
        "/*STYLE*/": (HERE / "page.css").read_text(),
        "/*DATA*/": embed(data),
        "/*CHARTS*/": embed(charts(names)),
        "/*LIBRARY*/": code,
        "/*SCRIPT*/": (HERE / "page.js").read_text(),
    }
    places = "|".join(map(re.escape, parts))  # all at once: what is put in may name another place
    return re.sub(places, lambda place: parts[place[0]], (HERE / "page.html").read_text())
