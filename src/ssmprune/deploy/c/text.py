"""Names, numbers and conditions as C text."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ...errors import InputError
from .reading import Array

LONGEST_NAME = 40
PER_LINE = 8


def identifier(name: str) -> str:
    """Return a C prefix for a model's name: lower-case letters, digits and single underscores, a letter first.

    >>> identifier("sMNIST-S5 80%"), identifier('x"; system("rm");//'), identifier("2nd")
    ('smnist_s5_80', 'x_system_rm', 'model_2nd')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower(), flags=re.ASCII)[:LONGEST_NAME].strip("_")
    if not plain:
        return "model"
    return plain if plain[0].isalpha() else f"model_{plain}"


def floats(name: str, values: Array) -> str:
    """Return a constant array; nine significant digits round-trip a float32."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32).ravel()
    if not np.isfinite(single).all():
        raise InputError(f"{name} has numbers too large for single precision; the model cannot be written as C.")
    return _array("float", name, [_float(value) for value in single.tolist()])


def integers(name: str, values: Array, kind: str = "int") -> str:
    """Return a constant array of ints, or of another whole type."""
    return _array(kind, name, [str(value) for value in values.ravel().tolist()])


def words(name: str, values: Array) -> str:
    """Return a constant array of words of 32 bits."""
    return _array("uint32_t", name, [f"0x{value:08x}" for value in values.ravel().tolist()])


def _float(value: float) -> str:
    digits = f"{value:.9g}"
    return f"{digits}f" if "." in digits or "e" in digits else f"{digits}.0f"


def _array(kind: str, name: str, items: list[str]) -> str:
    items = items or [_float(0) if kind == "float" else "0"]  # C has no empty arrays
    lines = [", ".join(items[at : at + PER_LINE]) for at in range(0, len(items), PER_LINE)]
    body = ",\n    ".join(lines)
    return f"static const {kind} {name}[{len(items)}] = {{\n    {body}}};\n"


def defines(values: Mapping[str, object]) -> str:
    """Return a line for each macro.

    >>> defines({"WIDTH": "96 /* features of a step */", "S5": True})
    '#define WIDTH 96 /* features of a step */\\n#define S5 1'
    """
    return "\n".join(f"#define {name} {int(v) if isinstance(v, bool) else v}" for name, v in values.items())


def rename(text: str, prefix: str) -> str:
    """Return text whose names begin with a model's prefix instead of `model`."""
    return re.sub(r"\bMODEL_", f"{prefix.upper()}_", re.sub(r"\bmodel_", f"{prefix}_", text))


def fill(text: str, words: Mapping[str, object], includes: Mapping[str, str]) -> str:
    """Return text with @NAME@ replaced by its words, and each `#include "NAME"` line by the text of that name."""
    text = re.sub(r"@(\w+)@", lambda match: str(words[match[1]]), text)
    return re.sub(r'^#include "(.*)"$', lambda match: includes[match[1]], text, flags=re.MULTILINE)


def live_branches(text: str, features: Mapping[str, bool]) -> str:
    """Return what the preprocessor leaves of text under `#if` lines about features; it decides other conditions later.

    >>> print(live_branches("#if A && !B\\n1\\n#else\\n2\\n#endif\\n#ifdef C\\n3\\n#endif", {"A": True, "B": False}))
    1
    #ifdef C
    3
    #endif
    """
    lines: list[str] = []
    conditions: list[bool | None] = []  # of the branches around a line; None: the compiler decides
    for line in text.splitlines():
        word = line.split(maxsplit=1)[0] if line.startswith("#") else ""
        ours = word in ("#else", "#endif") and conditions[-1] is not None
        if word in ("#if", "#ifdef", "#ifndef"):
            conditions.append(_holds(line[3:], features) if word == "#if" else None)
            ours = conditions[-1] is not None
        elif word == "#else" and ours:
            conditions[-1] = not conditions[-1]
        elif word == "#endif":
            conditions.pop()
        if not ours and False not in conditions:
            lines.append(line)
    return "\n".join(lines)


def _holds(condition: str, features: Mapping[str, bool]) -> bool | None:
    """Tell whether alternatives (||) of conjunctions (&&) of features hold; None if the condition has anything else."""
    alternatives = [[word.strip() for word in part.split("&&")] for part in condition.split("||")]
    if not all(word.removeprefix("!") in features for part in alternatives for word in part):
        return None
    return any(all(features[word.removeprefix("!")] != word.startswith("!") for word in part) for part in alternatives)
