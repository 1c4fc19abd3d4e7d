"""The C file and the header of a model, or of a single layer, for programs whose other parts are written by hand."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import __version__
from ...adapters import layers_of
from ...core import DiagonalSystem
from ...errors import InputError
from ...files import write_together
from ...integers.numbers import Array, Dense, LayerNumbers, Numbers, S4DSystem, S5System, numbers_of
from ...integers.reference import Reference
from ...integers.source import Writer as WholeWriter
from ...integers.source import constant, literal
from ...integers.whole import Units, in_whole_numbers, whole_of
from ...models.classifier import Classifier
from ...models.layers import DiagonalLayer
from . import packing
from .packing import padded, padded_row

FLOAT = 4  # bytes
GOLDEN_STEPS = 19  # a block, and steps that do not fill one
GOLDEN_TOLERANCE = 1e-5  # of the largest logit
LONGEST_NAME = 40
PER_LINE = 8
STANDARD_HEADERS = (
    "assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic|"
    "stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|uchar|wchar|wctype"
)


class Sources(NamedTuple):
    """A model as C."""

    c: str
    header: str
    units: Units | None = None  # of a model in whole numbers


class Parts(NamedTuple):
    """What fills the texts of `engine/`."""

    features: Mapping[str, bool]  # the answers to the conditions of the preprocessor
    words: Mapping[str, object]  # of comments
    public_sizes: Mapping[str, object]  # macros of the header
    sizes: Mapping[str, object]  # macros of the C file
    weights: str
    golden: str = ""  # what the self-test computes with


def export_c(
    model: Classifier | DiagonalLayer | DiagonalSystem,
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    D: Any = None,
    origin: str = "",
) -> None:
    """Write a model, or a single layer, as one C99 file and, beside it, its header.

    Functions are called after `name`, or after the file: `NAME_init`, `NAME_step`, `NAME_run` (see the header).
    A layer is an `S5Layer` or `S4DLayer`, or one of any family, as `read` returns it, with its D: (outputs,), a matrix
    (outputs, inputs) or 0. origin: where the model comes from, for the header. Nothing but libm is needed, and `cc -O3
    -DSSMPRUNE_MAIN model.c -lm` makes a program of a classifier, which reads numbers from stdin.

    >>> import tempfile
    >>> from ssmprune.models import Classifier
    >>> from ssmprune.models.config import Config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_c(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), f"{folder}/digits.c")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['digits.c', 'digits.h']
    """
    path, header = Path(path), Path(path).with_suffix(".h")
    if path.suffix != ".c" or not re.fullmatch(r"[A-Za-z0-9_.-]+", path.name, re.ASCII):
        raise InputError(f"Give the C file a plain name that ends in .c, not {path.name!r}.")
    if takes_standard_header(path.stem):
        raise InputError(f"{path.name} would get a header {header.name}, which C has already; give it another name.")
    if isinstance(model, DiagonalLayer):
        D, model = model.D if D is None else D, next(iter(layers_of(model).values())).read()
    if isinstance(model, DiagonalSystem):
        written = assemble(("layer.c", "layer.h"), layer_parts(model, D), name or path.stem, header.name, origin)
    elif D is not None:
        raise InputError("D is given for a single layer, as `sp.read` returns them; a whole model has its own.")
    else:
        written = sources(model, name or path.stem, header.name, origin=origin)
    write_together({path: written.c.encode("ascii"), header: written.header.encode("ascii")})


def takes_standard_header(stem: str) -> bool:
    """Tell whether the header of a C file of this name would have the name of one of C's own."""
    return re.fullmatch(STANDARD_HEADERS, stem.lower()) is not None


def sources(
    model: Classifier, name: str = "model", header: str = "model.h", *, origin: str = "", calls: bool = False
) -> Sources:
    """Return a model's C file, which includes `header`, and that header; at its end, a program to try it with.

    calls: with the functions for many sequences at once, which Python calls.
    """
    writer, golden = Writer(numbers_of(model), calls=calls), "" if calls else golden_text(model)
    if in_whole_numbers(model):
        whole = WholeWriter(whole_of(model), writer.features)
        words = writer.comments() | whole.comments()
        parts = Parts(whole.features, words, whole.public_sizes(), whole.sizes(), whole.tables(), golden)
        written = assemble(("integer.c", "integer.h"), parts, name, header, origin)
        return written._replace(units=whole.units)
    parts = Parts(writer.features, writer.comments(), writer.public_sizes(), writer.sizes(), writer.tables(), golden)
    return assemble(("engine.c", "model.h"), parts, name, header, origin)


