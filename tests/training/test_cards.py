"""Cards: what is written beside a checkpoint, and what of it evaluation uses."""

from __future__ import annotations

import dataclasses

import pytest

from ssmprune.tasks import cards
from ssmprune.training import Run, train
from toy import RECIPE, TOY


@pytest.mark.slow
def test_a_training_writes_its_card(tmp_path):
    recipe = dataclasses.replace(RECIPE, epochs=2, examples=80)
    result = train(TOY, recipe, Run(tmp_path, seed=3, progress=False))
    card = cards.read_card(result.best)
    assert (card["task"], card["model"], card["seed"], card["epochs"]) == ("toy", "s5", 3, 2)
    assert card["training_examples"] == 80
    assert card["settings"]["lr"] == recipe.lr
    assert card["validation_accuracy"] == max(card["validation_curve"]) == result.best_accuracy
    cards.write_card(result.best, card | {"task_parameters": {"length": 9}})
    assert cards.task_parameters(result.best, "toy") == {"length": 9}
    assert cards.task_parameters(result.best, "smnist") == {}
