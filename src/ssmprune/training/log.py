"""The log of a training, and the card of a checkpoint that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_atomically


class Log:
    """A JSON-lines file, one object per event; a resumed training forgets the events after its saved step."""

    def __init__(self, path: Path, step: int) -> None:
        """Open `path` for appending after dropping the events later than `step`."""
        self.path = path
        try:
            lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() and step else []
            complete = [line for line in lines if line.endswith("\n")]  # a kill may tear the last one
            past = [line for line in complete if json.loads(line)["step"] <= step]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not the log of a training ({error}); move it away to continue.") from error
        write_atomically(path, "".join(past).encode())

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        with self.path.open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")


def card_of(log: Path) -> dict[str, Any]:
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