def state_bytes(model: Classifier) -> int | None:
    """Return how many bytes a stream takes in C; None for a model that needs whole sequences."""
    writer = Writer(numbers_of(model), calls=False)
    return WholeWriter(whole_of(model), writer.features).state_bytes if in_whole_numbers(model) else writer.state_bytes


def assemble(texts: tuple[str, str], parts: Parts, name: str, header: str, origin: str) -> Sources:
    """Return texts of `engine/`, a C file and its header, with their parts filled in.

    The C file refuses to be compiled with the header of another model, whose state may be smaller.
    """
    templates = [_template(text).replace('#include "end.c"\n', _template("end.c")) for text in texts]
    prefix = free_prefix(identifier(name), "".join(templates))
    digest = "0x" + blake2b(repr((templates, parts)).encode(), digest_size=4).hexdigest()
    check = f'#if MODEL_DIGEST != {digest}\n#error "{header} belongs to another model; export both files again"\n#endif'
    public = {"MODEL_DIGEST": f"{digest} /* of both files, which belong together */", **parts.public_sizes}
    includes = {
        "model.h": f'#include "{header}"',
        "public_sizes.h": rename(defines(public), prefix),
        "sizes.h": rename(f"{check}\n{defines(parts.sizes)}", prefix),
        "weights.h": parts.weights,
        "golden.h": parts.golden,
    }
    origin = re.sub(r"[^\w .,;:()\[\]-]+", "_", origin or "a model in memory", flags=re.A)
    words = {key: rename(str(value), prefix) for key, value in parts.words.items()}
    words |= {
        "HEADER": header,
        "VERSION": __version__,
        "ORIGIN": origin,
        "ID": f"ssmprune {__version__}, {digest}, {re.sub(r'(?<=SHA-256 .{64}[)]).*', '', origin)[:200]}",
    }
    live = (rename(live_branches(text, parts.features), prefix) for text in templates)
    c, h = (re.sub("\n{3,}", "\n\n", fill(text, words, includes)).rstrip() + "\n" for text in live)
    return Sources(c, h)


def _template(name: str) -> str:
    return (files(__package__) / "engine" / name).read_text("ascii")


