"""`ssmprune train` and `evaluate` as users run them: from data to a card, pruned, fine-tuned, in two processes."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.distributed.run import get_args_parser

import ssmprune as sp
from ssmprune import tasks
from ssmprune.cli import main
from ssmprune.cli.verbs import app
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks import cards
from ssmprune.training import evaluate, recipes
from tiny_data import WORDS, write_cifar, write_mnist, write_speech
from toy import PATIENCE, same

pytestmark = pytest.mark.slow

OF_SMNIST = {"task": "smnist", "task_parameters": {}, "model": "s4d"}


def ssmprune(*words: object) -> dict:
    """What the command prints as JSON; in this process, since importing torch anew takes seconds."""
    told, complained = io.StringIO(), io.StringIO()
    argv = ["ssmprune", *map(str, words), "--json"]
    with (
        mock.patch.object(sys, "argv", argv),
        redirect_stdout(told),
        redirect_stderr(complained),
        pytest.raises(SystemExit) as leave,
    ):
        main()
    assert not leave.value.code, complained.getvalue()
    return json.loads(told.getvalue())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """MNIST's layout with 112 training images, of which 101 train: two batches of 50."""
    root = tmp_path_factory.mktemp("data")
    write_mnist(root, 112)
    write_cifar(root)
    write_speech(root)
    return root


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return ssmprune("train", "smnist", "--model", "s4d", "--data", data, "--out", out, "--threads", 1)


def test_what_is_trained_is_evaluated_pruned_and_tuned(trained, data, tmp_path):
    best, small = Path(trained["best"]), tmp_path / "small.safetensors"
    assert trained["finished"]
    card = cards.read_card(best)
    assert (card["task"], card["model"], card["recipe"]) == ("smnist", "s4d", "cpu")
    assert card["command"].startswith("ssmprune train smnist --model s4d")
    seen = ssmprune("evaluate", best, "--task", "smnist", "--data", data, "--split", "val")
    assert seen["accuracy"] == card["validation_accuracy"] == trained["best_accuracy"]

    ssmprune("prune", best, "--ratio", 0.5, "--out", small)
    tuning = ("train", "smnist", "--recipe", "tune", "--from", small, "--data", data, "--out", tmp_path / "tuned")
    tuned = ssmprune(*tuning)
    model = sp.load(tuned["best"])
    assert model.config.states == sp.load(small).config.states
    assert cards.read_card(small) == cards.read_card(Path(trained["last"])) == OF_SMNIST
    assert model.config.dropout == recipes.get("smnist", "s4d", "tune").dropout == 0.0
    assert cards.read_card(Path(tuned["best"]))["model"] == "s4d"


def test_half_the_rate_is_twice_the_step(data, tmp_path):
    """Of a model that was trained on every second sample, every fourth is left."""
    file = tmp_path / "model.safetensors"
    sp.save(Classifier(Config(family="s5", inputs=1, outputs=len(WORDS), width=4, states=(4,))), file)
    whole = tasks.get("speech")
    for trained_at, parameters in ((1, {}), (2, {"every": 2})):
        cards.write_card(file, {"task": "speech", "task_parameters": parameters})
        seen = ssmprune("evaluate", file, "--task", "speech", "--data", data, "--every", 2)
        right = evaluate(sp.load(file).at_rate(2), whole.replace(every=2 * trained_at).load("test", data))
        assert seen["loss"] == right.loss != evaluate(sp.load(file), whole.load("test", data)).loss
        assert seen["task_parameters"] == {"every": 2 * trained_at}


def test_a_compiled_model_evaluates_the_same(data, tmp_path):
    """At another rate, too: what is compiled is the model as it stands."""
    file = tmp_path / "model.safetensors"
    torch.manual_seed(0)
    sp.save(Classifier(Config(family="s5", inputs=1, outputs=len(WORDS), width=4, states=(4,))), file)
    words = ("evaluate", file, "--task", "speech", "--data", data, "--every", 2)
    in_torch, compiled = (ssmprune(*words, "--engine", engine) for engine in ("torch", "compiled"))
    assert (in_torch["engine"], compiled["engine"]) == ("torch", "compiled")
    assert compiled["accuracy"] == in_torch["accuracy"]
    assert compiled["loss"] == pytest.approx(in_torch["loss"], rel=1e-5)


