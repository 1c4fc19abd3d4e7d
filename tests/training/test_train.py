"""The trainer on a toy task: groups, schedule, resuming to the bit, several processes, divergence."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ssmprune.errors import InputError
from ssmprune.models import checkpoint
from ssmprune.models.classifier import Classifier
from ssmprune.recovery.resume import State
from ssmprune.tasks.task import Split, fewer
from ssmprune.training import Diverged, Run, distributed, evaluate, train
from ssmprune.training.loop import Position
from ssmprune.training.recipes import parameter_groups, warmup_cosine
from toy import PATIENCE, RECIPE, TOY, Toy, events, fit, same

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "programs" / "train_toy.py"


def as_script(*arguments: str | Path, processes: int = 1) -> subprocess.Popen:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *launcher, str(PROGRAM), *map(str, arguments)], env=environment)


def test_training_learns_and_keeps_the_best_and_the_last_model(tmp_path, capfd):
    result = fit(tmp_path, dataclasses.replace(RECIPE, epochs=8), progress=True)
    assert result.finished
    assert result.steps == 8 * 160 // 8
    validations = events(tmp_path, "validation")
    assert result.best_accuracy == max(event["accuracy"] for event in validations) > 0.8
    seen = evaluate(checkpoint.load(result.best), TOY.load("val", tmp_path))
    assert seen.accuracy == result.best_accuracy
    assert evaluate(checkpoint.load(result.last), TOY.load("val", tmp_path)).loss == pytest.approx(
        validations[-1]["loss"]
    )
    shown = capfd.readouterr()
    assert "epoch 8: validation loss" in shown.err
    assert shown.out == ""


def test_the_ssm_parameters_have_their_own_rate_and_no_decay():
    model = Classifier(RECIPE.config(TOY, 1, 2))
    names = {parameter: name for name, parameter in model.named_parameters()}
    ssm, rest = parameter_groups(model, RECIPE)
    leaves = ("B", "log_step", "pole_im", "pole_re")
    assert sorted(names[p] for p in ssm["params"]) == [f"layers.{i}.ssm.{leaf}" for i in range(2) for leaf in leaves]
    assert (ssm["lr"], ssm["weight_decay"], rest["lr"], rest["weight_decay"]) == (0.002, 0.0, 0.01, 0.05)
    assert {id(p) for p in ssm["params"] + rest["params"]} == {id(p) for p in model.parameters()}
    assert {"layers.0.ssm.C", "layers.0.ssm.D"} <= {names[p] for p in rest["params"]}


def test_the_rate_rises_linearly_and_falls_as_a_cosine():
    shares = [warmup_cosine(step, 100, 10) for step in range(100)]
    assert np.allclose(shares[:10], np.arange(1, 11) / 10)
    assert np.allclose(shares[10:], (1 + np.cos(np.pi * np.arange(90) / 90)) / 2)


def test_seeds_decide_everything(tmp_path):
    runs = [fit(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    a, b, c = (run.last for run in runs)
    assert same(a, b)
    assert not same(a, c)


def test_a_training_killed_anywhere_resumes_to_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    steps = random.Random(5).randrange(1, 200)  # of 240
    reference, victim = as_script("long", whole), as_script("long", killed)
    deadline = time.monotonic() + PATIENCE
    while victim.poll() is None and time.monotonic() < deadline and not reached(killed, steps):
        time.sleep(0.001)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL, "the training was over before it could be killed"
    assert as_script("long", killed).wait(PATIENCE) == 0
    assert reference.wait(PATIENCE) == 0
    for file in ("last.safetensors", "best.safetensors", "state.safetensors"):
        assert same(killed / file, whole / file), f"killed after step {steps}"
    for kind in ("train", "pruning"):
        timeless = [[event | {"seconds": 0} for event in events(folder, kind)] for folder in (whole, killed)]
        assert timeless[0] == timeless[1] != []
    assert events(whole, "pruning")[-1]["states"] == [1, 1]


def reached(run_dir: Path, step: int) -> bool:
    log = run_dir / "log.jsonl"
    lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")] if log.exists() else []
    return bool(lines) and json.loads(lines[-1])["step"] >= step


def test_a_training_asked_to_stop_saves_and_the_same_call_resumes(tmp_path):
    whole = fit(tmp_path / "whole")
    reads = iter(range(10_000))

    class Interrupting(Toy):
        def read(self, split: str, root: Path) -> Split:
            plain = super().read(split, root)

            def read(rows):
                if next(reads) == 11:
                    signal.raise_signal(signal.SIGTERM)
                return plain.read(rows)

            return dataclasses.replace(plain, read=read)

    task = Interrupting()
    run = Run(tmp_path / "run", save_every=1000, progress=False)
    assert not (stopped := train(task, RECIPE, run)).finished
    assert stopped.steps == 12
    assert (resumed := train(task, RECIPE, run)).finished
    assert same(resumed.last, whole.last)


def test_another_training_in_the_folder_is_refused(tmp_path):
    fit(tmp_path)
    with pytest.raises(InputError, match="recipe"):
        fit(tmp_path, dataclasses.replace(RECIPE, lr=0.5))
    (tmp_path / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="Cannot read"):
        fit(tmp_path)


def test_two_processes_have_the_loss_curve_of_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    together = as_script("curves", two, processes=2)
    assert as_script("curves", one).wait(PATIENCE) == 0
    assert together.wait(PATIENCE) == 0
    for norm in ("layer", "batch"):
        curves = [[event["loss"] for event in events(run / norm, "train")] for run in (one, two)]
        assert len(curves[0]) == 20
        assert np.abs(np.subtract(*curves)).max() < 1e-4
        counts = [events(run / norm, "validation")[0]["examples"] for run in (one, two)]
        assert counts == [40, 40]
        alone, shared = (load_file(run / norm / "last.safetensors") for run in (one, two))
        assert all(torch.allclose(alone[name], shared[name], atol=1e-4) for name in alone)


def test_fine_tuning_starts_from_the_model_given_and_leaves_it_alone(tmp_path):
    first = fit(tmp_path / "first")
    start = checkpoint.load(first.last)
    before = {name: value.clone() for name, value in start.state_dict().items()}
    tuned = fit(
        tmp_path / "tuned", dataclasses.replace(RECIPE, epochs=1, lr=1e-9, ssm_lr=1e-9, norm="batch"), start=start
    )
    assert all(torch.equal(before[name], value) for name, value in start.state_dict().items())
    after = checkpoint.load(tuned.last).state_dict()
    moved = [
        name for name in before if "running" not in name and not torch.allclose(before[name], after[name], atol=1e-6)
    ]
    assert moved == []


def test_a_parameter_that_is_not_finite_is_named(tmp_path):
    start = Classifier(RECIPE.config(TOY, 1, 2))
    with torch.no_grad():
        start.layers[1].ssm.C[0, 3, 2, 0] = float("nan")
    with pytest.raises(Diverged, match=r"step 0: the parameter layers\.1\.ssm\.C is not finite"):
        fit(tmp_path, start=start)
    assert events(tmp_path, "diverged")[0]["where"] == "the parameter layers.1.ssm.C"


def test_a_layer_whose_output_overflows_is_named(tmp_path):
    start = Classifier(RECIPE.config(TOY, 1, 2))
    with torch.no_grad():
        start.layers[1].ssm.C.fill_(3e38)
    with pytest.raises(Diverged, match=r"the output of layers\.1\.ssm is not finite.*lower learning rate"):
        fit(tmp_path, start=start)


def test_fewer_examples_are_a_fixed_random_part():
    whole = TOY.load("train")
    part = fewer(whole, 100)
    assert len(part) == 100
    assert np.array_equal(part.labels, fewer(TOY.load("train"), 100).labels)
    assert not np.array_equal(part.labels, whole.labels[:100])
    assert fewer(whole, 1000) is whole


def test_a_batch_that_cannot_be_filled_is_refused(tmp_path):
    with pytest.raises(InputError, match="160 training examples do not fill a batch of 200"):
        fit(tmp_path, dataclasses.replace(RECIPE, batch=200))


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "Group", partial(distributed.Group, size=3))
    with pytest.raises(InputError, match="3 processes cannot share a batch of"):
        fit(tmp_path, dataclasses.replace(RECIPE, batch=20))


@pytest.mark.parametrize(
    "moments", [{"exp_avg": torch.zeros(2, 3)}, {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2)}]
)
def test_moments_that_do_not_fit_their_parameter_are_refused(moments):
    model = torch.nn.Linear(3, 2)
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    saved = State(Position(), tensors | {f"adam/weight/{name}": tensor for name, tensor in moments.items()})
    with pytest.raises(InputError, match="moments of weight do not fit"):
        saved.restore(model, torch.optim.AdamW(model.parameters()))
