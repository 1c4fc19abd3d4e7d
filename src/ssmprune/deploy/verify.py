"""A C file against the checkpoint that it was written from: built by any compiler, run here or by an emulator."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..files import existing, read_whole
from ..integers.numbers import Array
from ..integers.reference import Reference
from ..integers.whole import in_whole_numbers, whole_of
from ..models.classifier import Classifier
from ..models.config import Config
from . import build
from .c.source import exact_logits

BOUND = 256  # units in the last place of the largest logit, 2e-5 of it; shipped models are off by 5 to 92
SEQUENCES, STEPS = 8, 200  # to compare; given inputs have their own length
IDENTITY = re.compile(r'^const char \w+_id\[\] = "ssmprune \S+, 0x\w+, (.*?)(?: \(SHA-256 (\w+)\))?";', re.MULTILINE)
ASK_FOR_RUNNER = "If it is a program for another processor, say what runs it, as in --run qemu-arm-static."


class Verified(NamedTuple):
    """How far a compiled C file is from its checkpoint."""

    id: str  # which model the program says it is
    self_test: float  # 0, or how far the logits of the input in the file are off
    ulp: float  # the largest deviation of a logit, in units of the last place of the largest logit of its answer
    bound: int  # of such units; whole numbers must be the same

    @property
    def passed(self) -> bool:
        """Whether it computes what the checkpoint does."""
        return self.ulp <= self.bound and self.self_test == 0


def find_checkpoint(source: Path, checkpoint: Path | None) -> Path:
    """Return the checkpoint of a C file: the named one, or that beside it; another than it was written from is refused.

    A file that was written from a model in memory has no checkpoint to compare digests with.
    """
    found = IDENTITY.search(read_whole(source).decode("ascii", "replace"))
    if found is None:
        raise InputError(f"{source} does not say which model it is; `ssmprune export` writes C files that do.")
    name, digest = found.groups()
    path = checkpoint or source.with_name(name if digest else f"{source.stem}.safetensors")
    if checkpoint is None and not path.is_file():
        raise InputError(
            f"{source} was written from {name}, which is not beside it; name it: ssmprune verify {source} CHECKPOINT."
        )
    if digest and sha256(read_whole(existing(path))).hexdigest() != digest:
        raise InputError(
            f"{source} was written from another checkpoint than {path}: its SHA-256 begins with {digest[:12]}. "
            "Name the right one, or export it again."
        )
    return path


def random_inputs(config: Config) -> Array:
    """Return normal random numbers, or tokens, always the same; pairs of documents for a retrieval model."""
    rng, count = np.random.default_rng(0), SEQUENCES * (2 if config.retrieval else 1)
    if config.tokens:
        return rng.integers(config.inputs, size=(count, STEPS))
    return rng.standard_normal((count, STEPS, config.inputs)).astype(np.float32)


def verify(source: Path, model: Classifier, batches: Iterable[Array], cc: str | None, run: str | None) -> Verified:
    """Build a C file with its self-test and its program, feed it sequences and compare the answers with the model's.

    batches: (sequences, length, inputs), or tokens; of documents, the first half is compared with the second. The model
    computes in double precision, so what is measured is the C alone.
    cc, run: command lines of a compiler and of what runs its programs, by default this machine's.
    """
    examples = list(_examples(model.config, batches))
    longest = max(2, *(x.shape[0] * x.shape[1] for x in examples))
    with tempfile.TemporaryDirectory(prefix="ssmprune-", dir=build.scratch_folder()) as folder:
        program = [*shlex.split(run or ""), str(_built(source, Path(folder), _words(cc), longest))]
        identity, self_test = _printed([*program, "--id"]).strip(), _numbers([*program, "--self-test"], 1)[0]
        worst = max(_deviation(program, model, x) for x in examples)
    return Verified(identity, float(self_test), worst, 0 if in_whole_numbers(model) else BOUND)


def _examples(config: Config, batches: Iterable[Array]) -> Iterator[Array]:
    """Yield what the program takes at once: a sequence (1, length, ..), or two documents (2, length, ..)."""
    for batch in batches:
        config.check_inputs(batch, whole=batch.dtype.kind in "iu")
        half = len(batch) // 2
        yield from (batch[[i, half + i]] for i in range(half)) if config.retrieval else np.split(batch, len(batch))


def _words(line: str | None) -> list[str]:
    words = build.compiler() if line is None else shlex.split(line)
    if not words:
        raise InputError("--cc needs the name of a compiler, as in --cc 'gcc -O3'; it is empty.")
    return words


def _built(source: Path, folder: Path, compiler: list[str], longest: int) -> Path:
    macros = ["-DSSMPRUNE_MAIN", "-DSSMPRUNE_SELF_TEST", f"-DSSMPRUNE_LONGEST={longest}"]
    program = folder / "program"
    zig = 3 if "ziglang" in compiler else 1  # words before the flags
    command = [*compiler[:zig], "-O2", *macros, *compiler[zig:], str(source.absolute()), "-lm", "-o", str(program)]
    result = build.run(command)
    if result.returncode or not program.is_file():
        told = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr[-500:])
        raise InputError(f"{shlex.join(compiler)} could not compile {source}: {told}")
    return program


def _printed(command: list[str], text: str = "") -> str:
    result = build.run(command, text=text, remedy=ASK_FOR_RUNNER)
    if result.returncode:
        told = result.stderr.strip()[-500:] or f"exit code {result.returncode}"
        raise InputError(f"{shlex.join(command)} failed: {told}. {ASK_FOR_RUNNER}")
    return result.stdout


def _numbers(command: list[str], count: int, text: str = "", kind: type = np.float32) -> Array:
    words = _printed(command, text).split()
    try:
        return np.array(words, kind).reshape(count)
    except ValueError as error:
        raise InputError(f"Expected {count} numbers from {shlex.join(command)}; it printed {words[:8]}.") from error


def _deviation(program: list[str], model: Classifier, x: Array) -> float:
    if in_whole_numbers(model):
        whole = whole_of(model)
        samples = whole.units.samples(x)
        wanted = Reference(whole)(samples).ravel()
        given = _numbers(program, wanted.size, " ".join(map(str, samples.ravel())), np.int64)
        return float(np.abs(given - wanted).max())
    exact = exact_logits(model, x)[0]
    ours = _numbers(program, exact.size, " ".join(f"{value:.9g}" for value in x.ravel().tolist()))
    off = np.abs(ours.astype(float) - exact.ravel()).max() / np.spacing(np.abs(exact).max(), dtype=np.float32)
    if not np.isfinite(off):
        raise InputError(f"The answers of {shlex.join(program)} are not finite; those of the checkpoint are.")
    return float(off)
