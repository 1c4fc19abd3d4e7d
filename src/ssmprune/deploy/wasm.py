"""A model for browsers: its C as WebAssembly, a JavaScript module that calls it, and a page that needs no server."""

from __future__ import annotations

import base64
import html
import json
import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from ..errors import InputError, need
from ..files import write_together
from ..models.classifier import Classifier
from . import build
from .c.source import Sources, sources

FILES = Path(__file__).parent / "web"
# Without a system and its library: web/ has what the C includes of it. Steps come one by one, not in blocks.
TARGET = ("-target", "wasm32-freestanding", "-nostdlib", "-Wl,--no-entry", "-Wl,-z,stack-size=1048576")
FLAGS = (*TARGET, "-std=c99", "-O3", "-msimd128", "-s", "-I.", "-DMODEL_BLOCK=1")


def write_page(model: Classifier, path: Path, task: str | None = None, origin: str = "") -> dict[str, int]:
    """Write NAME.html, which holds all that it needs, and NAME.wasm with NAME.js for other pages; return their bytes.

    task: the page of smnist has a canvas to draw a digit on, others a field for numbers.
    """
    if model.config.bidirectional:
        raise InputError(
            "A page streams, and a bidirectional model needs the whole sequence; export it as .c or .onnx."
        )
    if model.config.retrieval:
        raise InputError("A page streams one sequence, and this model compares two; export it as .c or .onnx.")
    text = sources(model, origin=origin)
    about = _about(model, text)
    wasm, beside = _compiled(text, about["perStep"]), path.with_suffix(".wasm")
    script = _filled("model.js", {"ABOUT": _json(about), "WASM": _json(quote(beside.name, errors="surrogateescape"))})
    page = {
        "TITLE": html.escape(path.stem),
        "MODEL": script,
        "BYTES": _json(base64.b64encode(wasm).decode()),
        "INPUT": (FILES / ("digits.js" if task == "smnist" else "numbers.js")).read_text("ascii"),
    }
    text_of_page = _filled("page.html", page).encode(errors="replace")  # names of files may be no text
    contents = {path: text_of_page, beside: wasm, path.with_suffix(".js"): script.encode()}
    write_together(contents)
    return {f"{file.suffix[1:]} bytes": len(content) for file, content in contents.items()}


def _about(model: Classifier, text: Sources) -> dict[str, object]:
    """Return what the script must know of a model: how many inputs and outputs of which kind."""
    config, units = model.config, text.units
    whole: dict[str, object] = {} if units is None else {"unit": float(units.logit)}
    if units is not None and not config.tokens:
        whole |= {"samples": {"scale": units.scale.tolist(), "offset": units.offset.tolist()}}
    sizes = {"perStep": 1, "tokens": config.inputs} if config.tokens else {"perStep": config.inputs}
    return {**sizes, "outputs": config.outputs, **whole}


def _compiled(text: Sources, per_step: object) -> bytes:
    need("ziglang", "compile", "WebAssembly is built by zig's C compiler")
    kinds = (f"-DPER_STEP={per_step}", f"-DLOGIT={'float' if text.units is None else 'int32_t'}")
    texts = {path.name: path.read_text("ascii") for path in FILES.glob("*.[ch]")}
    with tempfile.TemporaryDirectory(prefix="ssmprune-", dir=build.scratch_folder()) as folder:
        for name, content in {**texts, "model.c": text.c, "model.h": text.header}.items():
            (Path(folder) / name).write_text(content, "ascii")
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *kinds, "model.c", "stream.c", "-o", "model.wasm"]
        result = build.run(command, folder)
        if result.returncode:
            raise InputError(f"zig could not compile the model:\n{result.stderr[-2000:]}")
        return (Path(folder) / "model.wasm").read_bytes()


def _json(value: object) -> str:
    """Return JSON that can stand inside a script element."""
    return json.dumps(value).replace("<", "\\u003c")


def _filled(name: str, words: dict[str, str]) -> str:
    """Return a file of `web/` with its places filled, all at once: what is inserted may name another place."""
    return re.sub(r"/\*([A-Z]+)\*/", lambda place: words[place[1]], (FILES / name).read_text("ascii"))