def test_a_killed_training_leaves_a_card_that_evaluate_and_sweep_read(data, tmp_path):
    """Killed, not asked, after its first epoch; its best model is evaluated and swept without a word about its task."""
    options = (
        "--layers",
        1,
        "--width",
        4,
        "--states",
        4,
        "--epochs",
        10_000,
        "--data",
        data,
        "--out",
        tmp_path / "run",
    )
    command = [sys.executable, "-m", "ssmprune", "train", "smnist", *map(str, options), "--threads", "1"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    card = tmp_path / "run" / "last.card.json"  # written after the other
    while not card.exists() and running.poll() is None:
        time.sleep(0.05)
    running.kill()
    running.wait(PATIENCE)
    best = tmp_path / "run" / "best.safetensors"
    known = cards.read_card(best)
    assert (known["task"], known["recipe"], known["settings"]["width"]) == ("smnist", "cpu", 4)
    assert known["command"].startswith("ssmprune train smnist --layers 1")
    seen = ssmprune("evaluate", best, "--data", data, "--examples", 7)
    assert (seen["task"], seen["examples"]) == ("smnist", 7)
    swept = ssmprune("sweep", best, "--methods", "last", "--ratios", "0.5", "--data", data, "--out", tmp_path / "out")
    assert swept["cells"] == 2


def test_sizes_change_any_recipe_but_not_a_model_that_is_there(trained, data, tmp_path):
    with pytest.raises(AssertionError, match="already has its sizes; leave out --layers, --width"):
        ssmprune(
            *("train", "smnist", "--from", trained["best"], "--recipe", "tune", "--layers", 1, "--width", 8),
            *("--data", data, "--out", tmp_path / "run"),
        )
    tuned = ssmprune(
        *("train", "smnist", "--from", trained["best"], "--recipe", "tune", "--epochs", 2, "--rate", 0.001),
        *("--batch", 20, "--data", data, "--out", tmp_path / "run"),
    )
    settings = cards.read_card(Path(tuned["best"]))["settings"]
    recipe = recipes.get("smnist", "s4d", "tune")
    assert (settings["epochs"], settings["lr"], settings["batch"], tuned["steps"]) == (2, 0.001, 20, 10)
    assert settings["ssm_lr"] == pytest.approx(recipe.ssm_lr * 0.001 / recipe.lr)


def test_a_training_that_is_asked_to_stop_says_so(data, tmp_path):
    options = ("--model", "s4d", "--data", data, "--out", tmp_path, "--threads", 1, "--json")
    command = [sys.executable, "-m", "ssmprune", "train", "smnist", *map(str, options)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "log.jsonl").exists() and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    told, complained = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, complained
    assert "Interrupted" in complained
    assert not told or not json.loads(told)["finished"]  # it says nothing when no step had begun


def test_two_processes_are_one_training(trained, data, tmp_path):
    options = ("--model", "s4d", "--data", data, "--out", tmp_path, "--threads", 1, "--json")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "ssmprune", "train", "smnist", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    pair = json.loads(done.stdout)  # one document: the two speak with one voice
    assert pair["finished"]
    assert pair["steps"] == trained["steps"]
    assert (tmp_path / "best.card.json").is_file()


def test_torchrun_leaves_every_option_of_ours_alone():
    options = [name for argument in app["train"].assemble_argument_collection() for name in argument.names]
    words = ["train", "smnist", *(word for name in options for word in (name, "1"))]
    assert get_args_parser().parse_args(["-m", "ssmprune", *words]).training_script_args == words


def test_another_start_is_another_training(trained, data, tmp_path):
    model, other = sp.load(trained["best"]), tmp_path / "other.safetensors"
    with torch.no_grad():
        model.decoder.bias += 1
    sp.save(model, other)
    options = ("--recipe", "tune", "--data", data, "--out", tmp_path / "tuned")
    first = ssmprune("train", "smnist", "--from", trained["best"], *options)
    again = ssmprune("train", "smnist", "--from", trained["best"], *options)
    assert same(Path(first["best"]), Path(again["best"]))
    with pytest.raises(AssertionError, match="holds another training"):
        ssmprune("train", "smnist", "--from", other, *options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate BEST --task scifar", "The model has 1 inputs, the task 3"),
        ("train scifar --from BEST --out RUN", "The model has 1 inputs, the task 3"),
        ("train smnist --from BEST --model s5 --out RUN", "The recipe is for s5, the model to start from is an s4d"),
    ],
)
def test_a_model_of_another_kind_is_refused(words, message, trained, data, tmp_path):
    words = words.replace("BEST", trained["best"]).replace("RUN", str(tmp_path / "run")).split()
    with pytest.raises(AssertionError, match=message):
        ssmprune(*words, "--data", data)
    assert not (tmp_path / "run").exists()
