"""The C file and the header of a model."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import InputError
from ...files import write_atomically
from . import packing
from .packing import padded, padded_row
from .reading import Array, Dense, LayerNumbers, Numbers, S4DSystem, S5System, numbers_of
from .text import defines, fill, floats, identifier, integers, live_branches, rename, words

if TYPE_CHECKING:
    from ...models.classifier import Classifier

FLOAT = 4  # bytes
STANDARD_HEADERS = (
    "assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic|"
    "stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|uchar|wchar|wctype"
)


class Sources(NamedTuple):
    """A model as C."""

    c: str
    header: str
    prefix: str  # of every public name


def export_c(model: Classifier, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a model as one C99 file and, beside it, its header.

    Functions are called after `name`, or after the file: `NAME_init`, `NAME_step`, `NAME_run` (see the header).
    Nothing but libm is needed. `cc -O3 -DSSMPRUNE_MAIN model.c -lm` makes a program that reads numbers from stdin.

    >>> import tempfile
    >>> from ssmprune.models import Classifier
    >>> from ssmprune.models.config import Config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_c(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), f"{folder}/digits.c")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['digits.c', 'digits.h']
    """
    path = Path(path)
    header = path.with_suffix(".h")
    if path.suffix != ".c" or not re.fullmatch(r"[A-Za-z0-9_.-]+", path.name, re.ASCII):
        raise InputError(f"Give the C file a plain name that ends in .c, not {path.name!r}.")
    if takes_standard_header(path.stem):
        raise InputError(f"{path.name} would get a header {header.name}, which C has already; give it another name.")
    written = sources(model, name or path.stem, header.name)
    write_atomically(header, written.header.encode("ascii"))
    write_atomically(path, written.c.encode("ascii"))


def takes_standard_header(stem: str) -> bool:
    """Tell whether the header of a C file of this name would have the name of one of C's own."""
    return re.fullmatch(STANDARD_HEADERS, stem.lower()) is not None


def sources(model: Classifier, name: str = "model", header: str = "model.h") -> Sources:
    """Return a model's C file, which includes `header`, and that header; at its end, a program to try it with."""
    prefix = identifier(name)
    return Sources(*_Writer(numbers_of(model)).write(prefix, header), prefix)


def engine_files(model: Classifier) -> dict[str, str]:
    """Return the engine as it stands in `engine/`, all branches in it, with the files that it includes, by name.

    The compiler takes them as they are: what `sources` writes is the same, with the live branches alone and without
    the functions for many sequences at once, which Python calls.
    """
    writer = _Writer(numbers_of(model))
    return {name: _read(name) for name in ("engine.c", "model.h")} | {
        "public_sizes.h": defines(writer.features | {"CALLS": True} | writer.public_sizes()) + "\n",
        "sizes.h": defines(writer.sizes()) + "\n",
        "weights.h": writer.tables(),
    }


def _read(name: str) -> str:
    return (files(__package__) / "engine" / name).read_text("ascii")