class Writer:
    """What the files of one model hold beside the engine."""

    def __init__(self, numbers: Numbers, *, calls: bool) -> None:
        """Put an S4D model's channels into groups."""
        config = self.config = numbers.config
        self.s5 = config.family == "s5"
        self.numbers = numbers if self.s5 else packing.order_channels_by_states(numbers)
        self.row = padded(config.width)
        self.features = self._features() | {"CALLS": calls, "WHOLE_NUMBERS": False}
        systems = [layer.system for layer in self.numbers.layers]
        self.groups = [packing.groups(system, config.width) for system in systems if isinstance(system, S4DSystem)]
        self.drives = [padded(2 * len(system.poles)) for system in systems if isinstance(system, S5System)]
        self.arrays: list[str] = []
        self.bias = 0  # zeros that stand for biases that are not there

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
            sizes["LONGEST"] = f"{self._longest()} /* inputs of a matrix that blocks of steps go through */"
        if self.features["CALLS"]:
            sizes["EVERY_STEP"] = self.features["EVERY_STEP"]  # the calls compute with it
        if self.features["LAYER_NORM"]:
            sizes["NORM_EPS"] = f"{config.norm_eps:.9g}f"
        if self.features["S4D"]:
            sizes["MODE_PARTS"] = 4 + 2 * config.bidirectional
        if self.features["BIDIRECTIONAL"]:
            least = 8 * packing.PANEL  # with less, gcc warns of loops that layers without states skip
            sizes["STATES_ROOM"] = f"{max(least, *self._states())} /* floats of the largest layer's state */"
        return sizes

    def _longest(self) -> int:
        """Return the inputs of the longest matrix that blocks of steps go through, filled up to whole words."""
        return max([self.row, *self.drives, 0 if self.config.tokens else padded(self.config.inputs)])

    def comments(self) -> dict[str, object]:
        """Return what comments say of this model."""
        config = self.config
        answer = "MODEL_FEATURES numbers that stand for the document" if config.retrieval else "MODEL_OUTPUTS logits"
        each_step = config.pooling == "none"
        more = " (first and last layers and rows of up to 8 weights: 8)" if self.features["FOUR_BITS"] else ""
        rows = 2 + sum(self.features[name] for name in ("PRENORM", "NEEDS_G"))
        widest = max([self.row, *self.drives]) if self.s5 or self.features["GATED"] else 0
        return {
            "FAMILY": config.family.upper(),
            "DEPTH": config.depth,
            "WIDTH": config.width,
            "PAIRS": " ".join(map(str, config.states)),
            "BITS": f"{self.numbers.bits} bits" + more,
            "STATE_BYTES": self.state_bytes,
            "STACK": FLOAT * (widest + rows * self.row),
            "UNPACKED": 2 * FLOAT * self._longest() * packing.PANEL,
            "A_STEP": "one token" if config.tokens else "MODEL_INPUTS numbers",
            "OUT_WHOLE": f"{answer} for each valid step" if each_step else answer,
            "OUT_STEP": answer if each_step else f"{answer}, of the sequence so far",
            "OUT_RUN": f"{answer} for each of them" if each_step else f"{answer}, of the sequence so far",
        }

    @property
    def state_bytes(self) -> int | None:
        """How much a stream remembers from one step to the next; None for a model that needs whole sequences."""
        pooled = 6 * self.row + FLOAT if self.features["MEAN"] else 0  # a sum and 16 bits of a feature, and a count
        return None if self.config.bidirectional else FLOAT * max(1, sum(self._states())) + pooled

    def _states(self) -> list[int]:
        """Return how many floats the state of each layer takes."""
        if self.s5:
            return [2 * len(layer.system.poles) for layer in self.numbers.layers]
        return [2 * packing.PANEL * int(slots.sum()) for slots, _ in self.groups]

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
        slots, modes = self.groups[index]
        self.arrays.append(integers(f"slots_{index}", slots))
        return [f"slots_{index}", self._vector(f"modes_{index}", modes)]

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
            digits = packing.words(weights, dense.bits).ravel().tolist()
            self.arrays.append(constant("uint32_t", name, [f"0x{word:08x}" for word in digits], PER_LINE))
            members += [str(dense.bits)] if self.features["FOUR_BITS"] else []
            members += [name, self._vector(f"{name}_scale", padded_row(dense.scale))]
        if dense.bias is None:
            members.append("NO_BIAS")
            self.bias = max(self.bias, len(weights) * packing.PANEL)
        else:
            members.append(self._vector(f"{name}_bias", padded_row(dense.bias)))
        return f"{{{', '.join(members)}}}"


def layer_parts(system: DiagonalSystem, D: Any = None) -> Parts:
    """Return what fills the texts of a layer; for channels with states of their own, B is part of C."""
    if system.directions == 2:
        raise InputError("A layer of two directions needs the whole sequence; only forward layers are written as C.")
    if D is None:
        raise InputError(f"Say what {system} adds of its input to its output: D=layer.D, or D=0 where it adds nothing.")
    C, owners, feed = system.gain * system.C[0], system.channel, _feed_through(system, D)
    values = {"POLE": system.poles} | ({"B": system.B, "C": C} if owners is None else {"C": C[0] * system.B[:, 0]})
    arrays = [floats(f"{key}_RE", value.real) + floats(f"{key}_IM", value.imag) for key, value in values.items()]
    arrays += [] if owners is None else [integers("CHANNEL", owners)]
    arrays += [] if feed is None else [floats("D", feed)]
    sizes = {"MODEL_INPUTS": system.inputs, "MODEL_OUTPUTS": system.outputs, "MODEL_STATES": max(1, system.n)}
    gain, plus_D = "2 " if system.gain == 2 else "", "" if feed is None else " + D u_k"
    words = {"SYSTEM": repr(system), "GAIN": gain, "PLUS_D": plus_D}
    matrix = feed is not None and feed.ndim == 2
    features = {"CHANNELS": owners is not None, "HAS_D": feed is not None, "D_MATRIX": matrix}
    return Parts(features, words, sizes, {"STATES": system.n}, "\n".join(arrays))


