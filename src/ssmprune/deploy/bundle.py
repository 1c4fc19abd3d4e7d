"""All forms of a model in one folder, checkpoint, C file and header, ONNX graph, and what the model costs in C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from ..files import new_folder
from ..models.checkpoint import parameters, save
from ..models.classifier import Classifier
from .c import export_c, takes_standard_header
from .compiled import Compiled, Forward
from .onnx import export_onnx

STREAMS, STEPS, ROUNDS = 64, 20, 15  # many streams side by side, to amortise the overhead of a call


def bundle_name(checkpoint: Path) -> str:
    """Return what the files of a checkpoint's bundle are called: its name, as far as C files may be called so.

    >>> bundle_name(Path("models/my words (2).safetensors"))
    'my_words_2'
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", checkpoint.name.removesuffix(".safetensors"), flags=re.ASCII)
    plain = plain.strip("_.-") or "model"
    return f"{plain}_model" if takes_standard_header(plain) else plain


@contextmanager
def new_bundle(folder: Path, name: str, model: Classifier) -> Iterator[tuple[Path, dict[str, int]]]:
    """Write a model in every form to a new folder; yield the path of the checkpoint in it, and the bytes of each file.

    What is written beside the checkpoint before the end is in the folder too, which is complete or absent. An ONNX
    graph, of whole sequences, is in it if onnxscript is installed.
    """
    with new_folder(folder) as place:
        checkpoint = place / f"{name}.safetensors"
        save(model, checkpoint)
        export_c(model, place / f"{name}.c")
        if find_spec("onnxscript") is not None:
            export_onnx(model, place / f"{name}.onnx")
        yield checkpoint, {path.name: path.stat().st_size for path in sorted(place.iterdir())}


def measure(model: Classifier, forward: Forward) -> dict[str, Any]:
    """Return how large a model is and, if `forward` computes it in C, how much memory and time a stream takes."""
    figures: dict[str, Any] = {"states": sum(model.layer_states.values()), "width": model.config.width}
    figures["parameters"] = parameters(model)
    if isinstance(forward, Compiled):
        figures["state_bytes"] = forward.state_bytes
        figures["steps_per_second"] = None if model.config.bidirectional else steps_per_second(forward)
    return figures


def steps_per_second(fast: Compiled) -> float:
    """Return the steps of streams that one thread computes in a second of processor time, as a median over rounds."""
    config, stream = fast.config, fast.stream(STREAMS)
    step = np.zeros(STREAMS, np.int64) if config.tokens else np.full((STREAMS, config.inputs), 0.5, np.float32)
    seconds = []
    for _ in range(ROUNDS):
        start = thread_time()
        for _ in range(STEPS):
            stream(step)
        seconds.append(thread_time() - start)
    return STREAMS * STEPS / median(seconds)
