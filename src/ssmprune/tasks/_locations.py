"""Where data lies: the folder, what is in it, and the message when something is not."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import InputError

VARIABLE = "SSMPRUNE_DATA"


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """`root`, else $SSMPRUNE_DATA, else the user's cache folder (which need not exist yet)."""
    named = root or os.environ.get(VARIABLE)
    if not named:
        return _user_cache()
    folder = Path(named).expanduser()
    if not folder.is_dir():
        origin = "the data folder" if root else f"${VARIABLE}"
        raise InputError(f"{origin} is {folder}, which is not a folder. Make it, or name another.")
    return folder


def cache_folder(root: Path) -> Path:
    """Where generated and unpacked data is kept."""
    return root / "cache"


def find(root: Path, folders: Iterable[str], marker: str) -> Path | None:
    """The first of `folders` below `root` (or below an unpacked LRA release) that holds `marker`."""
    for folder in folders:
        for above in (root, root / "lra_release", root / "lra_release" / "lra_release", cache_folder(root)):
            if (above / folder / marker).exists():
                return above / folder
    return None


def _user_cache() -> Path:
    pooch = optional("pooch", f"No data folder was named: give one or set ${VARIABLE}.")
    return Path(pooch.os_cache("ssmprune"))


def optional(module: str, without: str) -> Any:
    """A module of the extra `ssmprune[data]`; where it is missing, the message says what that prevents."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{without} Or install it: pip install 'ssmprune[data]' brings {module}.") from None
