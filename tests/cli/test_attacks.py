"""What once went wrong under attack: damaged neighbours, links, closed pipes, numbers out of range."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.files import load_tensors, save_tensors
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.sweeps.store import open_results
from ssmprune.tasks import cards
from tiny_results import tiny_results

SIZES = {"inputs": 1, "outputs": 10, "width": 6, "states": (8, 8)}
BAD_CARDS = {
    "text": "{",
    "a list": "[]",
    "a list for a task": '{"task": ["x"]}',
    "a number for a task": '{"task": 3}',
    "parameters that are none": '{"task": "text", "task_parameters": ["length"]}',
    "a text for a number": '{"task": "text", "task_parameters": {"length": "1024"}}',
    "depth": "[" * 100_000,
}


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "model.safetensors"
    sp.save(Classifier(Config("s5", **SIZES)), path)
    sp.make_plan(sp.read(sp.load(path)), 0.5).save(tmp_path / "plan.safetensors")
    return path


@pytest.mark.parametrize("card", BAD_CARDS.values(), ids=BAD_CARDS)
@pytest.mark.parametrize("words", [("--ratio", "0.5", "--plan", "new.plan"), ("--from-plan", "plan.safetensors")])
def test_a_damaged_card_is_noticed_before_anything_is_written(ssmprune, model, tmp_path, monkeypatch, words, card):
    monkeypatch.chdir(tmp_path)
    cards.card_path(model).write_text(card)
    before = sorted(tmp_path.iterdir())
    result = ssmprune("prune", model, *words, "--out", tmp_path / "out.safetensors")
    assert result.returncode == 2
    assert "model.card.json" in result.stderr.replace("\n", "")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("card", BAD_CARDS.values(), ids=BAD_CARDS)
def test_no_command_fails_on_a_damaged_card_otherwise_than_by_saying_so(ssmprune, model, tmp_path, card):
    cards.card_path(model).write_text(card)
    assert ssmprune("evaluate", model, "--task", "smnist", "--json").returncode in (0, 2)
    assert ssmprune("sweep", model, "--out", tmp_path / "out", "--methods", "last").returncode == 2


def change_about(about):
    """Every way in which one entry of a sweep.json is missing or of another type."""
    for name in about:
        yield f"no {name}", {key: value for key, value in about.items() if key != name}
        for wrong in (["x"], {"x": 1}, "x", -1, float("nan"), None, [[0.5]], [{}]):
            yield f"{name} {wrong}", about | {name: wrong}
    entry = about["checkpoints"][0]
    for name in entry:
        yield f"checkpoint without {name}", about | {"checkpoints": [{k: v for k, v in entry.items() if k != name}]}
        for wrong in (["x"], {"x": 1}, 3, "../x", None):
            yield f"checkpoint's {name} {wrong}", about | {"checkpoints": [entry | {name: wrong}]}


@pytest.mark.slow
def test_any_entry_of_a_sweep_may_be_damaged(ssmprune, tmp_path):
    folder = tiny_results(tmp_path, models=("s5",)).folder
    about = json.loads((folder / "sweep.json").read_text())
    codes = {}
    for name, changed in change_about(about):
        (folder / "sweep.json").write_text(json.dumps(changed))
        codes[name] = ssmprune("report", folder, "--out", tmp_path / "page.html").returncode
    assert {name: code for name, code in codes.items() if code not in (0, 2)} == {}
    assert codes["no examples"] == 2
    assert sum(code == 2 for code in codes.values()) > len(codes) / 2


@pytest.mark.slow
def test_any_entry_of_a_cell_may_be_damaged(ssmprune, tmp_path):
    folder = tiny_results(tmp_path, models=("s5",)).folder
    lines = (folder / "cells.jsonl").read_text().splitlines()
    cell, codes = json.loads(lines[-1]), {}
    for name in cell:
        for wrong in (["x"], {"x": 1}, "../x", -1, 1e9, None, float("inf")):
            (folder / "cells.jsonl").write_text("\n".join([*lines[:-1], json.dumps(cell | {name: wrong}), ""]))
            codes[name, str(wrong)] = ssmprune("report", folder, "--out", tmp_path / "page.html").returncode
    assert {name: code for name, code in codes.items() if code not in (0, 2)} == {}
    assert codes["checkpoint", "../x"] == codes["states", "['x']"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "empty", "another file", "another plan", "flipped"])
def test_a_report_refuses_a_damaged_plan(ssmprune, tmp_path, damage):
    folder = tiny_results(tmp_path).folder
    path = folder / "plans" / "tiny-s5" / "last-0.5-0.safetensors"
    content = path.read_bytes()
    damaged = {
        "cut": content[:100],
        "empty": b"",
        "another file": b"\xff" * 300,
        "another plan": (folder / "plans" / "tiny-s4d" / "last-0.5-0.safetensors").read_bytes(),
        "flipped": content[:-1] + bytes([content[-1] ^ 1]),
    }
    path.write_bytes(damaged[damage])
    assert ssmprune("report", folder, "--out", tmp_path / "page.html").returncode == 2
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("kind", ["int64", "float32", "bool"])
def test_a_plan_whose_C_is_of_another_type_is_refused(model, tmp_path, kind):
    path = tmp_path / "refitted.safetensors"
    sp.make_plan(sp.read(sp.load(model)), 0.5, sp.SURGEON).save(path)
    tensors, about = load_tensors(path)
    (name,) = [name for name in tensors if name.startswith("C/layers.0")]
    save_tensors(path, tensors | {name: tensors[name].astype(kind)}, about)
    with pytest.raises(sp.InputError, match="not a whole plan"):
        sp.Plan.load(path)


@pytest.mark.slow
def test_the_same_model_is_the_same_file(model, tmp_path):
    """In another process, too: dictionaries with another order of hashes once gave other bytes."""
    code = f"import ssmprune as sp; sp.save(sp.load({str(model)!r}), {str(tmp_path / 'again.safetensors')!r})"
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        assert (tmp_path / "again.safetensors").read_bytes() == model.read_bytes()


def test_a_link_to_write_to_stays_a_link(ssmprune, model, tmp_path):
    (tmp_path / "store").mkdir()
    link, target = tmp_path / "latest.safetensors", tmp_path / "store" / "small.safetensors"
    link.symlink_to(target)  # to nothing yet
    for _ in range(2):
        assert ssmprune("prune", model, "--ratio", "0.5", "--out", link).returncode == 0
        assert link.is_symlink()
        assert sum(sp.load(target).config.states) == 8
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    assert ssmprune("prune", model, "--ratio", "0.5", "--out", loop).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("end", ["closed", "read by nobody"])
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "json"])
def test_nobody_has_to_listen(model, tmp_path, end, words):
    """The model is written, so the command has done its work, whether or not its table could be printed."""
    out = tmp_path / "small.safetensors"
    command = [sys.executable, "-m", "ssmprune", "prune", str(model), "--ratio", "0.5", "--out", str(out), *words]
    if end == "closed":
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.exists()


def test_a_full_standard_output_is_told_and_files_stay(model, tmp_path):
    """The model is written; the exit code says that its report is not."""
    for name, words in {"a": [], "b": ["--json"]}.items():
        out = tmp_path / f"{name}.safetensors"
        line = [sys.executable, "-m", "ssmprune", *words, "prune", str(model), "--ratio", "0.5", "--out", str(out)]
        with open("/dev/full", "w") as full:
            done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        told = "Error: Standard output: No space left on device. The result is not shown; files were written before"
        assert told in done.stderr
        sp.load(out)


def test_a_full_standard_error_does_not_change_the_exit_code(tmp_path):
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "ssmprune", "inspect", str(tmp_path / "none")]
        assert subprocess.run(line, stderr=full).returncode == 2


@pytest.mark.parametrize("states", [(8, 0, 8), (0, 0)])
def test_a_layer_without_states_is_silent(ssmprune, tmp_path, states):
    model, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    whole = Classifier(Config("s4d", inputs=3, outputs=2, width=4, states=states))
    sp.save(whole, model)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 30, 3)).astype(np.float32))
    data, to = ("--calibrate", tmp_path / "x.npy"), ("--out", out)
    for words in (
        ("inspect", model),
        ("prune", model, "--ratio", "0.5", *data, "--certify", *to),
        ("prune", model, "--max-energy", "0.1", *to),
        ("prune", model, "--max-energy", "0.1", *data, *to),
        ("prune", model, "--ratio", "0.5", "--method", "surgeon", "--floor", "channel", *to),
        ("quantize", model, *data, "--bits", "4", *to),
    ):
        done = ssmprune(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert "layers.1.ssm" in ssmprune("inspect", out).stdout


def test_sweep_refuses_a_name_that_it_could_not_read_again(ssmprune, model, tmp_path):
    odd = tmp_path / "a\\b.safetensors"
    model.rename(odd)
    done = ssmprune("sweep", odd, "--task", "smnist", "--out", tmp_path / "out", "--methods", "last")
    assert done.returncode == 2
    assert r"by a name without slashes; rename 'a\\b'" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_damaged_line_of_cells_is_told_before_sweep_json_is_written(tmp_path):
    results = tiny_results(tmp_path / "sweep")
    (results.folder / "cells.jsonl").write_text("{\n")
    before = (results.folder / "sweep.json").read_bytes()
    with (
        pytest.raises(sp.InputError, match=r"Line 1 of .*cells\.jsonl is not a cell"),
        open_results(results.folder, {**results.about, "date": "1999-01-01"}),
    ):
        pass
    assert (results.folder / "sweep.json").read_bytes() == before
