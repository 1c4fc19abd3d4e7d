"""All that a model needs where it runs, in one folder: checkpoint and card, C file and header, ONNX graph."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from ..files import new_folder
from ..models import save
from ..models.checkpoint import parameters
from ..models.classifier import Classifier
from ..pruning import read
from ..tasks import cards
from . import compute, export
from .build import constant_bytes, cortex_m4_bytes, find_compiler
from .c import export_c, sources, takes_standard_header
from .compiled import Compiled

STREAMS, STEPS, ROUNDS = 64, 20, 15  # streams side by side, so that what a call costs in Python hardly counts

Figures = dict[str, Any]


def bundle_name(checkpoint: Path) -> str:
    """Return what the files of a checkpoint's bundle are called: its name, as far as C files may be called so.

    >>> bundle_name(Path("models/my words (2).safetensors"))
    'my_words_2'
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", checkpoint.name.removesuffix(".safetensors"), flags=re.ASCII)
    plain = plain.strip("_.-") or "model"
    return f"{plain}_model" if takes_standard_header(plain) else plain


def write_bundle(folder: Path, name: str, model: Classifier, card: Figures) -> Figures:
    """Write a model in every form to a new folder, complete or absent; returns its card with the bytes of each file.

    An ONNX graph, of whole sequences, is among them where onnxscript is installed.
    """
    with new_folder(folder) as place:
        checkpoint = place / f"{name}.safetensors"
        save(model, checkpoint)
        export_c(model, place / f"{name}.c")
        if find_spec("onnxscript") is not None:
            export(model, place / f"{name}.onnx")
        sizes = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
        card = card | {"files": sizes, "after": card["after"] | {"checkpoint_bytes": sizes[checkpoint.name]}}
        cards.write_card(checkpoint, card)
    return card


def measure(model: Classifier) -> Figures:
    """Return how large a model is and, where a compiler is, how much memory and time its C takes on one thread.

    What it takes on a Cortex-M4 is reported if a compiler for that is installed.
    """
    states = sum(system.states for system in read(model, unstable="keep").values())
    figures: Figures = {"states": states, "parameters": parameters(model)}
    if not find_compiler():
        return figures
    text = sources(model)
    files = {"model.c": text.c, "model.h": text.header}
    figures["constant_bytes"] = constant_bytes(files)
    figures |= cortex_m4_bytes(files) or {}
    with compute.forward(model, "compiled") as fast:
        assert isinstance(fast, Compiled)
        figures["state_bytes"] = fast.state_bytes
        figures["steps_per_second"] = None if model.config.bidirectional else steps_per_second(fast)
    return figures


def steps_per_second(fast: Compiled) -> float:
    """Return how many steps of a stream one thread computes in a second of its own time; the median of some rounds."""
    config, stream = fast.config, fast.stream(STREAMS)
    step = np.zeros(STREAMS, np.int64) if config.tokens else np.full((STREAMS, config.inputs), 0.5, np.float32)
    seconds = []
    for _ in range(ROUNDS):
        start = thread_time()
        for _ in range(STEPS):
            stream(step)
        seconds.append(thread_time() - start)
    return STREAMS * STEPS / median(seconds)
