"""Mutate files and read them: python scripts/fuzz.py [--count 20000] [--seed 0] [--reader NAME] [--corpus].

Every reader gets its share of mutated copies of the files in tests/corpus. A reader may accept a file or refuse it with
an InputError. Anything else counts against it: another exception or a crash (a traceback), more than 5 s (a hang), more
than 1 GiB (an allocation). `--reader NAME --first I --count 1` does mutation I of one reader again. `--corpus` writes
the corpus anew.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import re
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import traceback
import wave
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from sample_mnist import to_idx

import ssmprune as sp
from ssmprune.cli import main as main_of_cli
from ssmprune.cli import pruning
from ssmprune.cli.importing import import_model
from ssmprune.errors import InputError
from ssmprune.files import save_tensors
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning.plan import Plan
from ssmprune.quantisation.quantise import quantize
from ssmprune.recovery.resume import load_state, save_state
from ssmprune.sweeps import Cell, Results
from ssmprune.tasks import cards
from ssmprune.tasks.data import read_idx
from ssmprune.training.calibration_inputs import load_unlabelled
from ssmprune.training.loop import Position
from ssmprune.trees import load_tree, save_tree
from ssmprune_paper.tasks.files import load_or_make, read_records, unpack
from ssmprune_paper.tasks.listops import read_expressions
from ssmprune_paper.tasks.retrieval import read_pairs
from ssmprune_paper.tasks.speech import read_wav

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
SECONDS, MEMORY = 5, 2**30
OUTCOMES = ("refused", "accepted", "tracebacks", "hangs", "allocations")
S5 = Config("s5", inputs=2, outputs=3, width=4, states=(3, 2))
S4D = Config("s4d", inputs=5, outputs=2, width=3, states=(6,), tokens=True, bidirectional=True, norm="layer")
ANSWERS = {
    "conj_sym": True,
    "clip_eigs": False,
    "discretization": "zoh",
    "activation": "gelu",
    "prenorm": True,
    "pooling": "mean",
}
INTERESTING = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**64 - 1,
]
WORDS = [b"null", b"true", b"[]", b"{}", b'""', b"NaN", b"-1", b"1e999", b"9" * 30, b"0.5", b'"\\u0000"', b"[" * 3000]


def checkpoint(path: Path) -> None:
    """Load a model, what its layers compute, and write it again; one with finite numbers becomes C, too."""
    model = sp.load(path)
    sp.read(model, unstable="keep")
    sp.save(model, path.with_suffix(".again"))
    sp.export_c(model, path.with_suffix(".c"))


def plan(path: Path) -> None:
    """Load a plan and print it."""
    str(Plan.load(path))


def training(path: Path) -> None:
    """Go on with a training."""
    model, optimizer = trained()
    load_state(path, {"seed": 0}, Position).restore(model, optimizer)


def sweep(path: Path) -> None:
    """Read the results of a sweep; the other of its two files is whole."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name in ("sweep.json", "cells.jsonl"):
            (Path(folder) / name).write_bytes((path if path.name == name else CORPUS / name).read_bytes())
        Results.read(folder)


def command(*words: object) -> None:
    """Run a command in this process; another exit code than 0, 2 and 130 is a mistake of ours, told as one."""
    before, sys.argv = sys.argv, ["ssmprune", *map(str, words)]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as complained:
            main_of_cli()
    except SystemExit as leave:
        if (leave.code or 0) not in (0, 2, 130):
            raise RuntimeError(f"exit {leave.code}: {complained.getvalue()[-200:]}") from leave
        if leave.code:
            raise InputError(complained.getvalue()) from leave
    finally:
        sys.argv = before


def card(path: Path) -> None:
    """Prune and evaluate a model with a card beside it."""
    model = path.with_name("model.safetensors")
    model.write_bytes((CORPUS / "s5.safetensors").read_bytes())
    with suppress(InputError):  # there are no data
        command("evaluate", model, "--data", path.parent)
    pruning.SOON_COMPILED = -1  # no time for a C compiler
    command("prune", model, "--ratio", 0.5, "--out", path.with_name("small.safetensors"))


def report(path: Path) -> None:
    """Make the page of a sweep, of whose four files one is damaged."""
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder = Path(name)
        places = {
            "swept.json": folder / "sweep.json",
            "swept.jsonl": folder / "cells.jsonl",
            "plan.safetensors": folder / "plans" / "s5" / "last-0.5-0.safetensors",
            "s5.safetensors": folder / "s5.safetensors",
        }
        for file, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((path if path.name == file else CORPUS / file).read_bytes())
        with chdir(folder):
            command("report", folder, "--out", "report.html")


