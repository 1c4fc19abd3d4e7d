import json
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.cli import main
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

Result = namedtuple("Result", "returncode stdout stderr")


@pytest.fixture
def ssmprune(capsys, monkeypatch):
    """Run the command line as a user does, but in this process: importing torch anew takes seconds."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ssmprune", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            main()
        return Result(leave.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("cli") / "model.safetensors"
    sp.save(Classifier(Config("s5", inputs=3, outputs=2, width=6, states=(8, 8))), path)
    return path


def test_prune_equals_plan_and_shrink(ssmprune, checkpoint, tmp_path):
    plan, small, direct = (tmp_path / name for name in ("plan.safetensors", "small.safetensors", "direct.safetensors"))
    planned = ssmprune("plan", checkpoint, "--ratio", 0.5, "--out", plan, "--json")
    assert json.loads(planned.stdout)["layers"][-1] == {"layer": "total", "states": 32, "kept": 16, "pruned": 0.5}
    assert ssmprune("shrink", checkpoint, plan, "--out", small).returncode == 0
    assert ssmprune("prune", checkpoint, "--ratio", 0.5, "--out", direct).returncode == 0
    for name, tensor in sp.load(small).state_dict().items():
        assert torch.equal(tensor, sp.load(direct).state_dict()[name])
    assert sum(sp.load(small).config.states) == 8


def test_calibration_makes_the_surgeon_prune(ssmprune, checkpoint, tmp_path):
    inputs, small = tmp_path / "inputs.npy", tmp_path / "small.safetensors"
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    result = ssmprune("prune", checkpoint, "--ratio", 0.5, "--calibrate", inputs, "--out", small, "--json")
    assert json.loads(result.stdout)["method"] == "surgeon"
    x = torch.from_numpy(np.load(inputs)).float()
    with torch.no_grad():
        full, calibrated = sp.load(checkpoint)(x), sp.load(small)(x)
        plain = sp.prune(sp.load(checkpoint), 0.5)(x)
    assert (calibrated - full).norm() < 0.5 * (plain - full).norm()


def test_mask_keeps_the_size(ssmprune, checkpoint, tmp_path):
    plan, masked = tmp_path / "plan.safetensors", tmp_path / "masked.safetensors"
    ssmprune("plan", checkpoint, "--ratio", 0.5, "--method", "random", "--seed", 3, "--out", plan)
    assert ssmprune("mask", checkpoint, plan, "--out", masked).returncode == 0
    layers = sp.load(masked).layers
    assert [int(layer.ssm.mask.sum()) for layer in layers] == [4, 4]
    assert sp.load(masked).config.states == (8, 8)


def test_inspect_and_list_print_tables_and_json(ssmprune, checkpoint):
    layers = json.loads(ssmprune("inspect", checkpoint, "--json").stdout)["layers"]
    assert [layer["states"] for layer in layers] == [16, 16]
    fastest, slowest = layers[0]["memory_steps"]
    assert slowest >= fastest >= 1
    assert "layers.1.ssm" in ssmprune("inspect", checkpoint).stdout
    known = json.loads(ssmprune("list", "--json").stdout)
    assert {"last", "lamp"} <= set(known["methods"])
    assert {"s4d", "s5"} <= set(known["families"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prune", "{model}", "--ratio", "1.5"], "1.5"),
        (["prune", "{model}", "--ratio", "0.5", "--method", "best"], "best"),
        (["prune", "{model}", "--ratio", "0.5", "--exclude", "layers.9"], "layers.9"),
        (["prune", "{model}", "--ratio", "0.5", "--cap", "-1"], "-1"),
        (["plan", "{model}", "--ratio", "0.5", "--round-to", "0"], "0"),
        (["prune", "{model}", "--ratio", "0.5", "--calibrate", "nothing"], "nothing"),
        (["prune", "{model}", "--ratio", "0.5", "--calibrate", "{model}"], "{model}"),
        (["evaluate", "{model}", "--task", "chess"], "chess"),
        (["export", "{model}", "--format", "tflite"], "tflite"),
        (["prune", "{folder}/absent.safetensors", "--ratio", "0.5"], "absent.safetensors"),
        (["prune", "{folder}", "--ratio", "0.5"], "{folder}"),
        (["shrink", "{model}", "{model}"], "{model}"),
        (["shrink", "{model}", "{folder}/absent.plan"], "absent.plan"),
        (["mask", "{model}", "{folder}"], "{folder}"),
    ],
)
def test_bad_input_names_the_value_and_writes_nothing(ssmprune, checkpoint, tmp_path, arguments, named):
    fill = {"model": checkpoint, "folder": tmp_path}
    out = [] if arguments[0] == "evaluate" else ["--out", tmp_path / "out.safetensors"]
    result = ssmprune(*(text.format(**fill) for text in arguments), *out)
    assert result.returncode == 2, result.stderr
    assert named.format(**fill) in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", [True, False])
def test_only_debug_shows_the_traceback(tmp_path, debug):
    command = [
        sys.executable,
        "-m",
        "ssmprune",
        *["--debug"][:debug],
        "mask",
        tmp_path,
        tmp_path,
        "--out",
        tmp_path,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ("Traceback" in result.stderr) is debug
    assert result.returncode == (1 if debug else 2)
