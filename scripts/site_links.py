"""A hook of mkdocs: links from docs/ to the rest of the repository lead to its page on GitHub.

In the pages they stay relative, so that they work on GitHub and in a clone; a link to a file that is not there is a
warning, which `make docs` takes for an error.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
LOG = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace the links of one page; mkdocs calls it by this name and with these arguments."""
    here = Path(page.file.abs_src_path).resolve().parent
    docs = Path(config.docs_dir).resolve()

    def outside(found: re.Match[str]) -> str:
        target = (here / found[1]).resolve()
        if target.is_relative_to(docs):
            return found[1]
        if not target.exists():
            LOG.warning("%s links to %s, which is not there", page.file.src_path, found[1])
        kind = "tree" if target.is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/main/{target.relative_to(ROOT).as_posix()}"

    return LINK.sub(outside, markdown)
