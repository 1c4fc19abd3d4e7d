"""Kill commands with SIGKILL at random moments: python scripts/kill.py [--kills 100] [--seed 0] [--command NAME].

Training, recovering, sweeping, making data, shrinking, quantising, exporting and deploying are killed again and again;
half of the kills come at a random time, half when a file is just being written. After each kill everything that can be
read must be right, and what was finished must still be there; at the end the same command must give what it gives
undisturbed.
Prints, per command, the kills and the artefacts that were unreadable, wrong or lost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from sample_mnist import to_idx

import ssmprune as sp
from ssmprune.cli import run as run_line
from ssmprune.deploy import bundle
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning.make import make_plan
from ssmprune.planning.plan import Plan
from ssmprune.recovery import Recovery
from ssmprune.sweeps import Key, Results
from ssmprune.tasks import get
from ssmprune.training import Recipe, Run, train
from ssmprune_paper.tasks import listops, pathfinder

RECIPE = Recipe(
    family="s5", depth=1, width=4, states=4, blocks=1, norm="batch", prenorm=True, dropout=0.1, lr=0.01, ssm_lr=0.002,
    batch=10, epochs=6, weight_decay=0.05, step_min=0.01, step_max=0.5, bidirectional=False, activation="half_glu1",
)  # fmt: skip
TITLES = ("kills", "unreadable", "wrong", "lost")


@dataclass
class Command:
    """Something to kill: what it does in a folder, and what of it is unreadable, wrong or lost."""

    run: Callable[[Path], object]
    faults: Callable[[Path, Path, bool], Counter[str]]  # of a folder against the undisturbed one; is it finished?
    prepare: Callable[[Path], object] = lambda folder: folder.mkdir()


def cli(*words: object) -> None:
    """Run a command line in this process; its table is of no interest."""
    try:
        with redirect_stdout(None):
            run_line([str(word) for word in words])
    except SystemExit as leave:
        if leave.code:
            raise RuntimeError(f"{words} left with {leave.code}") from leave


@dataclass
class Bench:
    """The inputs of all commands, in a folder of their own."""

    place: Path
    done: dict[Path, set[Key]] = field(default_factory=dict)  # cells seen so far

    def __post_init__(self) -> None:
        """Write models, plans and a small MNIST."""
        torch.manual_seed(0)
        sp.save(Classifier(Config("s5", inputs=1, outputs=10, width=4, states=(4, 4))), self.place / "tiny.safetensors")
        sp.save(
            Classifier(Config("s5", inputs=1, outputs=10, width=64, states=(256,) * 4)), self.place / "big.safetensors"
        )
        systems = sp.read(sp.load(self.place / "big.safetensors"))
        for ratio in (0.25, 0.5):
            make_plan(systems, ratio).save(self.place / f"{ratio}.plan")
        rng = np.random.default_rng(0)
        for part, count in (("train", 60), ("t10k", 10)):
            for kind, array in {
                "images-idx3": rng.integers(0, 256, (count, 28, 28), np.uint8),
                "labels-idx1": rng.integers(0, 10, count, np.uint8),
            }.items():
                write_atomically(self.place / "data" / "mnist" / f"{part}-{kind}-ubyte.gz", to_idx(array))

    def commands(self) -> dict[str, Command]:
        """Return everything that can be killed."""
        return {
            "train": Command(self.train, self.train_faults),
            "recover": Command(self.recover, self.recover_faults),
            "sweep": Command(self.sweep, self.sweep_faults),
            "data": Command(self.data, same_files),
            "shrink": Command(self.shrink, self.whole_model, self.old_model),
            "quantize": Command(self.quantize, self.whole_model, self.old_model),
            "export": Command(self.export, self.whole_graph, self.old_graph),
            "c": Command(self.export_c, self.whole_c, self.old_c),
            "deploy": Command(self.deploy, self.whole_bundle),
        }

    def train(self, folder: Path) -> None:
        """Train for six epochs; what was interrupted resumes."""
        train(get("smnist"), RECIPE, Run(folder, save_every=2, progress=False), root=self.place / "data")

    def train_faults(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count files that do not load and, at the end, what differs from the undisturbed training."""
        counts = Counter(lost=finished - (folder / "last.safetensors").exists())
        for file in folder.glob("*.safetensors"):
            counts["unreadable"] += unreadable(load_file if file.stem == "state" else sp.load, file)
            counts["wrong"] += finished and not same_tensors(file, reference / file.name)
        if finished:
            counts["wrong"] += events(folder) != events(reference)
        return counts

    def recover(self, folder: Path) -> None:
        """Let a pruned model learn the whole one's answers; what was interrupted resumes."""
        whole = sp.load(self.place / "tiny.safetensors")
        generator = torch.Generator().manual_seed(0)
        inputs = [torch.randn(16, 100, 1, generator=generator) for _ in range(6)]
        folder.mkdir(exist_ok=True)
        recovery = Recovery(sp.prune(whole, 0.5), whole, inputs)
        outcome = recovery.run(steps=64, state=folder / "state.safetensors", progress=False)
        sp.save(outcome.model, folder / "small.safetensors")

    def recover_faults(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count files that do not load, and a recovered model that differs from the undisturbed one or is not there."""
        small, state = folder / "small.safetensors", folder / "state.safetensors"
        counts = Counter(lost=finished and not small.exists())
        counts["unreadable"] += state.exists() and unreadable(load_file, state)
        if small.exists():
            counts["unreadable"] += unreadable(sp.load, small)
            counts["wrong"] += small.read_bytes() != (reference / small.name).read_bytes()
        return counts

    def sweep(self, folder: Path) -> None:
        """Sweep a tiny model; what was interrupted resumes."""
        model, data = self.place / "tiny.safetensors", self.place / "data"
        methods = ("--methods", "last,uniform-magnitude,random", "--ratios", "0.25:0.75:0.25", "--seeds", "0,1")
        cli("sweep", model, "--task", "smnist", "--data", data, *methods, "--examples", 4, "--out", folder)

    def sweep_faults(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count cells that are gone again, and cells and plans that differ from the undisturbed sweep's."""
        counts: Counter[str] = Counter()
        right = {cell.key: cell for cell in Results.read(reference).cells}
        cells = {}
        if (folder / "sweep.json").exists():
            counts["unreadable"] += unreadable(Results.read, folder)
            cells = {} if counts["unreadable"] else {cell.key: cell for cell in Results.read(folder).cells}
        seen = self.done.setdefault(folder, set())
        counts["lost"] += len((seen | (right.keys() if finished else set())) - cells.keys())
        counts["wrong"] += sum(right.get(key) != cell for key, cell in cells.items())
        seen |= cells.keys()
        for plan in folder.glob("plans/*/*.safetensors"):
            counts["unreadable"] += unreadable(Plan.load, plan)
            counts["wrong"] += plan.read_bytes() != (reference / plan.relative_to(folder)).read_bytes()
        return counts

    def data(self, folder: Path) -> None:
        """Draw ListOps and Pathfinder into the cache."""
        listops.SIZES.update(test=20, val=20)
        pathfinder.SHARD, pathfinder.BATCH = 10, 10 * 32
        get("listops").replace(length=40, shortest=5, examples=100).load("train", folder)
        get("pathfinder").replace(examples=30).load("train", folder)

    def shrink(self, folder: Path) -> None:
        """Shrink a model over an older result."""
        self.replay("0.5.plan", folder)

    def replay(self, plan: str, folder: Path) -> None:
        """Prune the big model as a plan says."""
        out = folder / "small.safetensors"
        cli("prune", self.place / "big.safetensors", "--from-plan", self.place / plan, "--out", out)

    def old_model(self, folder: Path) -> None:
        """Put an older result there."""
        folder.mkdir()
        self.replay("0.25.plan", folder)

    def whole_model(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count a model that is neither the old nor the new one; when finished it must be the new one."""
        file = folder / "small.safetensors"
        if unreadable(sp.load, file):
            return Counter(unreadable=1)
        new = same_tensors(file, reference / file.name)
        old = sum(sp.load(file).config.states) == 768
        return Counter(wrong=not (new if finished else new or old))

    def quantize(self, folder: Path) -> None:
        """Quantise a model over an older result."""
        cli("quantize", self.place / "big.safetensors", "--bits", 8, "--out", folder / "small.safetensors")

    def export(self, folder: Path) -> None:
        """Export a model over an older graph."""
        cli("export", self.place / "tiny.safetensors", "--mode", "stream", "--out", folder / "model.onnx")

    def old_graph(self, folder: Path) -> None:
        """Put something there that the graph replaces."""
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"the older graph")

    def whole_graph(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count a graph that is neither the old nor the new one; when finished it must be the new one."""
        now, new = ((place / "model.onnx").read_bytes() for place in (folder, reference))
        return Counter(wrong=now != new and (finished or now != b"the older graph"))

    def export_c(self, folder: Path) -> None:
        """Export a model as C over older files."""
        cli("export", self.place / "big.safetensors", "--out", folder / "model.c")

    def old_c(self, folder: Path) -> None:
        """Put something there that the C file and its header replace."""
        folder.mkdir()
        for name in ("model.c", "model.h"):
            (folder / name).write_text("the older file")

    def whole_c(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count files that are neither the old nor the new ones; when finished they must be the new ones."""
        counts: Counter[str] = Counter()
        for name in ("model.c", "model.h"):
            now, new = ((place / name).read_text() for place in (folder, reference))
            counts["wrong"] += now != new and (finished or now != "the older file")
        return counts

    def deploy(self, folder: Path) -> None:
        """Write a bundle, unless it is there; what a kill leaves of a compilation lies among the inputs."""
        tempfile.tempdir = str(self.place)
        bundle.find_spec = lambda name: None  # type: ignore[assignment] # `export` covers graphs, which take long
        line = ("--ratio", 0.5, "--calibrate", "smnist", "--sequences", 10, "--validate", "smnist")
        if not (folder / "out").exists():
            tiny, data = self.place / "tiny.safetensors", self.place / "data"
            cli("deploy", tiny, *line, "--data", data, "--out", folder / "out")

    def whole_bundle(self, folder: Path, reference: Path, finished: bool) -> Counter[str]:
        """Count a folder that is neither absent nor whole; of its card, what depends on the clock is left out."""
        if not (folder / "out").exists():
            return Counter(lost=finished)
        now, right = (
            {path.name: path.read_bytes() for path in (place / "out").iterdir()} for place in (folder, reference)
        )
        for files in (now, right):
            files["tiny.card.json"] = without_speed(files.get("tiny.card.json", b"{}"))
        return Counter(lost=len(right.keys() - now.keys()), wrong=sum(right.get(name) != now[name] for name in now))


def without_speed(card: bytes) -> bytes:
    """Return a bundle's card without the steps per second."""
    figures = json.loads(card)
    for when in ("before", "after"):
        figures.get(when, {}).pop("steps_per_second", None)
    return json.dumps(figures).encode()


def unreadable(read: Callable[[Path], object], path: Path) -> bool:
    """Return whether a file that is there cannot be read."""
    try:
        read(path)
    except Exception:
        traceback.print_exc()
        return True
    return False


def same_tensors(path: Path, other: Path) -> bool:
    """Return whether two files hold the same tensors to the bit; the order of names in a header is not fixed."""
    a, b = load_file(path), load_file(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def same_files(folder: Path, reference: Path, finished: bool) -> Counter[str]:
    """Count files that differ from the undisturbed ones and, when finished, those that are not there."""
    now, right = (
        {path.relative_to(place): path for path in place.rglob("*") if path.is_file() and path.suffix != ".part"}
        for place in (folder, reference)
    )
    wrong = sum(name not in right or not same_content(path, right[name]) for name, path in now.items())
    return Counter(wrong=wrong, lost=len(right.keys() - now.keys()) if finished else 0)


def same_content(path: Path, other: Path) -> bool:
    """Return whether two files are the same to the byte, or to the tensor."""
    return path.read_bytes() == other.read_bytes() or (path.suffix == ".safetensors" and same_tensors(path, other))


def events(folder: Path) -> list[dict[str, object]]:
    """Return the log of a training without its times."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def start(run: Callable[[Path], object], folder: Path) -> int:
    """Run a command in a process of its own, which has everything imported already; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with open(os.devnull, "w") as nothing:
            sys.stdout = sys.stderr = nothing
            run(folder)
            code = 0
    except BaseException:
        sys.stderr = sys.__stderr__
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(run: Callable[[Path], object], folder: Path) -> float:
    """Run a command undisturbed; returns the seconds it takes."""
    begun = time.monotonic()
    _, status = os.waitpid(start(run, folder), 0)
    if status:
        raise SystemExit(f"The command failed by itself, with status {status}.")
    return time.monotonic() - begun


def kill(run: Callable[[Path], object], folder: Path, seconds: float, rng: np.random.Generator) -> bool:
    """Run a command and kill it at a random time or, half of the time, while it writes; was it still running?"""
    child = start(run, folder)
    deadline = time.monotonic() + rng.uniform(0, 1.05 * seconds)
    writing = rng.random() < 0.5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline and (not writing or any(folder.rglob("*.part"))):
            os.kill(child, signal.SIGKILL)
            return os.WIFSIGNALED(os.waitpid(child, 0)[1])
        time.sleep(0.0005)
    return False


def torment(command: Command, place: Path, kills: int, rng: np.random.Generator) -> Counter[str]:
    """Kill a command so many times, checking after each; a folder that gets finished is followed by a fresh one."""
    reference, counts, number = place / "reference", Counter[str](), 0
    command.prepare(reference)
    seconds = finish(command.run, reference)
    while counts["kills"] < kills:
        folder = place / str(number)
        if not folder.exists():
            command.prepare(folder)
        killed = kill(command.run, folder, seconds, rng)
        counts["kills"] += killed
        counts += command.faults(folder, reference, not killed)
        number += not killed
        for part in list(folder.rglob("*.part")):  # so that the next one seen is being written
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    if (place / str(number)).exists():
        finish(command.run, place / str(number))
        counts += command.faults(place / str(number), reference, True)
    return counts


def main() -> int:
    """Kill every command and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="over all commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", help="this one alone; may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (inputs := Path(folder) / "inputs").mkdir()
        commands = Bench(inputs).commands()
        names = options.command or list(commands)
        print(f"{'command':<10}" + "".join(f"{title:>12}" for title in TITLES))
        for number, name in enumerate(names):
            share = (options.kills + number) // len(names)
            (place := Path(folder) / name).mkdir()
            counts = torment(commands[name], place, share, np.random.default_rng([options.seed, number]))
            total += counts
            print(f"{name:<10}" + "".join(f"{counts[title]:>12}" for title in TITLES), flush=True)
    print(f"{'all':<10}" + "".join(f"{total[title]:>12}" for title in TITLES))
    return int(any(total[title] for title in TITLES[1:]))


if __name__ == "__main__":
    sys.exit(main())
