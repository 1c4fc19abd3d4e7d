"""A known input and its logits, by which a C file tests itself."""

from __future__ import annotations

import copy

import numpy as np
import torch

from ...integers.numbers import Array
from ...integers.reference import Reference
from ...integers.whole import in_whole_numbers, whole_of
from ...models.classifier import Classifier
from .source import defines, floats, integers

STEPS = 19  # a block, and steps that do not fill one
TOLERANCE = 1e-5  # of the largest logit


def golden_text(model: Classifier) -> str:
    """Return the input and the logits as arrays; inputs have few digits, and a formula rather than a seed."""
    config = model.config
    documents = 2 if config.retrieval else 1
    shape = (documents, STEPS) if config.tokens else (documents, STEPS, config.inputs)
    mixed = 37 * np.arange(np.prod(shape)).reshape(shape)
    x = mixed % config.inputs if config.tokens else (mixed % 64 - 32) / 32
    if in_whole_numbers(model):
        return _whole_golden(model, mixed % config.inputs if config.tokens else 1021 * mixed % 65536 - 32768)
    logits = exact_logits(model, x)
    arrays = integers("GOLDEN_IN", x, "int32_t") if config.tokens else floats("GOLDEN_IN", x)
    bound = f"{max(TOLERANCE * np.abs(logits).max(), 1e-30):.9g}f"
    sizes = {"GOLDEN_STEPS": STEPS, "GOLDEN_NUMBERS": logits.size, "GOLDEN_BOUND": bound}
    return "\n".join([defines(sizes), arrays, floats("GOLDEN_OUT", logits)])


def _whole_golden(model: Classifier, x: Array) -> str:
    logits, kind = Reference(whole_of(model))(x), "int32_t" if model.config.tokens else "int16_t"
    sizes = defines({"GOLDEN_STEPS": STEPS, "GOLDEN_NUMBERS": logits.size})
    return "\n".join([sizes, integers("GOLDEN_IN", x, kind), integers("GOLDEN_OUT", logits, "int32_t")])


def exact_logits(model: Classifier, x: Array) -> Array:
    """Return a model's logits in double precision, which are the same to the digits of a float on any machine."""
    exact, inputs = copy.deepcopy(model).double().eval(), torch.from_numpy(x)
    with torch.no_grad():
        logits: Array = exact(inputs.double() if x.dtype.kind == "f" else inputs).numpy()
    return logits
