"""What fills the C of a model in whole numbers: the features, sizes and arrays of `deploy/c/engine/integer.c`."""

from __future__ import annotations

import numpy as np

from .numbers import Array
from .whole import WIDE, Affine, Curve, Factor, Matrix, Parts, Whole, WholeLayer

PER_LINE = 12


class Writer:
    """The files of one model: what they hold beside the engine."""

    def __init__(self, whole: Whole, features: dict[str, bool]) -> None:
        """Take the answers to the conditions in the engine, which are those of the engine in floats."""
        self.whole, self.config, self.arrays = whole, whole.config, list[str]()
        self.features = features | {"WHOLE_NUMBERS": True}
        self.units = whole.units
        self.states = [len(layer.states.bound) for layer in whole.layers]

    @property
    def state_bytes(self) -> int | None:
        """How much a stream remembers from one step to the next; None for a model that needs whole sequences."""
        sums = 8 * self.config.width + 4 if self.features["MEAN"] else 0
        size = 4 * max(1, 2 * sum(self.states)) + sums
        return None if self.config.bidirectional else -(-size // 8) * 8 if sums else size

    def public_sizes(self) -> dict[str, object]:
        """Return the macros of the header."""
        config = self.config
        sizes: dict[str, object] = {
            "MODEL_INPUTS": f"{config.inputs} /* {'different tokens' if config.tokens else 'samples per step'} */",
            "MODEL_OUTPUTS": f"{config.outputs} /* logits */",
            "MODEL_LOGIT": f"{self.units.logit:.9g}f /* the unit of a logit */",
        }
        if config.retrieval:
            sizes["MODEL_FEATURES"] = f"{config.width} /* numbers that represent a document */"
        if config.bidirectional:
            fed = 2 * max(self.states) if self.features["S5"] else 0
            return sizes | {"MODEL_NUMBERS_PER_STEP": 2 * config.width + fed}
        if self.features["MEAN"]:
            sizes["MODEL_WIDTH"] = config.width
        return sizes | {"MODEL_STATES": max(1, 2 * sum(self.states))}

    def sizes(self) -> dict[str, object]:
        """Return the macros of the engine."""
        config, width = self.config, self.config.width
        sizes: dict[str, object] = {
            "WIDTH": f"{width} /* features of a step */",
            "DEPTH": config.depth,
            "STRIDE": f"{1 if config.tokens else config.inputs} /* from one step's input to the next */",
            "MOST_STATES": f"{max(1, *self.states)} /* of a layer */",
            "WIDE": f"{WIDE} /* the largest number in the residual stream, and of a logit */",
        }
        if self.features["MEAN"]:
            sizes["MOST_STEPS"] = "2147483647u"
        if self.features["LAYER_NORM"]:
            bits = width.bit_length()
            sizes["WIDTH_BITS"] = bits
            sizes["WIDTH_SHARE"] = f"{((1 << (29 + bits)) + width // 2) // width} /* 2^29 2^WIDTH_BITS / WIDTH */"
            sizes["EPSILON"] = f"INT64_C({self.whole.epsilon}) /* of the norm, in squared units */"
        if self.features["S4D"]:
            sizes["BACKWARD_DELAY"] = config.backward_delay
        if self.features["CALLS"]:
            sizes["EVERY_STEP"] = self.features["EVERY_STEP"]  # the calls compute with it
        return sizes

    def comments(self) -> dict[str, object]:
        """Return what comments say of this model, beside what they say of a model in floats."""
        scale, offset = self.units.scale, self.units.offset
        listed = [", ".join(f"{value:.9g}" for value in values) for values in (scale, offset)]
        floats = [", ".join(map(literal, values)) for values in (scale, offset)]
        return {
            "INPUTS_ARE": f"scale * sample + offset, with the scale {listed[0]} and the offset {listed[1]}",
            "SCALES": floats[0],
            "OFFSETS": floats[1],
            "STATE_BYTES": self.state_bytes,
        }

    def tables(self) -> str:
        """Return all weights, and the structs that point to them."""
        whole = self.whole
        rows = [self._layer(str(i), layer) for i, layer in enumerate(whole.layers)]
        ends = ["static const layer LAYERS[DEPTH] = {\n" + ",\n".join(rows) + "};\n"]
        self._array("GELU", whole.gelu, "uint16_t")
        if self.features["GATED"]:
            self._array("SIGMOID", whole.sigmoid, "uint16_t")
        if self.config.tokens:
            self._array("EMBEDDING", whole.encoder.weights, "int8_t")
            self._array("EMBEDDING_NUMBERS", whole.encoder.factor.numbers)
            ends.append(f"#define EMBEDDING_SHIFT {whole.encoder.factor.shift}\n")
        else:
            ends.append(f"static const matrix ENCODER = {self._matrix('encoder', whole.encoder)};\n")
        ends.append(f"static const factor POOL = {_factor(whole.pool)};\n")
        if whole.hidden is not None:
            linear, quadratic, hidden, gelu = whole.hidden
            ends.append(f"static const factor JOINT = {_factor(linear)};\n")
            ends.append(f"static const factor JOINT_PRODUCT = {_factor(quadratic)};\n")
            ends.append(f"static const matrix HIDDEN = {self._matrix('hidden', hidden)};\n")
            ends.append(f"static const curve HIDDEN_GELU = {_curve(gelu)};\n")
        ends.append(f"static const matrix DECODER = {self._matrix('decoder', whole.decoder)};\n")
        return "/* ---- Weights ---- */\n\n" + "\n".join([*self.arrays, *ends]) + "\n"

    def _layer(self, i: str, layer: WholeLayer) -> str:
        """Return the initialiser of a layer's struct, in the order of its members."""
        states, s5 = layer.states, layer.read is not None
        members = [self._affine(f"enter_{i}", layer.enter), str(len(states.bound))]
        members += self._complex(f"pole_{i}", states.pole)
        members += self._complex(f"feed_{i}", states.feed, imaginary=s5)
        if layer.read is not None and states.drive is not None:
            members += [self._array(f"drive_{i}", states.drive, "int8_t"), self._array(f"read_{i}", layer.read.numbers)]
            members += [str(layer.read.shift)]
            members += [self._matrix(f"C{d}_{i}", readout) for d, readout in enumerate(layer.readouts)]
        elif states.channel is not None:
            members.append(self._array(f"channel_{i}", states.channel, "uint16_t"))
            for d, (re, im, shift) in enumerate(layer.weights):
                members += [self._array(f"C{d}_re_{i}", re), self._array(f"C{d}_im_{i}", im), str(shift)]
        members += [self._array(f"D_{i}", layer.D.numbers), str(layer.D.shift), _curve(layer.gelu)]
        if layer.gate is not None:
            members += [self._matrix(f"gate_{i}", layer.gate[0]), _factor(layer.gate[1])]
        members += [] if layer.value is None else [self._matrix(f"value_{i}", layer.value)]
        members.append(_factor(layer.residual))
        members += [] if layer.leave is None else [self._affine(f"leave_{i}", layer.leave)]
        return "    {" + ",\n     ".join(members) + "}"

    def _complex(self, name: str, parts: Parts, *, imaginary: bool = True) -> list[str]:
        members = [self._array(f"{name}_re", parts[0])]
        members += [self._array(f"{name}_im", parts[1])] if imaginary else []
        return [*members, self._array(f"{name}_shift", parts[2], "uint8_t")]

    def _affine(self, name: str, affine: Affine) -> str:
        numbers, bias = self._array(name, affine.factor.numbers), self._array(f"{name}_bias", affine.bias)
        return f"{{{numbers}, {affine.factor.shift}, {bias}}}"

    def _matrix(self, name: str, matrix: Matrix) -> str:
        weights = self._array(name, matrix.weights, "int8_t")
        factor = Affine(matrix.factor, matrix.bias)
        return f"{{{matrix.weights.shape[1]}, {weights}, {self._affine(f'{name}_factor', factor)[1:-1]}}}"

    def _array(self, name: str, values: Array, kind: str = "int32_t") -> str:
        """Add an array; a value that its type cannot hold is a fault of ours."""
        assert (values.astype(np.dtype(kind.removesuffix("_t"))) == values).all(), name
        self.arrays.append(constant(kind, name, [str(number) for number in values.ravel().tolist()], PER_LINE))
        return name


def _factor(factor: Factor) -> str:
    return f"{{{factor.numbers}, {factor.shift}}}"


def _curve(factors: Curve) -> str:
    return f"{{{_factor(factors[0])}, {_factor(factors[1])}}}"


def constant(kind: str, name: str, items: list[str], per_line: int) -> str:
    """Return a constant array."""
    items = items or [literal(0) if kind == "float" else "0"]  # C has no empty arrays
    lines = ",\n    ".join(", ".join(items[at : at + per_line]) for at in range(0, len(items), per_line))
    return f"static const {kind} {name}[{len(items)}] = {{\n    {lines}}};\n"


def literal(value: float) -> str:
    """Return a constant of type float; nine significant digits round-trip a float32."""
    digits = f"{value:.9g}"
    return f"{digits}f" if "." in digits or "e" in digits else f"{digits}.0f"