def module(path: Path) -> None:
    """Load a pruned module of another code."""
    sp.load_pruned(Classifier(S5), path)


def archive(path: Path) -> None:
    """Unpack an archive."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unpack(path, Path(folder) / "out")


QUANTISED = {"s5-4.safetensors": ("s5.safetensors", 4), "s4d-8.safetensors": ("s4d.safetensors", 8)}  # of which, bits
READERS: dict[str, tuple[list[str], Callable[[Path], object]]] = {
    "plan": (["plan.safetensors"], plan),
    "checkpoint": (["s5.safetensors", "s4d.safetensors", *QUANTISED], checkpoint),
    "training": (["state.safetensors"], training),
    "msgpack": (["flax.msgpack"], lambda path: import_model(load_tree(path), "flax_s5", ANSWERS)),
    "torch": (["weights.pt"], load_tree),
    "safetensors": (["weights.safetensors"], load_tree),
    "idx": (["images.idx", "images.idx.gz"], lambda path: read_idx(path, 3)),
    "cifar": (["cifar.bin"], lambda path: read_records(path, 3072).sum()),
    "listops": (["listops.tsv"], lambda path: list(read_expressions(path))),
    "pairs": (["pairs.tsv"], lambda path: read_pairs(path, 100)),
    "wav": (["clip.wav"], read_wav),
    "card": (["model.card.json"], card),
    "sweep": (["sweep.json", "cells.jsonl"], sweep),
    "report": (["swept.json", "swept.jsonl", "plan.safetensors", "s5.safetensors"], report),
    "module": (["module.safetensors"], module),
    "inputs": (["inputs.npy"], lambda path: load_unlabelled(str(path), 10)),
    "cache": (["cache.safetensors"], lambda path: load_or_make(path, lambda: {"x": np.zeros(1)})),
    "archive": (["archive.tar.gz", "archive.tar"], archive),
}

SEALED = {file for name in ("plan", "checkpoint", "training", "cache", "module") for file in READERS[name][0]}


@cache
def trained() -> tuple[Classifier, torch.optim.Optimizer]:
    """Return the model and the optimiser of the training in the corpus, after one step."""
    torch.manual_seed(0)
    model = Classifier(S5)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.autograd.backward(model(torch.ones(1, 4, 2)).sum())
    optimizer.step()
    return model, optimizer


def mutated(content: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """Return the content with one to three pieces of damage."""
    for _ in range(min(3, rng.geometric(0.7))):
        content = DAMAGE[rng.integers(len(DAMAGE))](content, others, rng)
    return content


def flip(content: bytes, _others: list[bytes], rng: np.random.Generator) -> bytes:
    """Flip one to eight bits."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 9) if data else 0):
        data[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(data)


def truncate(content: bytes, _others: list[bytes], rng: np.random.Generator) -> bytes:
    """Lose the end, or a piece of the middle, or double one."""
    at, size = _place(content, rng), int(rng.integers(1, 65))
    return [content[:at], content[:at] + content[at + size :], content[: at + size] + content[at:]][rng.integers(3)]


def splice(content: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """Put a piece of any file of the corpus in place of, or between, what is there."""
    other = others[rng.integers(len(others))]
    start, at, size = _place(other, rng), _place(content, rng), int(rng.integers(1, 513))
    return content[:at] + other[start : start + size] + content[at + (size if rng.random() < 0.5 else 0) :]


def number(content: bytes, _others: list[bytes], rng: np.random.Generator) -> bytes:
    """Write an extreme number over a field of one to eight bytes, little or big end first."""
    at, size = _place(content, rng), int(rng.choice([1, 2, 4, 8]))
    value = INTERESTING[rng.integers(len(INTERESTING))] % 256**size
    return content[:at] + value.to_bytes(size, "little" if rng.random() < 0.5 else "big") + content[at + size :]


def header(content: bytes, _others: list[bytes], rng: np.random.Generator) -> bytes:
    """Put another word or number in place of one in the text at the beginning, and mend a length before it."""
    size = struct.unpack("<Q", content[:8])[0] if len(content) > 8 else 0
    start, end = (8, 8 + size) if 0 < size < len(content) else (0, min(len(content), 4096))
    words = list(re.finditer(rb"[A-Za-z0-9_.+-]+", content[start:end]))
    if not words:
        return content
    word = words[rng.integers(len(words))]
    new = WORDS[rng.integers(len(WORDS))] if rng.random() < 0.5 else words[rng.integers(len(words))].group()
    if rng.random() < 0.3:
        new = str(INTERESTING[rng.integers(len(INTERESTING))]).encode()
    text = content[start : start + word.start()] + new + content[start + word.end() : end]
    return (struct.pack("<Q", len(text)) if start else b"") + text + content[end:]


DAMAGE = (flip, truncate, splice, number, header)


def _place(content: bytes | bytearray, rng: np.random.Generator) -> int:
    """Choose a byte, half of the time among the first 64: formats begin with what matters most."""
    return int(rng.integers(max(1, min(len(content), 64 if rng.random() < 0.5 else len(content)))))


def reseal(path: Path) -> None:
    """Give a mutated file the digest of what is in it now, so that its mutation gets past that check."""
    try:
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            about = file.metadata() or {}
        about.pop("digest", None)
        save_tensors(path, tensors, about)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        pass  # beyond repair


class Hang(BaseException):
    """Raised in a reader that takes too long."""


def outcome(read: Callable[[Path], object], path: Path) -> str:
    """Say what a reader does with a file; what counts against it is told on stderr."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(4 * SECONDS, exit=True)  # where no signal gets through
    try:
        read(path)
    except Hang:
        return "hangs"
    except InputError as error:
        return "allocations" if _memory(error) else "refused"
    except Exception as error:
        traceback.print_exc()
        return "allocations" if _memory(error) else "tracebacks"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
    return "accepted"


def _memory(error: BaseException | None) -> bool:
    """Return whether memory ran out somewhere below an error."""
    if error is None:
        return False
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error) or _memory(error.__cause__)


def fuzz(name: str, numbers: range, seed: int) -> Counter[str]:
    """Mutate the files of one reader; mutation i depends on seed, reader and i alone."""
    files, read = READERS[name]
    others = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    counts: Counter[str] = Counter(files=len(numbers))
    signal.signal(signal.SIGALRM, _hang)
    _limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        for i in numbers:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode()), i])
            file = files[i % len(files)]
            path = Path(folder) / file
            path.write_bytes(mutated((CORPUS / file).read_bytes(), others, rng))
            if file in SEALED and rng.random() < 0.5:
                reseal(path)
            counts[seen := outcome(read, path)] += 1
            if seen not in ("refused", "accepted"):
                print(f"{seen}: --reader {name} --first {i} --count 1 --seed {seed}", file=sys.stderr)
    return counts


def _hang(_signal: int, _frame: object) -> None:
    raise Hang


def _limit_memory() -> None:
    """Let the process grow by 1 GiB and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read_whole_files(names: list[str]) -> None:
    """Read the corpus as it is, which must succeed; it also imports what readers import late."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            files, read = READERS[name]
            for file in files:
                (Path(folder) / file).write_bytes((CORPUS / file).read_bytes())
                read(Path(folder) / file)


def in_child(name: str, numbers: range, seed: int) -> Counter[str]:
    """Fuzz one reader in a process of its own, so that a crash is seen and counted."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.write(writing, json.dumps(fuzz(name, numbers, seed)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not told:
        print(f"The reader {name} crashed (status {status}); the rest of its files was not read.", file=sys.stderr)
        return Counter(files=len(numbers), tracebacks=1)
    return Counter(json.loads(told))


def write_corpus() -> None:
    """Write a small whole file for every reader."""
    CORPUS.mkdir(exist_ok=True)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for name, config in (("s5", S5), ("s4d", S4D)):
        sp.save(Classifier(config), CORPUS / f"{name}.safetensors")
    for name, (source, bits) in QUANTISED.items():
        sp.save(quantize(sp.load(CORPUS / source), bits), CORPUS / name)
    model = sp.load(CORPUS / "s5.safetensors")
    made = sp.make_plan(sp.read(model), 0.4)
    sp.Pruning(model, sp.LAST, data=[torch.randn(4, 12, 2)]).plan(0.4).save(CORPUS / "plan.safetensors")
    save_state(CORPUS / "state.safetensors", *trained(), Position(step=1), {"seed": 0})
    golden = CORPUS.parent / "golden" / "s5_flax_uni_gelu_complexnormal.msgpack"
    save_tree(load_tree(golden), CORPUS / "flax.msgpack")
    weights = {"layer.weight": torch.randn(3, 4), "layer.bias": torch.randn(3)}
    (CORPUS / "weights.safetensors").write_bytes(to_bytes(weights))
    torch.save(weights, CORPUS / "weights.pt")
    images = rng.integers(0, 256, (3, 5, 5), np.uint8)
    (CORPUS / "images.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes())
    (CORPUS / "images.idx.gz").write_bytes(to_idx(images))
    (CORPUS / "cifar.bin").write_bytes(rng.integers(0, 10, 2 * 3073, np.uint8).tobytes())
    (CORPUS / "listops.tsv").write_text("Source\tTarget\n( [MAX 2 [MIN 4 7 ] 0 ] )\t4\n( [SM 8 9 ] )\t7\n")
    (CORPUS / "pairs.tsv").write_text("1.0\tA\tB\tfirst text\tsecond text\n0\tC\tD\tthird\tfourth\n")
    with wave.open(str(CORPUS / "clip.wav"), "wb") as clip:
        clip.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
        clip.writeframes(rng.integers(-999, 999, 60, np.int16).astype("<i2").tobytes())
    card = {"task": "smnist", "task_parameters": {"length": 784}, "accuracy": 0.99}
    cards.write_card(CORPUS / "model.safetensors", card)
    np.save(CORPUS / "inputs.npy", rng.normal(size=(2, 5, 2)).astype(np.float32))
    (CORPUS / "cache.safetensors").unlink(missing_ok=True)
    load_or_make(CORPUS / "cache.safetensors", lambda: {"x": np.arange(20)})
    lists: dict[str, object] = {
        "checkpoints": [{"name": "m", "file": "m.safetensors", "family": "s5", "stored_states": 2, "task": "smnist"}],
        "methods": ["last"],
        "ratios": [0.5],
        "seeds": [0],
    }
    about = {"format": "ssmprune-sweep", "version": 1, **lists, "examples": 9, "split": "test"}
    (CORPUS / "sweep.json").write_text(json.dumps(about))
    cell = Cell(
        "m", "smnist", "last", 0.5, 0, "test", 9, 1.0, 0.75, 0.5, {"layers.0.ssm": 2}, {"layers.0.ssm": 4}, 10, 20
    )
    line = json.dumps(vars(cell)) + "\n"
    (CORPUS / "cells.jsonl").write_text(line + line.replace("0.5", "0.25"))
    write_swept(made)
    sp.save_pruned(sp.shrink(model, made), CORPUS / "module.safetensors")
    for packing in ("", "gz"):
        with tarfile.open(CORPUS / f"archive.tar{'.gz' * bool(packing)}", f"w:{packing}") as tar:
            for name in ("a/one.txt", "a/two.txt"):
                member = tarfile.TarInfo(name)
                member.size = 40
                tar.addfile(member, io.BytesIO(rng.bytes(40)))


def write_swept(plan: Plan) -> None:
    """Write the two files of a sweep of the corpus' S5 that has one plan."""
    entry = {"name": "s5", "file": "s5.safetensors", "family": "s5", "stored_states": 5, "task": "mine"}
    about = {"format": "ssmprune-sweep", "version": 1, "checkpoints": [entry], "methods": ["last"], "ratios": [0.5]}
    about |= {"seeds": [0], "examples": 9, "split": "test", "machine": "m", "commands": ["c"], "date": "2026-01-01"}
    (CORPUS / "swept.json").write_text(json.dumps(about))
    *layers, _ = plan.rows()
    before, kept = ({row["layer"]: row[column] for row in layers} for column in ("states", "kept"))
    cells = [
        Cell("s5", "mine", method, ratio, 0, "test", 9, 1.0, accuracy, 0.5, states, before, 10, 20)
        for method, ratio, accuracy, states in (("full", 0.0, 0.9, before), ("last", 0.5, 0.75, kept))
    ]
    (CORPUS / "swept.jsonl").write_text("".join(json.dumps(vars(cell)) + "\n" for cell in cells))


def main() -> int:
    """Fuzz every reader and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="mutations over all readers")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation of each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=READERS, help="this one alone")
    parser.add_argument("--corpus", action="store_true", help="write the corpus anew instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.corpus:
        write_corpus()
        return 0
    names = [options.reader] if options.reader else list(READERS)
    read_whole_files(names)
    share = -(-options.count // len(names))
    total: Counter[str] = Counter()
    print(f"{'reader':<12}" + "".join(f"{title:>12}" for title in ("files", *OUTCOMES)))
    for name in names:
        counts = in_child(name, range(options.first, options.first + share), options.seed)
        total += counts
        print(f"{name:<12}" + "".join(f"{counts[title]:>12}" for title in ("files", *OUTCOMES)), flush=True)
    print(f"{'all':<12}" + "".join(f"{total[title]:>12}" for title in ("files", *OUTCOMES)))
    return int(any(total[title] for title in ("tracebacks", "hangs", "allocations")))


if __name__ == "__main__":
    sys.exit(main())