class _Writer:
    """Puts the file of one model together."""

    def __init__(self, numbers: Numbers) -> None:
        config = self.config = numbers.config
        self.s5 = config.family == "s5"
        self.numbers = numbers if self.s5 else packing.order_channels_by_states(numbers)
        self.row = padded(config.width)
        self.features = self._features()
        systems = [layer.system for layer in self.numbers.layers]
        self.groups = [packing.groups(system, config.width) for system in systems if isinstance(system, S4DSystem)]
        self.drives = [padded(2 * len(system.poles)) for system in systems if isinstance(system, S5System)]
        self.arrays: list[str] = []
        self.bias = 0  # zeros that stand for biases that are not there

    def write(self, prefix: str, header: str) -> tuple[str, str]:
        """Return the C file and the header."""
        includes = {
            "model.h": f'#include "{header}"',
            "public_sizes.h": rename(defines(self.public_sizes()), prefix),
            "sizes.h": defines(self.sizes()),
            "weights.h": self.tables(),
        }
        words = self._comments(prefix.upper()) | {"HEADER": header}
        live = (rename(live_branches(_read(name), self.features), prefix) for name in ("engine.c", "model.h"))
        c, h = (re.sub("\n{3,}", "\n\n", fill(text, words, includes)).rstrip() + "\n" for text in live)
        return c, h

    def _features(self) -> dict[str, bool]:
        """Return the answers to the conditions in the engine."""
        config = self.config
        gates = {"GELU_ONLY": "gelu", "HALF_GLU1": "half_glu1", "HALF_GLU2": "half_glu2", "FULL_GLU": "full_glu"}
        pooling = {"MEAN": "mean", "LAST": "last", "EVERY_STEP": "none"}
        return {
            "S5": self.s5,
            "S4D": not self.s5,
            "INTEGERS": self.numbers.bits is not None,
            "FOUR_BITS": self.numbers.bits == 4,
            "BIDIRECTIONAL": config.bidirectional,
            "CUTS_PADDING": config.bidirectional and config.padding == "cut",
            "BACKWARD_DELAY": bool(config.backward_delay),
            "PRENORM": config.prenorm,
            "LAYER_NORM": config.norm == "layer",
            "EXACT_GELU": config.exact_gelu,
            "GATED": config.activation != "gelu",
            "NEEDS_G": config.activation in ("half_glu2", "full_glu"),
            "TOKENS": config.tokens,
            "RETRIEVAL": config.retrieval,
            "CALLS": False,
            **{name: config.activation == value for name, value in gates.items()},
            **{name: config.pooling == value for name, value in pooling.items()},
        }

    def public_sizes(self) -> dict[str, object]:
        """Return the macros of the header."""
        config = self.config
        sizes: dict[str, object] = {
            "MODEL_INPUTS": f"{config.inputs} /* {'different tokens' if config.tokens else 'numbers per step'} */",
            "MODEL_OUTPUTS": f"{config.outputs} /* logits */",
        }
        if config.retrieval:
            sizes["MODEL_FEATURES"] = f"{config.width} /* numbers that represent a document */"
        if config.bidirectional:
            return sizes | {"MODEL_FLOATS_PER_STEP": 2 * self.row + max([0, *self.drives])}
        if config.pooling == "mean":
            sizes["MODEL_ROW"] = self.row
        return sizes | {"MODEL_STATES": f"{max(1, sum(self._states()))} /* floats */"}

    def sizes(self) -> dict[str, object]:
        """Return the macros of the engine."""
        config, row = self.config, self.row
        sizes: dict[str, object] = {
            "WIDTH": f"{config.width} /* features of a step */",
            "ROW": f"{row} /* the same, filled up to whole panels */",
            "DEPTH": config.depth,
            "STRIDE": f"{1 if config.tokens else config.inputs} /* from one step's input to the next */",
            "WIDEST": max([row, *self.drives]),
            "DECODER_ROW": padded(config.outputs),
        }
        if self.features["INTEGERS"]:
            sizes["LONGEST"] = f"{self._longest()[0]} /* inputs of a matrix that blocks of steps go through */"
            sizes["LONGEST_OF_ALL"] = (
                f"{self._longest()[1]} /* inputs of any matrix, filled up to whole words as well */"
            )
        if self.features["LAYER_NORM"]:
            sizes["NORM_EPS"] = f"{config.norm_eps:.9g}f"
        if self.features["S4D"]:
            sizes["MODE_PARTS"] = 4 + 2 * config.bidirectional
        if self.features["BIDIRECTIONAL"]:
            sizes["STATES_ROOM"] = f"{max(1, *self._states())} /* floats of the largest layer's state */"
        return sizes

    def _longest(self) -> tuple[int, int]:
        """Return the inputs of the longest matrix that blocks of steps go through, and of the longest of all."""
        config = self.config
        longest = max([self.row, *self.drives, 0 if config.tokens else padded(config.inputs)])
        return longest, max(longest, padded(4 * config.width) if config.retrieval else 0)

    def _comments(self, prefix: str) -> dict[str, object]:
        """Return what comments say of this model."""
        config = self.config
        answer = (
            f"{prefix}_FEATURES numbers that stand for the document" if config.retrieval else f"{prefix}_OUTPUTS logits"
        )
        each_step = config.pooling == "none"
        rows = 2 + sum(self.features[name] for name in ("PRENORM", "NEEDS_G"))
        return {
            "FAMILY": config.family.upper(),
            "DEPTH": config.depth,
            "WIDTH": config.width,
            "PAIRS": " ".join(map(str, config.states)),
            "ABOUT_WEIGHTS": self._about_weights(),
            "STACK": FLOAT * (max([self.row, *self.drives]) + rows * self.row),
            "TAKEN_OUT": FLOAT * self._longest()[1],
            "UNPACKED": 2 * FLOAT * self._longest()[0] * packing.PANEL,
            "A_STEP": "one token" if config.tokens else f"{prefix}_INPUTS numbers",
            "OUT_WHOLE": f"{answer} for each valid step" if each_step else answer,
            "OUT_STEP": answer if each_step else f"{answer}, of the sequence so far",
            "OUT_RUN": f"{answer} for each of them" if each_step else f"{answer}, of the sequence so far",
        }

    def _about_weights(self) -> str:
        """Return lines of a comment on weights that are whole numbers."""
        if self.numbers.bits is None:
            return ""
        bits = "8 bits" if self.numbers.bits == 8 else "4 bits (first and last layers and rows of up to 8 weights: 8)"
        text = f"   Weights are whole numbers of {bits}, each row with a scale; poles, norms and biases are floats.\n"
        if self.s5:
            return text
        reason = "times B, as loops need it, it takes less room than whole numbers with a complex B beside them"
        return f"{text}   So is C: {reason}.\n"

    def _states(self) -> list[int]:
        """Return how many floats the state of each layer takes."""
        if self.s5:
            return [2 * len(layer.system.poles) for layer in self.numbers.layers]
        return [2 * packing.PANEL * int(group.slots.sum()) for group in self.groups]

    def tables(self) -> str:
        """Return all weights, and the structs that point to them."""
        rows = [self._layer(i, layer) for i, layer in enumerate(self.numbers.layers)]
        ends = ["static const layer LAYERS[DEPTH] = {\n" + ",\n".join(rows) + "};\n"]
        if not self.config.bidirectional:
            states = ", ".join(map(str, self._states()))
            ends.append(f"static const int STATES[DEPTH] = {{{states}}}; /* floats of each layer's state */\n")
        numbers, row = self.numbers, self.row
        if self.config.tokens:
            self._embedding(numbers.encoder)
        else:
            ends.append(self._single("ENCODER", numbers.encoder, self.config.inputs))
        if numbers.hidden is not None:
            ends.append(self._single("HIDDEN", numbers.hidden, 4 * self.config.width))
        ends.append(self._single("DECODER", numbers.decoder, row))
        zeros = [floats("NO_BIAS", np.zeros(self.bias))] if self.bias else []
        return "/* ---- Weights ---- */\n\n" + "\n".join([*zeros, *self.arrays, *ends]) + "\n"

    def _embedding(self, embedding: Dense) -> None:
        vectors = np.stack([padded_row(vector, self.row) for vector in embedding.weight])
        if embedding.scale is None:
            self.arrays.append(floats("EMBEDDING", vectors))
        else:
            self.arrays.append(integers("EMBEDDING", vectors.astype(int), "int8_t"))
            self.arrays.append(floats("EMBEDDING_SCALE", embedding.scale))

    def _single(self, name: str, dense: Dense, row: int) -> str:
        return f"static const matrix {name} = {self._matrix(name.lower(), dense, row)};\n"

    def _layer(self, index: int, layer: LayerNumbers) -> str:
        """Return the initialiser of a layer's struct, in the order of its members."""
        members = self._s5(index, layer.system) if isinstance(layer.system, S5System) else self._s4d(index)
        for name in ("D", "scale", "shift"):
            members.append(self._vector(f"{name}_{index}", padded_row(getattr(layer, name))))
        for name, dense in (("gate", layer.gate), ("value", layer.value)):
            if dense is not None:
                members.append(self._matrix(f"{name}_{index}", dense, self.row))
        return "    {" + ",\n     ".join(members) + "}"

    def _s5(self, index: int, system: S5System) -> list[str]:
        members = [str(len(system.poles))]
        for name, values in (("pole", system.poles), ("factor", system.factor)):
            if values is not None:
                members.append(self._vector(f"{name}_re_{index}", values.real))
                members.append(self._vector(f"{name}_im_{index}", values.imag))
        members.append(self._matrix(f"B_{index}", system.drive, self.row))
        for name, readout in zip(("C", "C_back"), system.readouts, strict=False):
            members.append(self._matrix(f"{name}_{index}", readout, self.drives[index]))
        return members

    def _s4d(self, index: int) -> list[str]:
        group = self.groups[index]
        self.arrays.append(integers(f"slots_{index}", group.slots))
        return [f"slots_{index}", self._vector(f"modes_{index}", group.modes)]

    def _vector(self, name: str, values: Array) -> str:
        self.arrays.append(floats(name, values))
        return name

    def _matrix(self, name: str, dense: Dense, row: int) -> str:
        """Return the initialiser of a matrix; `row` is from one step's input to the next."""
        weights = packing.panels(dense.weight)
        members = [str(weights.shape[1]), str(row), str(len(weights))]
        if dense.scale is None:
            members.append(self._vector(name, weights))
        else:
            self.arrays.append(words(name, packing.words(weights, dense.bits)))
            members += [str(dense.bits)] if self.features["FOUR_BITS"] else []
            members += [name, self._vector(f"{name}_scale", padded_row(dense.scale))]
        if dense.bias is None:
            members.append("NO_BIAS")
            self.bias = max(self.bias, len(weights) * packing.PANEL)
        else:
            members.append(self._vector(f"{name}_bias", padded_row(dense.bias)))
        return f"{{{', '.join(members)}}}"
