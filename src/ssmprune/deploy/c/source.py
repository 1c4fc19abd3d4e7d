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
from .numbers import Array, Dense, Embedding, LayerNumbers, Numbers
from .packing import Groups, Matrix, padded, padded_row
from .text import filled, floats, identifier, integers, renamed, resolved, table, words

if TYPE_CHECKING:
    from ...models.classifier import Classifier
    from ...models.config import Config

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
    """Return a model's C file, which includes `header`, and that header."""
    prefix = identifier(name)
    return Sources(*_Writer(_numbers_of(model)).write(prefix, header, last="9_main"), prefix)


def callable_sources(model: Classifier) -> Sources:
    """Return a model's C with functions for many sequences at once, to be called from Python."""
    return Sources(*_Writer(_numbers_of(model)).write("model", "model.h", last="calls"), "model")


def _words(config: Config) -> dict[str, object]:
    """Return what the header says of inputs and outputs."""
    answer = "MODEL_FEATURES numbers that stand for the document" if config.retrieval else "MODEL_OUTPUTS logits"
    every = config.pooling == "none"
    return {
        "A_STEP": "one token" if config.tokens else "MODEL_INPUTS numbers",
        "OUT_WHOLE": f"{answer} for each valid step" if every else answer,
        "OUT_STEP": answer if every else f"{answer}, of the sequence so far",
        "OUT_RUN": f"{answer} for each of them" if every else f"{answer}, of the sequence so far",
    }


def _numbers_of(model: Classifier) -> Numbers:
    from .reading import numbers_of  # needs torch, which is there when a model is

    return numbers_of(model)