def _feed_through(system: DiagonalSystem, D: Any) -> Array | None:
    values = np.asarray(D.detach().cpu() if hasattr(D, "detach") else D, float)
    if values.ndim == 0 and not values:
        return None
    shapes: list[tuple[int, ...]] = [(system.outputs,)] if system.inputs == system.outputs else []
    shapes += [(system.outputs, system.inputs)] if system.channel is None else []
    if values.shape not in shapes:
        raise InputError(f"D of {system} must have the shape {' or '.join(map(str, shapes))}; it has {values.shape}.")
    return values


def golden_text(model: Classifier) -> str:
    """Return an input and its logits, for the self-test of a C file; inputs have few digits, and a formula, no seed."""
    config = model.config
    documents = 2 if config.retrieval else 1
    shape = (documents, GOLDEN_STEPS) if config.tokens else (documents, GOLDEN_STEPS, config.inputs)
    mixed = 37 * np.arange(np.prod(shape)).reshape(shape)
    x = mixed % config.inputs if config.tokens else (mixed % 64 - 32) / 32
    if in_whole_numbers(model):
        return _whole_golden(model, mixed % config.inputs if config.tokens else 1021 * mixed % 65536 - 32768)
    logits = exact_logits(model, x)
    arrays = integers("GOLDEN_IN", x, "int32_t") if config.tokens else floats("GOLDEN_IN", x)
    bound = f"{max(GOLDEN_TOLERANCE * np.abs(logits).max(), 1e-30):.9g}f"
    sizes = {"GOLDEN_STEPS": GOLDEN_STEPS, "GOLDEN_NUMBERS": logits.size, "GOLDEN_BOUND": bound}
    return "\n".join([defines(sizes), arrays, floats("GOLDEN_OUT", logits)])


def _whole_golden(model: Classifier, x: Array) -> str:
    logits, kind = Reference(whole_of(model))(x), "int32_t" if model.config.tokens else "int16_t"
    sizes = defines({"GOLDEN_STEPS": GOLDEN_STEPS, "GOLDEN_NUMBERS": logits.size})
    return "\n".join([sizes, integers("GOLDEN_IN", x, kind), integers("GOLDEN_OUT", logits, "int32_t")])


def exact_logits(model: Classifier, x: Array) -> Array:
    """Return a model's logits in double precision, which are the same to the digits of a float on any machine."""
    exact, inputs = copy.deepcopy(model).double().eval(), torch.from_numpy(x)
    with torch.no_grad():
        logits: Array = exact(inputs.double() if x.dtype.kind == "f" else inputs).numpy()
    return logits


def identifier(name: str) -> str:
    """Return a C prefix for a model's name: lower-case letters, digits and single underscores, a letter first.

    >>> identifier("sMNIST-S5 80%"), identifier('x"; system("rm");//'), identifier("2nd")
    ('smnist_s5_80', 'x_system_rm', 'model_2nd')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower(), flags=re.ASCII)[:LONGEST_NAME].strip("_")
    if not plain:
        return "model"
    return plain if plain[0].isalpha() else f"model_{plain}"


def free_prefix(prefix: str, text: str) -> str:
    """Return a prefix that makes of no public name a name that the text has already.

    >>> free_prefix("next", "static int next_step; void model_step(void);")
    'model_next'
    """
    words = set(re.findall(r"\w+", text))
    public = {word for word in words if word.lower().startswith("model_")}
    return f"model_{prefix}" if {rename(word, prefix) for word in public} & (words - public) else prefix


def floats(name: str, values: Array) -> str:
    """Return a constant array of floats; numbers that are too large for them are refused."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32).ravel()
    if not np.isfinite(single).all():
        raise InputError(f"{name} has numbers too large for single precision; the model cannot be written as C.")
    return constant("float", name, [literal(value) for value in single.tolist()], PER_LINE)


def integers(name: str, values: Array, kind: str = "int") -> str:
    """Return a constant array of ints, or of another whole type."""
    return constant(kind, name, [str(value) for value in values.ravel().tolist()], PER_LINE)


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
