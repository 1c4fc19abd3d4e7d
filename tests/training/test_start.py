"""Starting from trained layers, with a new head."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks.task import Split, Task
from ssmprune.training import evaluate
from ssmprune.training._start import fit_head, take_raw_features, tunable
from toy import RECIPE, events, fit

CONFIG = Config("s5", inputs=5, outputs=2, width=6, states=(4,), tokens=True)
COMPARING = Config("s5", inputs=5, outputs=2, width=6, states=(4,), tokens=True, retrieval=True)


@pytest.mark.parametrize("config", [CONFIG, COMPARING], ids=["one", "two documents"])
def test_a_head_for_standardised_features_becomes_the_same_for_raw_ones(config):
    torch.manual_seed(0)
    model = Classifier(config).double()
    features, shift, scale = torch.randn(8, 6).double(), torch.randn(6).double(), torch.rand(6).double() + 0.1
    expected = model.head((features - shift) / scale)
    take_raw_features(model, shift, scale)
    assert torch.allclose(model.head(features), expected, atol=1e-12)


def test_a_model_that_is_to_compare_documents_keeps_all_but_its_head():
    config = Config("s5", inputs=9, outputs=5, width=4, states=(3, 3), tokens=True, dropout=0.1)
    start = Classifier(config)
    model = tunable(start, dataclasses.replace(config, outputs=2, retrieval=True, dropout=0.0)).eval()
    assert model.config == dataclasses.replace(config, outputs=2, retrieval=True, dropout=0.0)
    assert model(torch.ones(4, 7, dtype=torch.long)).shape == (2, 2)
    before, after = start.state_dict(), model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("decoder"))
    back = tunable(model, config)
    assert back.config == config
    assert all(torch.equal(before[name], back.state_dict()[name]) for name in before if not name.startswith("decoder"))
    again = tunable(model, dataclasses.replace(model.config, outputs=7))
    assert all(torch.equal(after[name], again.state_dict()[name]) for name in after)


def documents(count: int, seed: int) -> Split:
    """Pairs of texts of one letter each, mostly: is it the same letter?"""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(1, 5, (2, count))
    other = rng.integers(1, 5, (2, count, 20))
    texts = np.where(rng.random((2, count, 20)) < 0.8, np.stack([first, second])[..., None], other)

    def read(rows):
        return texts[:, rows].reshape(-1, 20), np.full(2 * len(rows), 20)

    return Split((first == second).astype(np.int64), read, 5, 2, 20)


def test_a_head_learns_from_features_that_stay_as_they_are():
    torch.manual_seed(0)
    model = Classifier(COMPARING)
    layers = {name: value.clone() for name, value in model.named_parameters() if name.startswith(("encoder", "layers"))}
    before = evaluate(model, documents(400, seed=1)).accuracy
    fit_head(model, documents(3000, seed=2))
    assert evaluate(model, documents(400, seed=1)).accuracy > max(0.85, before)
    assert all(torch.equal(layers[name], value) for name, value in model.named_parameters() if name in layers)


class Pairs(Task):
    name = "pairs"
    inputs, outputs, length, tokens, retrieval = 5, 2, 20, True, True

    def parameters(self) -> dict[str, int]:
        return {}

    def replace(self) -> Task:
        return self

    def read(self, split: str, root: Path) -> Split:
        return documents(3000, seed=2) if split == "train" else documents(400, seed=1)


@pytest.mark.slow
def test_a_training_fits_a_new_head_once_and_before_anything_else(tmp_path):
    torch.manual_seed(0)
    still = dataclasses.replace(RECIPE, epochs=1, batch=100, lr=1e-9, ssm_lr=1e-9, dropout=0.0)
    for _ in range(2):  # the second time there is nothing left to do
        result = fit(tmp_path, still, task=Pairs(), start=Classifier(dataclasses.replace(CONFIG, outputs=3)))
        torch.manual_seed(0)
    assert result.best_accuracy > 0.85
    assert [event["examples"] for event in events(tmp_path, "new head")] == [3000]


def test_features_that_never_move_do_not_spoil_a_head():
    split = documents(64, seed=0)
    constant = Split(split.labels, lambda rows: (np.ones((2 * len(rows), 20), np.int64), None), 5, 2, 20)
    model = Classifier(COMPARING)
    fit_head(model, constant)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_features_far_from_zero_keep_their_digits():
    torch.manual_seed(0)
    model = Classifier(COMPARING)
    shift, scale = 100 * torch.ones(6), 2 * torch.ones(6)  # as near as deviations may come to a mean
    features = shift + scale * torch.randn(8, 6)
    expected = model.head((features - shift) / scale)
    take_raw_features(model, shift, scale)
    assert torch.allclose(model.head(features), expected, atol=5e-3)