class _Writer:
    """Puts the file of one model together."""

    def __init__(self, numbers: Numbers) -> None:
        config = self.config = numbers.config
        self.numbers = numbers if config.family == "s5" else packing.alike(numbers)
        self.row = padded(config.width)
        self.s5 = config.family == "s5"
        self.groups: list[Groups] = [] if self.s5 else [packing.groups(layer) for layer in self.numbers.layers]
        self.features = self._features()
        self.parts: list[str] = []  # the arrays
        self.bias = 0  # zeros that stand for biases that are not there

    def write(self, prefix: str, header: str, last: str) -> tuple[str, str]:
        """Return the C file, with one of the engine's parts at its end, and the header."""
        tables = self._tables()
        values = {"PREFIX": prefix.upper(), "HEADER": header, **self._sizes()}
        product = "2_product" if self.numbers.bits is None else "2_integers"
        before = "".join(self._engine(name) for name in ("0_top", "1_vectors", product, "3_functions", "4_layer"))
        middle = [self._engine("5_s5" if self.s5 else "5_s4d"), self._engine("6_block")]
        after = [self._engine(name) for name in ("7_ends", "8_whole" if self.config.bidirectional else "8_stream")]
        end = self._engine(last)
        input_type = "int32_t" if self.config.tokens else "float"

        def finished(text: str) -> str:
            return renamed(filled(text, values), prefix, input_type)

        engine = finished("".join([*middle, *after, end]))
        return (finished(before) + tables + engine).rstrip() + "\n", finished(
            self._engine("model", "h")
        ).rstrip() + "\n"

    def _engine(self, name: str, ending: str = "c") -> str:
        text = (files(__package__) / "engine" / f"{name}.{ending}").read_text("ascii")
        return resolved(text, self.features) + "\n\n"

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
            **{name: config.activation == value for name, value in gates.items()},
            **{name: config.pooling == value for name, value in pooling.items()},
        }

    def _sizes(self) -> dict[str, object]:
        """Return the numbers that the engine's text leaves open."""
        config, row = self.config, self.row
        states = self._states()
        drives = [padded(2 * len(layer.poles)) for layer in self.numbers.layers] if self.s5 else []
        longest = max([row, *drives, 0 if config.tokens else padded(config.inputs)])
        longest_of_all = max(longest, padded(4 * config.width) if config.retrieval else 0)
        rows = 2 + sum(self.features[name] for name in ("PRENORM", "NEEDS_G"))
        return {
            "INPUTS": config.inputs,
            "ABOUT_INPUTS": "different tokens" if config.tokens else "numbers per step",
            "OUTPUTS": config.outputs,
            "WIDTH": config.width,
            "ROW": row,
            "DEPTH": config.depth,
            "STRIDE": 1 if config.tokens else config.inputs,
            "WIDEST": max([row, *drives]),
            "DECODER_ROW": padded(config.outputs),
            "LONGEST": longest,
            "LONGEST_OF_ALL": longest_of_all,
            "TAKEN_OUT": FLOAT * longest_of_all,
            "BITS": "4 bits (first and last layers and rows of up to 8 weights: 8)"
            if self.numbers.bits == 4
            else "8 bits",
            "NORM_EPS": f"{config.norm_eps:.9g}",
            "MODE_PARTS": 4 + 2 * config.bidirectional,
            "STATES": max(1, sum(states)),
            "STATES_EACH": ", ".join(map(str, states)),
            "STATES_ROOM": max(1, *states),
            "STACK": FLOAT * (max([row, *drives]) + rows * row),
            "UNPACKED": 2 * FLOAT * longest * packing.PANEL,
            "WORKSPACE": 2 * row + max([0, *drives]),
            **_words(config),
            "ANSWER": config.width if config.retrieval else config.outputs,
            "PER_STEP": int(config.pooling == "none"),
            "FAMILY": config.family.upper(),
            "PAIRS": " ".join(map(str, config.states)),
        }

    def _states(self) -> list[int]:
        """Return how many floats the state of each layer takes."""
        if self.s5:
            return [2 * len(layer.poles) for layer in self.numbers.layers]
        return [2 * packing.PANEL * int(group.slots.sum()) for group in self.groups]

    def _tables(self) -> str:
        """Return all weights, and the structs that point to them."""
        rows = [self._layer(i, layer) for i, layer in enumerate(self.numbers.layers)]
        ends = [table("layer", "LAYERS", rows)]
        numbers, row = self.numbers, self.row
        if isinstance(numbers.encoder, Embedding):
            self._embedding(numbers.encoder)
        else:
            ends.append(self._single("ENCODER", numbers.encoder, self.config.inputs))
        if numbers.hidden is not None:
            ends.append(self._single("HIDDEN", numbers.hidden, 4 * self.config.width))
        ends.append(self._single("DECODER", numbers.decoder, row))
        zeros = [floats("NO_BIAS", np.zeros(self.bias))] if self.bias else []
        return "/* ---- Weights ---- */\n\n" + "\n".join([*zeros, *self.parts, *ends]) + "\n"

    def _embedding(self, embedding: Embedding) -> None:
        vectors = np.stack([padded_row(vector, self.row) for vector in embedding.vectors])
        if embedding.scale is None:
            self.parts.append(floats("EMBEDDING", vectors))
        else:
            self.parts.append(integers("EMBEDDING", vectors.astype(int), "int8_t"))
            self.parts.append(floats("EMBEDDING_SCALE", embedding.scale))

    def _single(self, name: str, dense: Dense, row: int) -> str:
        packed = packing.matrix(dense, row)
        return f"static const matrix {name} = {self._matrix(name.lower(), packed)};\n"

    def _layer(self, index: int, layer: LayerNumbers) -> str:
        """Return the initialiser of a layer's struct, in the order of its members."""
        members = self._s5(index, layer) if self.s5 else self._s4d(index)
        for name in ("D", "scale", "shift"):
            members.append(self._vector(f"{name}_{index}", padded_row(getattr(layer, name))))
        for name, dense in (("gate", layer.gate), ("value", layer.value)):
            if dense is not None:
                packed = packing.matrix(dense, self.row)
                members.append(self._matrix(f"{name}_{index}", packed))
        return "    {" + ",\n     ".join(members) + "}"

    def _s5(self, index: int, layer: LayerNumbers) -> list[str]:
        members = [
            str(len(layer.poles)),
            self._vector(f"pole_re_{index}", layer.poles.real),
            self._vector(f"pole_im_{index}", layer.poles.imag),
        ]
        if layer.state_scales is not None:
            factor = layer.state_scales.factor
            members.append(self._vector(f"factor_re_{index}", factor.real))
            members.append(self._vector(f"factor_im_{index}", factor.imag))
        members.append(self._matrix(f"B_{index}", packing.drive(layer)))
        for direction, name in enumerate(("C", "C_back")[: len(layer.C)]):
            members.append(self._matrix(f"{name}_{index}", packing.readout(layer, direction)))
        return members

    def _s4d(self, index: int) -> list[str]:
        group = self.groups[index]
        self.parts.append(integers(f"slots_{index}", group.slots))
        return [f"slots_{index}", self._vector(f"modes_{index}", group.modes)]

    def _vector(self, name: str, values: Array) -> str:
        self.parts.append(floats(name, values))
        return name

    def _matrix(self, name: str, matrix: Matrix) -> str:
        """Return the initialiser of a matrix."""
        panels, inner, _ = matrix.weights.shape
        members = [str(inner), str(matrix.row), str(panels)]
        if matrix.scale is None:
            members.append(self._vector(name, matrix.weights))
        else:
            members += [str(matrix.bits)] if self.features["FOUR_BITS"] else []
            members += [self._words(name, matrix), self._vector(f"{name}_scale", matrix.scale)]
        if matrix.bias is None:
            members.append("NO_BIAS")
            self.bias = max(self.bias, matrix.outputs)
        else:
            members.append(self._vector(f"{name}_bias", matrix.bias))
        return f"{{{', '.join(members)}}}"

    def _words(self, name: str, matrix: Matrix) -> str:
        self.parts.append(words(name, packing.words(matrix.weights, matrix.bits)))
        return name
