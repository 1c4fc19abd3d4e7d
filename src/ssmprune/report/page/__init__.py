"""The report: one page with everything a sweep has found, to explore offline.

`data` collects what the page knows, `charts` describes its three charts; page.html, page.css and page.js are the page
itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ...files import write_atomically
from ...sweeps.store import Results
from ..style import styles
from .charts import charts, library
from .data import collect_data

HERE = Path(__file__).parent


def write(results: Results, path: Path) -> dict[str, int]:
    """Write the page, which links to the plans where they lie; return its bytes and the number of plans."""
    code, data = library(), collect_data(results, path.parent)
    inserted = {
        "/*STYLE*/": (HERE / "page.css").read_text(),
        "/*DATA*/": embed(data),
        "/*CHARTS*/": embed(charts(styles(results.about["methods"]))),
        "/*LIBRARY*/": code,
        "/*SCRIPT*/": (HERE / "page.js").read_text(),
    }
    places = "|".join(map(re.escape, inserted))  # all at once, because what is inserted may name another place
    page = re.sub(places, lambda place: inserted[place[0]], (HERE / "page.html").read_text())
    write_atomically(path, page.encode())
    points = [point for model in data["models"] for curve in model["curves"].values() for point in curve]
    return {"bytes": path.stat().st_size, "plans": sum("plan" in point for point in points)}


def embed(data: Any) -> str:
    r"""Return JSON that can stand inside a script element, which neither `</script` in it ends nor `<!--` prolongs.

    >>> print(embed("<!--<script>"))
    "\u003c!--\u003cscript>"
    """
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
