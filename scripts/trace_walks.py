"""Count what a call does to a model of four layers: files crossed, deep copies, full reads, hashes.

`python scripts/trace_walks.py` prints the walks that docs/architecture.md speaks of; tests/test_walks.py keeps three
of them. A file counts if one of its functions ran: imports and class bodies do not. A full read is one reading of as
many layers as the model has, a hash one fingerprint of all of them.
"""

from __future__ import annotations

import copy
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

import ssmprune as sp
from ssmprune.adapters import Layer
from ssmprune.core.system import DiagonalSystem
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

SOURCE = Path(sp.__file__).parent
LAYERS = 4


class Walk(NamedTuple):
    """What was counted; `names` are the files, below src/ssmprune."""

    files: int
    copies: int
    reads: float
    hashes: float
    names: list[str]


def tiny_model() -> Classifier:
    """Return a classifier of four layers, the same each time."""
    torch.manual_seed(0)
    return Classifier(Config("s5", inputs=2, outputs=3, width=4, states=(6,) * LAYERS)).eval()


def tiny_data() -> list[torch.Tensor]:
    """Return a batch of eight sequences."""
    return [torch.randn(8, 50, 2, generator=torch.Generator().manual_seed(0))]


def trace(call: Callable[[], Any]) -> Walk:
    """Count what a call does; it is called twice, so that nothing is imported the second time."""
    call()
    seen: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            seen.add(str(Path(code.co_filename).relative_to(SOURCE)))

    with _counting() as counts:
        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(before)
    reads, hashes = counts["reads"] / LAYERS, counts["hashes"] / LAYERS
    return Walk(len(seen), counts["copies"], reads, hashes, sorted(seen))


@contextmanager
def _counting() -> Iterator[dict[str, int]]:
    counts = dict.fromkeys(("copies", "reads", "hashes"), 0)
    deepcopy, read, fingerprint = copy.deepcopy, Layer.read, DiagonalSystem.__dict__["fingerprint"]

    def count_copies(value: Any, memo: dict[int, Any] | None = None, *rest: Any) -> Any:
        counts["copies"] += memo is None and isinstance(value, Classifier)
        return deepcopy(value, memo, *rest)

    def count_reads(layer: Layer) -> DiagonalSystem:
        counts["reads"] += 1
        return read(layer)

    def count_hashes(system: DiagonalSystem) -> Any:
        counts["hashes"] += "fingerprint" not in vars(system)
        return fingerprint.__get__(system, DiagonalSystem)

    copy.deepcopy, Layer.read = count_copies, count_reads  # type: ignore[assignment,method-assign]
    DiagonalSystem.fingerprint = property(count_hashes)  # type: ignore[assignment]
    try:
        yield counts
    finally:
        copy.deepcopy, Layer.read = deepcopy, read  # type: ignore[method-assign]
        DiagonalSystem.fingerprint = fingerprint


def deploy(folder: Path) -> Callable[[], None]:
    """Return a call of the command `deploy`, into a new folder each time."""
    from ssmprune.cli import run

    sp.save(tiny_model(), folder / "model.safetensors")
    np.save(folder / "x.npy", tiny_data()[0].numpy())
    numbers = iter(range(1000))

    def call() -> None:
        out = folder / f"out{next(numbers)}"
        words = ["deploy", str(folder / "model.safetensors"), "--ratio", "0.5"]
        words += ["--calibrate", str(folder / "x.npy"), "--out", str(out), "--json", "--debug"]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            run(words)

    return call


def main() -> None:
    """Print a line for every walk."""
    model, data = tiny_model(), tiny_data()
    with tempfile.TemporaryDirectory() as folder:
        walks = {
            "prune(model, .5)": lambda: sp.prune(model, 0.5),
            "prune(model, .8, data=)": lambda: sp.prune(model, 0.8, data=data),
            "prune(model, max_energy(.05), data=)": lambda: sp.prune(model, sp.max_energy(0.05), data=data),
            "ssmprune deploy --ratio .5 --calibrate": deploy(Path(folder)),
        }
        for name, call in walks.items():
            walk = trace(call)
            print(f"{name}: {walk.files} files, {walk.copies} copies, {walk.reads:g} reads, {walk.hashes:g} hashes")
            if "--files" in sys.argv:
                print("  " + " ".join(walk.names))


if __name__ == "__main__":
    main()
