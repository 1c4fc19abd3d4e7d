"""Numbers of the shipped checkpoints do not drift; see docs/numbers.md for the tolerances.

A checkpoint that was replaced on purpose, or a change that is meant to change numbers: `python scripts/pin.py`.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp

SCRIPT = Path(__file__).parents[1] / "scripts" / "pin.py"
tool = runpy.run_path(str(SCRIPT))
CHECKPOINTS = tool["shipped"]()
PINS = json.loads(tool["PINS"].read_text())
AGAIN = "If this was intended, run `python scripts/pin.py` and commit tests/pins.json."
SCORES, LOGITS, SAME_PLATFORM = 1e-6, 2e-3, 1e-4


def pinned(name: str) -> dict:
    if name not in PINS:
        pytest.fail(f"The checkpoint {name} is shipped without pins. Run `python scripts/pin.py {name}`.")
    return PINS[name]


@pytest.fixture(scope="module", params=sorted(CHECKPOINTS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return sp.load(CHECKPOINTS[name])


def test_something_is_shipped():
    assert "smnist-s5" in CHECKPOINTS
    assert PINS.keys() <= CHECKPOINTS.keys(), f"Pins of checkpoints that are gone. {AGAIN}"


def test_file_scores_masks_and_answers_are_the_pinned_ones(name, model):
    pins, now = pinned(name), tool["pin"](CHECKPOINTS[name])
    assert now["sha256"] == pins["sha256"], f"The file of {name} has changed. {AGAIN}"
    assert now["masks"] == pins["masks"], f"{name} is pruned differently. {AGAIN}"
    for criterion, layers in pins["scores"].items():
        for layer, quartiles in layers.items():
            assert np.allclose(now["scores"][criterion][layer], quartiles, rtol=SCORES, atol=SCORES), (criterion, layer)
    assert np.allclose(now["logits"], pins["logits"], rtol=0, atol=LOGITS), f"{name} computes differently. {AGAIN}"
    answers = pins.get("right answers", {})
    assert all(abs(now["right answers"][ratio] - right) <= 1 for ratio, right in answers.items()), AGAIN


def test_masks_do_not_depend_on_the_precision_of_storage(model, name, tmp_path):
    sp.save(sp.load(CHECKPOINTS[name]).double(), tmp_path / "double.safetensors")
    double = sp.load(tmp_path / "double.safetensors")
    assert double.decoder.weight.dtype is torch.float64
    assert tool["masks"](double) == tool["masks"](model)


@pytest.mark.slow
def test_masks_do_not_depend_on_the_number_of_threads():
    """In processes of their own, since BLAS reads the number of threads when it is loaded."""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    runs = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "--masks"],
            env=os.environ | dict.fromkeys(variables, str(threads)),
            stdout=subprocess.PIPE,
        )
        for threads in (1, 2)
    ]
    one, two = (json.loads(run.communicate(timeout=200)[0]) for run in runs)
    assert one.keys() == CHECKPOINTS.keys()
    assert one == two


@pytest.mark.slow
def test_outputs_depend_little_on_batch_size_and_threads(model):
    whole = tool["logits"](model)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        others = [tool["logits"](model, batch) for batch in (1, 3, 4)]
    finally:
        torch.set_num_threads(threads)
    assert whole.std() > 0.01
    for other in others:
        assert torch.allclose(other, whole, rtol=0, atol=SAME_PLATFORM * float(whole.abs().max()))
