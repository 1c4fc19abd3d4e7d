"""Sweeps on a tiny model: what is evaluated, resuming, other runners."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from calibrated import refit_on_data
from ssmprune import registry, tasks
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.sweeps import approaches, runners, sweeping
from ssmprune.sweeps.store import FULL, Key, Results, open_results
from ssmprune.sweeps.sweeping import Session, Sweep, entries, load_subject, sweep
from ssmprune.tasks.task import fewer
from ssmprune.training import evaluate
from tiny_sweep import SPEECH, swept, write_models

PROGRAM = Path(__file__).parents[1] / "programs" / "sweep_tiny.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with data and three checkpoints with cards."""
    return write_models(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def results(root) -> Results:
    return swept(root, root / "results", names=("one", "two"))


def test_each_method_ratio_and_seed_has_a_cell(results):
    wanted = [(FULL, 0.0, 0)]
    for ratio in (0.5, 1.0):
        wanted += [("last", ratio, 0), ("surgeon", ratio, 0)]
        wanted += [(name, ratio, seed) for name in ("random", "unstructured-random") for seed in (0, 1)]
    for checkpoint in ("one", "two"):
        found = [(cell.method, cell.ratio, cell.seed) for cell in results.cells if cell.checkpoint == checkpoint]
        assert sorted(found) == sorted(wanted)
    assert {cell.examples for cell in results.cells} == {20}
    assert results.about["checkpoints"][1]["card"]["model"] == "s4d"


@pytest.mark.slow
def test_compiled_cells_have_the_same_answers(root, tmp_path, results):
    plan = Sweep(methods=["last"], ratios=[0.5], examples=20)
    compiled = swept(root, tmp_path / "out", plan, names=("one", "two"), engine="compiled")
    assert len(compiled.cells) == 4
    for cell in compiled.cells:
        in_torch = results.by_key[cell.key]
        assert replace(cell, loss=0.0) == replace(in_torch, loss=0.0)
        assert cell.loss == pytest.approx(in_torch.loss, rel=1e-5)


@pytest.mark.slow
def test_a_cell_has_the_accuracy_of_the_model_shrunk_by_its_plan(root, results):
    split = fewer(tasks.get("smnist").load("test", root), 20)
    for cell in results.cells:
        model = sp.load(results.checkpoint_file(cell.checkpoint))
        if cell.method in ("last", "surgeon"):
            model = sp.shrink(model, results.plan(cell))
        if cell.method in ("last", "surgeon", FULL):
            assert (evaluate(model, split).accuracy, sum(cell.states.values())) == (
                cell.accuracy,
                2 * sum(model.config.states),
            )


@pytest.mark.parametrize(("steps", "sequences"), [(10**6, 20), (784 * 7, 7), (784, 4)])
def test_long_sequences_calibrate_by_their_steps(root, monkeypatch, steps, sequences):
    monkeypatch.setattr(sweeping, "CALIBRATION_STEPS", steps)
    monkeypatch.setattr(sweeping, "FEW", 4)
    subject = load_subject(*entries([root / "one.safetensors"]), calibration=20, root=root)
    assert sum(len(batch.x) for batch in subject.calibration) == sequences


@pytest.mark.slow
def test_approaches_make_the_plans_of_the_library(root):
    subject = load_subject(*entries([root / "one.safetensors"]), calibration=200, root=root)
    systems = sp.read(subject.model, unstable="keep")
    expected = {
        "last": sp.make_plan(systems, 0.5),
        "surgeon": refit_on_data(
            sp.make_plan(systems, 0.5, sp.SURGEON, moments=sp.collect(subject.model, subject.calibration)),
            subject.model,
            subject.calibration,
        ),
        "surgeon-without-data": sp.make_plan(systems, 0.5, sp.SURGEON),
        "last+refit": refit_on_data(sp.make_plan(systems, 0.5), subject.model, subject.calibration),
    }
    for name, plan in expected.items():
        model, made = approaches.get(name).prune(subject, 0.5, 0, None)
        assert not any(plan.difference(made).values())
        for layer, C in plan.C.items():
            assert np.allclose(C, made.C[layer])
            assert np.allclose(plan.D_change[layer], made.D_change[layer])
        assert sum(model.config.states) == sum(int(keep.sum()) for keep in plan.keep.values())


def test_a_finished_sweep_repeats_nothing_and_a_larger_sweep_adds_cells(root, tmp_path, monkeypatch):
    first = swept(root, tmp_path, Sweep(methods=["last"], ratios=[0.5], examples=10))
    ran, run = [], runners.run
    monkeypatch.setattr(runners, "run", lambda subject, job: ran.append(job.key) or run(subject, job))
    again = swept(root, tmp_path, Sweep(methods=["last"], ratios=[0.5], examples=10))
    assert (again.cells, ran) == (first.cells, [])
    more = swept(root, tmp_path, Sweep(methods=["lamp"], ratios=[1.0], examples=10), names=("one", "two"))
    assert [(key.checkpoint, key.method, key.ratio) for key in ran] == [
        ("one", "lamp", 1.0),
        ("two", FULL, 0.0),
        ("two", "lamp", 1.0),
    ]
    assert more.about["methods"] == ["last", "lamp"]
    assert more.about["ratios"] == [0.5, 1.0]
    assert [entry["name"] for entry in more.about["checkpoints"]] == ["one", "two"]


@pytest.mark.slow
def test_a_killed_and_resumed_sweep_has_the_cells_of_an_undisturbed_sweep(root, tmp_path, results):
    chance = random.Random(3)
    for _ in range(2):
        victim = as_script(root, tmp_path)
        enough, deadline = count(tmp_path) + chance.randint(1, 4), time.monotonic() + 120
        while victim.poll() is None and count(tmp_path) < enough and time.monotonic() < deadline:
            time.sleep(0.001)
        victim.kill()
        victim.wait()
    with (tmp_path / "cells.jsonl").open("a") as lines:
        lines.write('{"checkpoint": "one", "met')  # torn, as by a loss of power
    assert as_script(root, tmp_path).wait(240) == 0
    alone, found = (
        {key: cell for key, cell in results.by_key.items() if key.checkpoint == "one"},
        Results.read(tmp_path),
    )
    assert count(tmp_path) == len(found.cells) == len(alone)  # no cell was done twice
    for key, cell in alone.items():
        assert found.by_key[key] == replace(cell, loss=pytest.approx(cell.loss))


def count(folder: Path) -> int:
    lines = folder / "cells.jsonl"
    return lines.read_text().count("\n") if lines.exists() else 0


def as_script(root: Path, out: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(PROGRAM), str(root), str(out)])


