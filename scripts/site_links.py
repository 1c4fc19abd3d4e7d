"""A hook of mkdocs: paper/results is part of the site, other links out of docs/ lead to the repository on GitHub.

In the pages they stay relative, so that they work on GitHub and in a clone; a link to a file that is not there is a
warning, which `make docs` takes for an error.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "paper" / "results"  # on the site: results/
LEFT_OUT = (RESULTS / "notes.md",)
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
LOG = logging.getLogger("mkdocs.hooks.site_links")


def on_files(files: Any, config: Any) -> Any:
    """Add the results to the files of the site."""
    for path in sorted(RESULTS.rglob("*")):
        if path.is_file() and not any(path.is_relative_to(other) for other in LEFT_OUT):
            name = f"results/{path.relative_to(RESULTS).as_posix()}"
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace the links of one page; mkdocs calls it by this name and with these arguments."""
    here = Path(page.file.abs_src_path).resolve().parent
    docs = Path(config.docs_dir).resolve()

    def outside(found: re.Match[str]) -> str:
        target = (here / found[1]).resolve()
        if target.is_relative_to(RESULTS):
            return f"results/{target.relative_to(RESULTS).as_posix()}"
        if target.is_relative_to(docs):
            return os.path.relpath(target, docs / page.file.src_uri).removeprefix("../")
        if not target.exists():
            LOG.warning("%s links to %s, which is not there", page.file.src_path, found[1])
        kind = "tree" if target.is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/main/{target.relative_to(ROOT).as_posix()}"

    return LINK.sub(outside, markdown)
