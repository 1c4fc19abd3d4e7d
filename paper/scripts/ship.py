"""Ship a finished training: python paper/scripts/ship.py RUN NAME --data DATA; --help has what else can be said.

Copies RUN/best.safetensors to checkpoints/NAME.safetensors with a card that tells the accuracy on the whole test set,
and writes the table of checkpoints/README.md anew. A model that was trained on shortened sequences can be tested on
longer ones: --length. NAME may be variants/NAME, for a model that differs in its seed, epochs or size from one that is
shipped; it has no row in the table. Epochs, states and width may be others than the recipe's.
Pin its numbers afterwards: python scripts/pin.py NAME.
"""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ssmprune import tasks
from ssmprune.files import write_atomically
from ssmprune.models import checkpoint
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.training import evaluate, recipes

FOLDER = Path(__file__).parents[1] / "checkpoints"
MARK = "<!-- the table: scripts/ship.py writes what follows -->\n"
OPTIONS = ("epochs", "states", "width")  # of `ssmprune train`, where they may be others than the recipe's
DATA = {
    **dict.fromkeys(("smnist", "psmnist"), "MNIST"),
    **dict.fromkeys(("image", "scifar"), "CIFAR-10, 20,000 of its 50,000 training images"),
    "text": "IMDB reviews",
    "retrieval": "pairs of IMDB reviews in LRA's format: of one film or of two",
    "speech": "Speech Commands, 12 of its 35 words, at 8 kHz",
    **dict.fromkeys(("listops", "pathfinder", "pathx"), "generated"),
}


def main(
    run: Path,
    name: str,
    data: Path,
    recipe: str | None,
    start: Path | None,
    first: str | None,
    length: int | None,
    note: str | None,
) -> None:
    """Write the checkpoint, its card and the table."""
    card = trained(run, recipe or ("tune" if start else "cpu"), start)
    if start:
        before = trained(start.parent, first) if first else cards.read_card(start)
        before["command"] = re.sub(r" --(data \S+|json)", "", before["command"])
        card["before"] = {key: before[key] for key in ("command", "epochs", "seconds")}
    if length:
        card["task_parameters"] = card["task_parameters"] | {"length": length}
    split = tasks.get(card["task"]).replace(**card["task_parameters"]).load("test", data)
    seen = evaluate(checkpoint.load(run / "best.safetensors"), split, engine="auto")
    tested = {"test_accuracy": seen.accuracy, "test_loss": seen.loss, "test_examples": seen.examples}
    origin = {"data": DATA[card["task"]], "threads": 1}
    where = (FOLDER / f"{name}.safetensors").resolve()  # one of them is a link into the package
    write_atomically(where, (run / "best.safetensors").read_bytes())
    cards.write_card(where, card | origin | tested | ({"note": note} if note else {}))
    write_table()


def trained(run: Path, recipe: str, start: Path | None = None) -> dict[str, Any]:
    """Return the card of a whole training by a recipe, perhaps in another size, from scratch or from a checkpoint."""
    card = cards.read_card(run / "best.safetensors")
    task, family, seed = card["task"], card["model"], card["seed"]
    wanted, settings = recipes.get(task, family, recipe), recipes.Recipe(**card["settings"])
    changed = {name: getattr(settings, name) for name in OPTIONS if getattr(settings, name) != getattr(wanted, name)}
    if settings != replace(wanted, **changed):
        raise SystemExit(f"The {recipe} recipe is not the one {run} was trained by: {card['settings']}")
    if card["epochs"] != card["settings"]["epochs"]:
        raise SystemExit(f"{run} has done {card['epochs']} of {card['settings']['epochs']} epochs.")
    if bool(card.pop("start", None)) != bool(start) or card.get("pruning"):
        raise SystemExit(f"{run} began with another model than --from says, or lost states along the way.")
    command = f"ssmprune train {task} --model {family} --recipe {recipe} --seed {seed} --threads 1"
    command += "".join(f" --{name} {value}" for name, value in changed.items())
    command += f" --out runs/{run.name}" + (f" --from runs/{start.parent.name}/{start.name}" if start else "")
    return card | {"recipe": recipe, "command": command}


def write_table() -> None:
    """Put one row per card into paper/checkpoints/README.md."""
    text = (FOLDER / "README.md").read_text()
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise SystemExit(f"paper/checkpoints/README.md has lost its line {MARK!r}")
    columns = ("checkpoint", "model", "states", "data", "epochs, minutes", "test accuracy", "trained by")
    table = markdown_rows(columns, [row(path) for path in sorted(FOLDER.glob("*.safetensors"))])
    write_atomically(FOLDER / "README.md", f"{head}{mark}{table}\n".encode())


def row(path: Path) -> list[str]:
    """Return one row of the table."""
    card, config = cards.read_card(path), checkpoint.load(path).config
    size = f"{config.kind.upper()}, {config.depth} layer{'s' * (config.depth > 1)}, width {config.width}"
    states = f"{config.states[0] * (2 if config.conj_sym else 1)} per layer"
    reached = f"{card['test_accuracy']:.2%} of {card['test_examples']:,}"
    trainings = [card["before"], card] if "before" in card else [card]
    epochs = " + ".join(str(training["epochs"]) for training in trainings)
    time = f"{epochs}, {sum(training['seconds'] for training in trainings) / 60:.0f}"
    commands = "; ".join(f"`{training['command']}`" for training in trainings)
    return [f"`{path.stem}`", size, states, card["data"], time, reached, commands]


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", help="of the training; by default cpu, or tune with --from")
    parser.add_argument("--from", dest="start", type=Path, help="the checkpoint that the training began with")
    parser.add_argument("--first", help="the recipe of that checkpoint; its card is believed where none is given")
    parser.add_argument("--length", type=int, help="of the test sequences, where it is not that of training")
    parser.add_argument("--note", help="what is particular about this training")
    main(**vars(parser.parse_args()))
