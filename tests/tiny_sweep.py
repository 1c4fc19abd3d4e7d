"""A tiny sweep, which the tests run and a program of theirs runs to be killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import ssmprune as sp
import tiny_data
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.sweeps.store import Results
from ssmprune.sweeps.sweeping import Session, Sweep, entries, sweep
from ssmprune.tasks.cards import write_card

PLAN = Sweep(methods=["last", "random", "surgeon", "unstructured-random"], ratios=[0.5, 1.0], seeds=[0, 1], examples=20)
SPEECH = Config("s5", inputs=1, outputs=3, width=4, states=(4, 4), norm="layer", step_min=1e-4)


def write_models(root: Path) -> Path:
    """Fill a folder with data and three checkpoints with cards."""
    tiny_data.write_mnist(root)
    tiny_data.write_speech(root)
    torch.manual_seed(0)
    mnist = Config("s5", inputs=1, outputs=10, width=4, states=(6, 6), norm="layer")
    models = {"one": (mnist, "smnist"), "two": (replace(mnist, family="s4d", states=(12, 12)), "smnist")}
    for name, (config, task) in {**models, "spoken": (SPEECH, "speech")}.items():
        sp.save(Classifier(config), root / f"{name}.safetensors")
        write_card(
            root / f"{name}.safetensors", {"task": task, "task_parameters": {}, "seed": 0, "model": config.family}
        )
    return root


def swept(root: Path, out: Path, plan: Sweep = PLAN, names: tuple[str, ...] = ("one",), **session) -> Results:
    return sweep(entries([root / f"{name}.safetensors" for name in names]), plan, out, Session(root, **session))
