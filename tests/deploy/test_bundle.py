"""One line from a trained model to a folder with all its forms and a card: what is in it, and what refuses it."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune import budgets, tasks
from ssmprune.calibration.record import right_answers
from ssmprune.deploy import build, bundle
from ssmprune.deploy.compiled import forward
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.quantisation.quantise import quantize
from ssmprune.recovery import Recovery
from ssmprune.sweeps import timing
from ssmprune.tasks import cards
from ssmprune.training import evaluate
from tiny_data import write_mnist
from toy import TOY, same

pytestmark = pytest.mark.slow
CONFIG = {"inputs": 1, "outputs": 10, "width": 6, "states": (8, 8)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model with a card, its data, and a file of inputs."""
    place = tmp_path_factory.mktemp("bundle")
    torch.manual_seed(0)
    sp.save(Classifier(Config("s5", **CONFIG)), place / "digits.safetensors")
    cards.write_card(place / "digits.safetensors", {"task": "smnist", "task_parameters": {}, "model": "s5", "seed": 7})
    write_mnist(place)
    np.save(place / "x.npy", np.random.default_rng(0).normal(size=(4, 30, 1)))
    return place


@pytest.fixture
def no_graph(monkeypatch):
    """As if onnxscript, which takes its time, were not installed."""
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_line_prunes_quantises_and_writes_every_form(ssmprune, place, tmp_path):
    folder = tmp_path / "new" / "out"
    line = ("deploy", place / "digits.safetensors", "--ratio", 0.5, "--calibrate", "smnist", "--data", place)
    result = ssmprune(*line, "--sequences", 9, "--bits", 4, "--out", folder, "--json")
    assert result.returncode == 0, result.stderr
    assert names(folder) == [f"digits.{ending}" for ending in ("c", "card.json", "h", "onnx", "safetensors")]
    assert names(tmp_path / "new") == ["out"]

    model, batches = sp.load(place / "digits.safetensors"), sp.load(folder / "digits.safetensors")
    card, told = cards.read_card(folder / "digits.safetensors"), json.loads(result.stdout)
    assert told == card | {"out": str(folder)}
    assert {key: card[key] for key in ("task", "task_parameters", "model")} == {
        "task": "smnist",
        "task_parameters": {},
        "model": "s5",
    }
    assert card["files"] == {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix != ".json"}
    assert (card["before"]["states"], card["after"]["states"]) == (32, 16)
    assert card["history"] == list(batches.history)
    assert card["history"][1] == "quantised to 4 bits on 9 sequences"
    split = tasks.get("smnist").load("test", place)
    for when, seen in (("before", model), ("after", batches)):
        assert card[when]["accuracy"] == evaluate(seen, split).accuracy
        assert card[when]["examples"] == len(split) == 40
        assert card[when]["steps_per_second"] > 0
    assert card["after"]["checkpoint_bytes"] == (folder / "digits.safetensors").stat().st_size
    assert card["after"]["state_bytes"] == card["before"]["state_bytes"] - 2 * 8 * 4
    assert "digits_step" in (folder / "digits.h").read_text()


