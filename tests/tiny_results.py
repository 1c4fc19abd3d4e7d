"""A folder of sweep results with tiny models: made in a second, everything in it that figures and report show."""

import json
import re
import shutil
from dataclasses import replace

import torch

import ssmprune as sp
from ssmprune.core import white_noise
from ssmprune.methods import named
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.sweeps import store as sweeps

RATIOS = [0.25, 0.5, 0.75]
METHODS = ["last", "global-hinf", "random", "surgeon", "unstructured-random"]


def tiny_results(folder, models=("s5", "s4d")):
    """Write checkpoints and results below `folder`; the accuracies are made up, the plans are real."""
    torch.manual_seed(0)
    files = {family: folder / f"tiny-{family}.safetensors" for family in models}
    for family, file in files.items():
        sp.save(Classifier(Config(family, inputs=3, outputs=2, width=4, states=(8, 12))), file)
    about = {
        "format": sweeps.FORMAT,
        "version": sweeps.VERSION,
        "checkpoints": [
            {"name": file.stem, "file": str(file), "family": family, "stored_states": 20, "task": "smnist"}
            for family, file in files.items()
        ],
        "methods": METHODS,
        "ratios": RATIOS,
        "seeds": [0, 1],
        "examples": 40,
        "split": "test",
        "machine": "a machine",
        "commands": ["ssmprune sweep"],
        "date": "2026-01-01",
    }
    with sweeps.open_results(folder / "results", about) as writer:
        for file in files.values():
            _fill(writer, file)
    return sweeps.Results.read(folder / "results")


def _fill(writer, file):
    systems = sp.read(sp.load(file))
    before = {layer: system.states for layer, system in systems.items()}

    def add(method, ratio, seed, accuracy, plan=None, **changes):
        kept = {row["layer"]: row["kept"] for row in plan.rows()} if plan else before
        states = {layer: kept[layer] for layer in before}
        about = {"split": "test", "examples": 40, "rate": 1.0} | changes
        cell = sweeps.Cell(
            file.stem, "smnist", method, ratio, seed, **about, accuracy=accuracy, loss=1.0, states=states,
            states_before=before, parameters=100 + sum(states.values()), parameters_before=100 + sum(before.values()),
            speed=1 + ratio if method == "last" else None,
        )  # fmt: skip
        writer.write(cell.key, cell, plan)

    add("full", 0.0, 0, 0.95)
    add("full", 0.0, 0, 0.01, examples=10_000)  # cells that no curve may show
    add("full", 0.0, 0, 0.01, examples=20)
    add("last", 0.5, 0, 0.01, examples=20)
    add("last", 0.5, 0, 0.01, split="val")
    add("last", 0.5, 0, 0.01, rate=0.5)
    noise = {layer: white_noise(system) for layer, system in systems.items()}
    for number, method in enumerate(METHODS):
        for ratio in RATIOS:
            for seed in (0, 1) if method == "random" else (0,):
                add(method, ratio, seed, 0.95 - ratio * (number + seed) / 5, _plan(method, systems, noise, ratio, seed))


def _plan(method, systems, noise, ratio, seed):
    if method == "unstructured-random":
        return None
    return sp.make_plan(systems, ratio, named()[method], moments=noise, seed=seed)


def renamed(results, folder, name):
    """The results of a sweep whose checkpoint, task and machine are called `name` (the checkpoint without slashes)."""
    plain = re.sub(r"[/\\]", "", name)
    shutil.copytree(results.folder, folder)
    about = json.loads((folder / "sweep.json").read_text())
    (entry,) = about["checkpoints"]
    old = entry["name"]
    entry |= {"name": plain, "task": name}
    about |= {"machine": name, "commands": [name], "date": name}
    (folder / "sweep.json").write_text(json.dumps(about))
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    new = [json.dumps(line | {"checkpoint": plain, "task": name}) + "\n" for line in lines]
    (folder / "cells.jsonl").write_text("".join(new))
    if name.isascii():
        shutil.move(folder / "plans" / old, folder / "plans" / plain)
    return sweeps.Results.read(folder)


def with_cells(results, cells):
    """The same results with other cells."""
    return replace(results, outcomes={cell.key: cell for cell in cells})
