"""Cards: what is known of a trained checkpoint, in a JSON file beside it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import tasks
from ..errors import InputError
from ..files import COUNTS, TEXT, check_entries, read_whole, write_atomically
from .task import Task

ENTRIES = {"task": TEXT, "task_parameters": COUNTS, "model": TEXT}  # the entries that are read; all optional


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
    content = read_whole(path)
    try:
        card = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable card ({error}); fix or remove it.") from error
    check_entries(path, card, {}, ENTRIES)
    return dict(card)


def inherited(checkpoint: Path) -> dict[str, Any]:
    """Return the entries of a card that also hold for models made from its checkpoint; empty if it names no task."""
    card = read_card(checkpoint)
    return {key: card[key] for key in ("task", "task_parameters", "model") if key in card} if card.get("task") else {}


def copy_card(source: Path, target: Path, more: dict[str, Any] | None = None) -> None:
    """Write a card for a model made from a checkpoint: what its card says of how to evaluate it, and more."""
    if card := inherited(source) | (more or {}):
        write_card(target, card)
    else:
        card_path(target).unlink(missing_ok=True)  # the card of a file that was replaced


def task_of(checkpoint: Path, name: str | None = None) -> Task:
    """Return the task called `name`, else the one of the card, with the parameters the checkpoint was trained with."""
    name = name or read_card(checkpoint).get("task")
    if name is None:
        raise InputError(f"{checkpoint} has no card that names its task; name it with --task.")
    return tasks.get(str(name)).replace(**task_parameters(checkpoint, str(name)))


def about_task(checkpoint: Path) -> str:
    """Return what a task says of its data, for a checkpoint whose card names one that is known here; else nothing."""
    with suppress(InputError):
        task = task_of(checkpoint)
        return f"Task {task.name}: {(type(task).__doc__ or '').partition(chr(10))[0].rstrip('.')}"
    return ""


def task_parameters(checkpoint: Path, task: str) -> dict[str, Any]:
    """Return the parameters of the task that a checkpoint was trained with, empty where its card names none."""
    card = read_card(checkpoint)
    return dict(card.get("task_parameters") or {}) if card.get("task") == task else {}