def test_the_table_shows_what_was_and_what_became(ssmprune, place, tmp_path, no_graph):
    line = ("deploy", place / "digits.safetensors", "--ratio", 0.5, "--calibrate", place / "x.npy")
    result = ssmprune(*line, "--data", place, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    for words in (
        "on 4 sequences; then quantised to 8 bits",
        "│ states │ 32 │ 16 │",
        "steps per second in C",
        "accuracy",
        f"│ digits.card.json │ {(tmp_path / 'out' / 'digits.card.json').stat().st_size:,} │",
    ):
        assert words in text
    first, *others = result.stderr.splitlines()
    assert first.startswith("Pruning ")
    assert "a few minutes" in first
    assert [line.split()[0] for line in others] == ["Looking", "Measuring", "Writing"]
    assert names(tmp_path / "out") == ["digits.c", "digits.card.json", "digits.h", "digits.safetensors"]


def test_states_and_features_go_and_the_model_learns_before_it_is_rounded(ssmprune, place, tmp_path, no_graph):
    folder = tmp_path / "out"
    line = ("deploy", place / "digits.safetensors", "--operations", 0.4, "--calibrate", "smnist", "--data", place)
    result = ssmprune(*line, "--recover", "--minutes", 0.05, "--out", folder, "--json")
    assert result.returncode == 0, result.stderr
    card = json.loads(result.stdout)
    pruned, recovered, rounded = card["history"]
    assert "features" in pruned
    assert recovered.startswith("recovered: ")
    assert rounded.startswith("quantised to 8 bits")
    assert card["after"]["width"] < card["before"]["width"] == 6
    low, high = card["after"]["interval"]
    assert low < card["after"]["accuracy"] < high
    assert not list(tmp_path.glob("*.recovery"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Say how far to prune"),
        (("--ratio", 0.5, "--recover"), "--recover learns from the inputs of --calibrate"),
        (("--operations", 0.5, "--certify"), "--certify compares layers"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_data_are_read(ssmprune, place, tmp_path, options, message):
    result = ssmprune("deploy", place / "digits.safetensors", *options, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert message in result.stderr
    assert names(tmp_path) == []


def test_certificates_are_those_of_the_rounded_model(ssmprune, place, tmp_path, no_graph):
    line = ("deploy", place / "digits.safetensors", "--ratio", 0.5, "--bits", 4, "--certify", "--data", place)
    result = ssmprune(*line, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "Gain of the error in each layer's output" in result.stdout
    told = cards.read_card(tmp_path / "out" / "digits.safetensors")["certificates"]
    before = sp.read(sp.load(place / "digits.safetensors"))
    after = sp.read(sp.load(tmp_path / "out" / "digits.safetensors"))
    assert told.keys() == before.keys()
    for layer, certificate in told.items():
        at = np.exp(1j * certificate["theta"])
        difference = frequency_response(before[layer], at) - frequency_response(after[layer], at)
        assert certificate["exact"] == pytest.approx(np.linalg.norm(difference, 2), rel=1e-4)
        assert certificate["exact"] <= certificate["bound"]


def frequency_response(system, z):
    """Return the transfer function of y_k = gain Re(C x_k) at one z."""
    halves = [C @ (B / (1 - poles / z)[:, None]) for poles, B, C in _and_conjugates(system)]
    return system.gain / 2 * sum(halves)


def _and_conjugates(system):
    parts = np.exp(system.log_poles), system.B, system.C[0]
    return parts, tuple(part.conj() for part in parts)


def test_a_loss_counts_quantising_as_well(ssmprune, tmp_path, monkeypatch, no_graph):
    model = tmp_path / "toy.safetensors"
    torch.manual_seed(0)
    sp.save(Classifier(Config("s5", inputs=1, outputs=2, width=6, states=(8, 8))), model)
    cards.write_card(model, {"task": "toy"})
    monkeypatch.setattr(tasks, "get", lambda name: {"toy": TOY}[name])
    line = ("deploy", model, "--max-loss", 20, "--bits", 4, "--data", tmp_path, "--out", tmp_path / "out")
    result = ssmprune(*line)
    assert result.returncode == 0, result.stderr
    split, whole = TOY.load("val", tmp_path), sp.load(model)
    everything = split.batch(np.arange(len(split)))
    batches = [(everything.x, everything.y)]
    goal = sp.max_loss(20, lambda seen: right_answers(batches, seen if seen is whole else quantize(seen, 4)))
    ratio = budgets.search([goal], sp.Pruning(whole)).ratio
    small = sp.load(tmp_path / "out" / "toy.safetensors")
    assert small.config.states == sp.prune(whole, ratio).config.states
    lost = evaluate(whole, split).accuracy - evaluate(small, split).accuracy
    assert lost <= 0.2 + 1e-9
    assert ratio > 0


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A command that deploys a model of the toy task within a loss, recovering it, to a new folder.

    The search ends at half the operations: what this task needs is soon all that is left.
    """
    monkeypatch.setattr(budgets, "upwards", lambda states: [states // 2])
    model, x = tmp_path / "toy.safetensors", tmp_path / "x.npy"
    torch.manual_seed(0)
    sp.save(Classifier(Config("s5", inputs=1, outputs=2, width=6, states=(8, 8))), model)
    cards.write_card(model, {"task": "toy"})
    np.save(x, np.random.default_rng(0).normal(size=(40, 12, 1)))
    monkeypatch.setattr(tasks, "get", lambda name: {"toy": TOY}[name])
    line = ("deploy", model, "--max-loss", 30, "--recover", "--minutes", 0.05, "--calibrate", x, "--data", tmp_path)
    return lambda folder: (*line, "--out", tmp_path / folder)


def test_what_was_recovered_is_pruned_further_while_the_budget_holds(ssmprune, toy, tmp_path, no_graph):
    result = ssmprune(*toy("out"))
    assert result.returncode == 0, result.stderr
    tried = re.findall(r"([\d,]+) parameters left after recovery", result.stderr)
    sizes = [int(size.replace(",", "")) for size in tried]
    assert 1 < len(sizes) <= 1 + len(budgets.STRIDES)
    assert sizes == sorted(set(sizes), reverse=True)
    stopped = "The model is kept as it was before." in " ".join(result.stderr.split())
    assert stopped or len(sizes) == 1 + len(budgets.STRIDES)
    card, small = cards.read_card(tmp_path / "out" / "toy.safetensors"), sp.load(tmp_path / "out" / "toy.safetensors")
    assert card["after"]["parameters"] == sizes[-2 if stopped else -1]
    assert [line.split()[0] for line in small.history][-2:] == ["recovered:", "quantised"]
    lost = float(re.search(r"points, at most (\S+) with", card["budgets"][0])[1])
    assert lost <= 30
    assert not list(tmp_path.glob("*.recovery*"))


def test_an_interrupted_chain_of_recoveries_finds_its_way_back(ssmprune, toy, tmp_path, monkeypatch, no_graph):
    assert ssmprune(*toy("whole")).returncode == 0
    run, calls = Recovery.run, []

    def interrupted(self, *arguments, **options):
        calls.append(self)
        outcome = run(self, *arguments, **options)
        return dataclasses.replace(outcome, finished=len(calls) < 2)

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "run", interrupted)
        assert ssmprune(*toy("out")).returncode == 130
    assert names(tmp_path)[:2] == ["out.recovery", "out.recovery1"]
    stale = (tmp_path / "out.recovery1").read_bytes()
    assert ssmprune(*toy("out")).returncode == 0
    assert not list(tmp_path.glob("*.recovery*"))
    assert same(tmp_path / "out" / "toy.safetensors", tmp_path / "whole" / "toy.safetensors")
    (tmp_path / "other.recovery1").write_bytes(stale)  # of another run, whose first recovery is no longer there
    assert ssmprune(*toy("other"), "--sequences", 30).returncode == 0
    assert not list(tmp_path.glob("*.recovery*"))


def test_a_budget_of_memory_is_that_of_the_rounded_model(ssmprune, place, tmp_path, no_graph):
    model = sp.load(place / "digits.safetensors")
    most = 1.01 * budgets.megabytes_of(quantize(model, 8))
    line = ("deploy", place / "digits.safetensors", "--max-memory", most, "--data", place, "--out", tmp_path / "out")
    result = ssmprune(*line)
    assert result.returncode == 0, result.stderr
    assert sp.load(tmp_path / "out" / "digits.safetensors").config.states == model.config.states
    (note,) = cards.read_card(tmp_path / "out" / "digits.safetensors")["budgets"]
    assert note.startswith(f"max_memory {most:g} holds without pruning")
    assert note in " ".join(result.stdout.split())


def test_budgets_weigh_states_against_features_where_there_are_inputs(ssmprune, place, tmp_path, no_graph):
    model = sp.load(place / "digits.safetensors")
    most = 0.6 * budgets.megabytes_of(quantize(model, 8))
    line = ("deploy", place / "digits.safetensors", "--max-memory", most, "--calibrate", place / "x.npy")
    narrowed = {}
    for name, more in {"both": (), "auto": ("--width", "auto"), "states": ("--width", 0)}.items():
        result = ssmprune(*line, *more, "--data", place, "--out", tmp_path / name)
        assert result.returncode == 0, result.stderr
        narrowed[name] = sp.load(tmp_path / name / "digits.safetensors").config
    assert narrowed["both"] == narrowed["auto"]
    assert narrowed["both"].width < narrowed["states"].width == model.config.width
    assert sum(narrowed["both"].states) > sum(narrowed["states"].states)


def test_without_data_card_or_compiler_what_is_left_is_written(ssmprune, place, tmp_path, monkeypatch, no_graph):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    (tmp_path / "empty").mkdir()
    line = ("deploy", place / "digits.safetensors", "--ratio", 0.5, "--data", tmp_path / "empty")
    result = ssmprune(*line, "--out", tmp_path / "absent")
    assert result.returncode == 0, result.stderr
    assert "Accuracies are left out" in result.stderr
    card = cards.read_card(tmp_path / "absent" / "digits.safetensors")
    assert card["after"].keys() == {"states", "width", "parameters", "checkpoint_bytes"}

    bare = tmp_path / "9 lives (of cats).safetensors"
    bare.write_bytes((place / "digits.safetensors").read_bytes())
    assert ssmprune("deploy", bare, "--ratio", 0.5, "--out", tmp_path / "bare").returncode == 0
    assert names(tmp_path / "bare") == [
        f"9_lives_of_cats.{ending}" for ending in ("c", "card.json", "h", "safetensors")
    ]
    assert "task" not in cards.read_card(tmp_path / "bare" / "9_lives_of_cats.safetensors")


def measure(model):
    with forward(model, "compiled") as fast:
        return timing.measure(model, fast)


def test_a_bidirectional_model_has_no_stream_to_time(tmp_path, no_graph):
    torch.manual_seed(0)
    figures = measure(Classifier(Config("s4d", **CONFIG, bidirectional=True)))
    assert figures["steps_per_second"] is figures["state_bytes"] is None


def test_a_failure_at_the_last_file_leaves_nothing(place, tmp_path, no_graph):
    model = sp.load(place / "digits.safetensors")
    with pytest.raises(sp.InputError, match="No space left"), bundle.new_bundle(tmp_path / "out", "digits", model):
        raise sp.InputError("Cannot write: No space left on device.")
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", "...", "-", "_"])
def test_a_bundle_always_has_a_name(name, tmp_path):
    assert bundle.bundle_name(tmp_path / f"{name}.safetensors") == "model"


@pytest.mark.parametrize("name", ["signal", "Time"])
def test_a_bundle_takes_no_name_of_a_standard_header(name, tmp_path):
    assert bundle.bundle_name(tmp_path / f"{name}.safetensors") == f"{name}_model"