def test_two_sweeps_cannot_write_to_one_folder(root, tmp_path):
    about = {"format": "ssmprune-sweep", "version": 1, "examples": 5, "split": "test"}
    about |= {name: [] for name in ("checkpoints", "methods", "ratios", "seeds")}
    with open_results(tmp_path, about), pytest.raises(sp.InputError, match="Another sweep"):
        swept(root, tmp_path)


def test_another_checkpoint_of_the_same_name_is_refused(root, tmp_path):
    small = Sweep(methods=["last"], ratios=[0.5], examples=5)
    swept(root, tmp_path / "out", small)
    sp.save(Classifier(Config("s5", inputs=1, outputs=10, width=4, states=(2,))), tmp_path / "one.safetensors")
    with pytest.raises(sp.InputError, match="another checkpoint called 'one'"):
        sweep(entries([tmp_path / "one.safetensors"], "smnist"), small, tmp_path / "out", Session(root))


def test_answers_are_those_of_the_shrunk_model(root, results):
    split = fewer(tasks.get("smnist").load("test", root), 20)
    cell = results.by_key[Key("one", "last", 0.5, 0, "test", 20, 1.0)]
    model = sp.shrink(sp.load(root / "one.safetensors"), results.plan(cell))
    batch = split.batch(np.arange(20))
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(batch.x))
    assert cell.right == runners.pack(logits.argmax(-1).numpy() == batch.y)


