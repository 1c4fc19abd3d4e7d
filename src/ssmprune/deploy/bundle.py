"""All forms of a model in one folder: checkpoint, C file and header, ONNX graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from ..files import new_folder
from ..models.checkpoint import save
from ..models.classifier import Classifier
from .build import object_sizes
from .c.source import export_c, state_bytes, takes_standard_header
from .onnx import export_onnx


def bundle_name(checkpoint: Path) -> str:
    """Return what the files of a checkpoint's bundle are called: its name, as far as C files may be called so.

    >>> bundle_name(Path("models/my words (2).safetensors"))
    'my_words_2'
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", checkpoint.name.removesuffix(".safetensors"), flags=re.ASCII)
    plain = plain.strip("_.-") or "model"
    return f"{plain}_model" if takes_standard_header(plain) else plain


@contextmanager
def new_bundle(folder: Path, name: str, model: Classifier, about: str = "") -> Iterator[tuple[Path, dict[str, int]]]:
    """Write a model in every form to a new folder; yield the path of the checkpoint in it, and the bytes of each file.

    What is written beside the checkpoint before the end is in the folder too, which is complete or absent. An ONNX
    graph, of whole sequences, is in it if onnxscript is installed.
    """
    with new_folder(folder) as place:
        checkpoint = place / f"{name}.safetensors"
        save(model, checkpoint)
        export_c(model, place / f"{name}.c", origin=origin_of(checkpoint, about))
        if find_spec("onnxscript") is not None:
            export_onnx(model, place / f"{name}.onnx")
        yield checkpoint, {path.name: path.stat().st_size for path in sorted(place.iterdir())}


def origin_of(checkpoint: Path, about: str = "") -> str:
    """Return where an exported model comes from: its checkpoint, with its digest, and what else is known about it."""
    digest = sha256(checkpoint.read_bytes()).hexdigest()
    return f"{checkpoint.name} (SHA-256 {digest}). {about}".removesuffix(". ")


def sizes_of_c(model: Classifier, path: Path) -> dict[str, int | None]:
    """Return the bytes of a model's C, of what this machine's compiler makes of it, of a stream and of the stack."""
    made, stack = object_sizes(path)
    state = state_bytes(model)
    return {"source bytes": path.stat().st_size, "compiled bytes": made, "state bytes": state, "stack bytes": stack}
