"""Cards: what is written beside a checkpoint, and what of it evaluation uses."""

from __future__ import annotations

import dataclasses

import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import cards
from ssmprune.training import Run, train
from ssmprune.training.log import card_of
from toy import RECIPE, TOY


@pytest.mark.slow
def test_the_log_of_a_training_gives_its_card(tmp_path):
    recipe = dataclasses.replace(RECIPE, epochs=2, examples=80)
    result = train(TOY, recipe, Run(tmp_path, seed=3, progress=False))
    card = card_of(tmp_path / "log.jsonl")
    assert (card["task"], card["model"], card["seed"], card["epochs"]) == ("toy", "s5", 3, 2)
    assert card["training_examples"] == 80
    assert card["settings"]["lr"] == recipe.lr
    assert card["validation_accuracy"] == max(card["validation_curve"]) == result.best_accuracy
    cards.write_card(result.best, card | {"task_parameters": {"length": 9}})
    assert cards.task_parameters(result.best, "toy") == {"length": 9}
    assert cards.task_parameters(result.best, "smnist") == {}


@pytest.mark.parametrize("content", [None, "", "{", '{"event": "start"}\n', '["x"]\n'])
def test_no_card_without_a_whole_log(tmp_path, content):
    log = tmp_path / "log.jsonl"
    if content is not None:
        log.write_text(content)
    with pytest.raises(InputError, match="log of a training"):
        card_of(log)