def test_a_refusal_is_recorded_and_not_tried_again(root, tmp_path, monkeypatch):
    def refuse(*_):
        raise sp.InputError("no such model")

    monkeypatch.setattr(approaches, "get", lambda name: approaches.Rebuild(name, refuse))
    plan = Sweep(methods=["last"], ratios=[0.5, 1.0], examples=5)
    found = swept(root, tmp_path, plan)
    assert {cell.method for cell in found.cells} == {FULL}
    assert [outcome for outcome in found.outcomes.values() if isinstance(outcome, str)] == ["no such model"] * 2
    assert swept(root, tmp_path, plan).outcomes == found.outcomes


@pytest.mark.slow
def test_two_ray_workers_find_the_same_cells(root, tmp_path, results):
    with runners.start(2) as ray:
        found = swept(root, tmp_path, names=("one", "two"), runner=ray)
    assert found.by_key.keys() == results.by_key.keys()
    for key, cell in results.by_key.items():
        assert found.by_key[key] == replace(cell, loss=pytest.approx(cell.loss))


@pytest.mark.slow
def test_ray_workers_know_an_approach_from_a_file(root, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_files", {})
    file = tmp_path / "mine.py"
    file.write_text(
        "import ssmprune as sp\nfrom ssmprune.sweeps import Rebuild\n"
        "APPROACH = Rebuild('mine', lambda model, ratio, seed: sp.prune(model, ratio))\n"
    )
    registry.add_module(file)
    with runners.start(1) as ray:
        found = swept(root, tmp_path / "out", Sweep(methods=["mine"], ratios=[0.5], examples=5), runner=ray)
    assert [cell.method for cell in found.cells] == [FULL, "mine"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["lost"]}, "no approach 'lost'"),
        ({"ratios": [0.0]}, "above 0"),
        ({"ratios": []}, "at least one"),
    ],
)
def test_wrong_sweeps_are_refused(options, message):
    with pytest.raises(sp.InputError, match=message):
        Sweep(**options)


def test_files_of_the_same_name_get_the_names_of_their_folders(root, tmp_path):
    for folder in ("a/run", "b/run", "c"):
        (tmp_path / folder).mkdir(parents=True)
        for suffix in (".safetensors", ".card.json"):
            shutil.copy(root / f"one{suffix}", tmp_path / folder / f"best{suffix}")
    files = [tmp_path / folder / "best.safetensors" for folder in ("a/run", "b/run", "c")]
    swept = entries(files)
    assert [entry.name for entry in swept] == ["a-run-best", "b-run-best", "c-best"]
    results = sweep(swept, Sweep(methods=["last"], ratios=[0.5], examples=5), tmp_path / "out", Session(root))
    assert {cell.checkpoint for cell in results.cells} == {"a-run-best", "b-run-best", "c-best"}
    assert all(results.plan(cell.key) for cell in results.cells if cell.method == "last")


def test_wrong_checkpoints_and_folders_are_refused(root, tmp_path):
    with pytest.raises(sp.InputError, match="no checkpoint at"):
        entries([tmp_path / "none.safetensors"])
    sp.save(Classifier(SPEECH), tmp_path / "bare.safetensors")
    with pytest.raises(sp.InputError, match="--task"):
        entries([tmp_path / "bare.safetensors"])
    with pytest.raises(sp.InputError, match="every checkpoint once; given twice"):
        entries([root / "one.safetensors", root / "." / "one.safetensors"])
    with pytest.raises(sp.InputError, match=r"no sweep\.json"):
        Results.read(tmp_path)
