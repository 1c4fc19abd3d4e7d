"""Cards: what is known of a trained checkpoint, in a JSON file beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .. import tasks
from ..errors import InputError
from ..files import COUNTS, TEXT, check_entries, read_whole, write_atomically
from .task import Task

ENTRIES = {"task": TEXT, "task_parameters": COUNTS, "model": TEXT}  # all that is read of a card; none is needed


def card_path(checkpoint: Path) -> Path:
    """Return where the card of a checkpoint lies.

    >>> card_path(Path("models/smnist-s5.safetensors")).name
    'smnist-s5.card.json'
    """
    return checkpoint.with_name(checkpoint.name.removesuffix(".safetensors") + ".card.json")


def write_card(checkpoint: Path, card: dict[str, Any]) -> None:
    """Write what is known of a checkpoint beside it."""
    write_atomically(card_path(checkpoint), (json.dumps(card, indent=2) + "\n").encode())


def read_card(checkpoint: Path) -> dict[str, Any]:
    """Return the card of a checkpoint, empty if it has none."""
    path = card_path(checkpoint)
    if not path.exists():
        return {}
    try:
        card = json.loads(read_whole(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable card ({error}); fix or remove it.") from error
    check_entries(path, card, {}, ENTRIES)
    return dict(card)


def of_training(log: Path) -> dict[str, Any]:
    """Return the card of a training from its log: its settings, and how far it got."""
    try:
        events = [json.loads(line) for line in log.read_text().splitlines()]
        start = next(event for event in events if event["event"] == "start")
        recipe, validations = start["recipe"], [event for event in events if event["event"] == "validation"]
        curve = [event["accuracy"] for event in validations]
        pruned = max((event["step"] for event in events if event["event"] == "pruning"), default=0)
        return {
            "task": start["task"],
            "task_parameters": recipe["task"],
            "model": recipe["family"],
            "settings": recipe,
            "seed": start["seed"],
            "training_examples": start["examples"],
            "epochs": len(curve),
            "validation_accuracy": max(event["accuracy"] for event in validations if event["step"] >= pruned),
            "validation_curve": curve,
            "seconds": validations[-1]["seconds"],
        } | {key: start[key] for key in ("start", "pruning") if start.get(key)}
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration) as error:
        raise InputError(f"{log} is not the log of a training that has been validated ({error!r}).") from error


def inherited(checkpoint: Path) -> dict[str, Any]:
    """Return the part of a card that also holds for models made from its checkpoint; empty if it names no task."""
    card = read_card(checkpoint)
    return {key: card[key] for key in ("task", "task_parameters", "model") if key in card} if card.get("task") else {}


def pass_on(checkpoint: Path, made_of_it: Path) -> None:
    """Write a card for a model made from a checkpoint: the part of the old card that says how to evaluate it."""
    if card := inherited(checkpoint):
        write_card(made_of_it, card)
    else:
        card_path(made_of_it).unlink(missing_ok=True)  # of what was there before


def task_of(checkpoint: Path, name: str | None = None) -> Task:
    """Return the task called `name`, else the one of the card, with the parameters the checkpoint was trained with."""
    name = name or read_card(checkpoint).get("task")
    if name is None:
        raise InputError(f"{checkpoint} has no card that names its task; name it with --task.")
    return tasks.get(str(name)).replace(**task_parameters(checkpoint, str(name)))


def task_parameters(checkpoint: Path, task: str) -> dict[str, Any]:
    """Return the parameters of the task that a checkpoint was trained with, empty where its card names none."""
    card = read_card(checkpoint)
    return dict(card.get("task_parameters") or {}) if card.get("task") == task else {}
