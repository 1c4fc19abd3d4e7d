"""The checkpoints in paper/checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest

from ssmprune.tasks import cards
from ssmprune.training import recipes

FOLDER = Path(__file__).parents[1] / "checkpoints"
NEEDED = {
    *("task", "task_parameters", "data", "model", "recipe", "settings", "seed", "training_examples", "epochs"),
    *("validation_accuracy", "validation_curve", "test_accuracy", "test_loss", "test_examples", "seconds", "command"),
}


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.safetensors")), ids=lambda file: file.stem)
def test_shipped_checkpoints_have_whole_cards_and_are_small(file):
    card = cards.read_card(file)
    assert card.keys() >= NEEDED
    recipe = recipes.get(card["task"], card["model"], card["recipe"])
    for name in ("epochs", "states"):  # a card's command says in what its training differs from the recipe
        if file.parent.name == "variants" and f"--{name}" in card["command"]:
            recipe = replace(recipe, **{name: card["settings"][name]})
            assert f"--{name} {card['settings'][name]} " in card["command"] + " "
    assert recipes.Recipe(**card["settings"]) == recipe
    assert card["validation_accuracy"] == max(card["validation_curve"])
    assert f"ssmprune train {card['task']}" in card["command"]
    assert file.stat().st_size < 2_000_000
