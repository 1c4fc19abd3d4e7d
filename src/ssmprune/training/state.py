"""A training on disk: what a killed run needs to resume exactly, to the bit, and the log of what it did.

Data order and dropout are drawn afresh from (seed, epoch) and (seed, step), so weights, Adam's moments
and a few numbers are the whole state: no generator has to be saved.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..files import digest, load_tensors, save_tensors, write_atomically


@dataclass
class Position:
    """Where a training stands: steps done, seconds spent, the best validation accuracy and its epoch."""

    step: int = 0
    seconds: float = 0.0
    best_accuracy: float = -1.0
    best_epoch: int = 0


def save_state(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, position: Position, identity: dict[str, Any]
) -> None:
    """Write everything that `State.restore` brings back, atomically; `identity` says which training this is."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for moment, value in optimizer.state[parameter].items():
            tensors[f"adam/{name}/{moment}"] = value
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    save_tensors(path, arrays, {"position": json.dumps(asdict(position)), "identity": json.dumps(identity)})


@dataclass(frozen=True)
class State:
    """What `save_state` wrote."""

    position: Position
    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix`, which is cut off."""
        return {name.removeprefix(prefix): v for name, v in self.tensors.items() if name.startswith(prefix)}

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put weights and moments back into a model of the size that was saved, and its optimiser."""
        try:
            model.load_state_dict(self.part("model/"))
        except RuntimeError as error:  # only for a file that somebody has edited: its identity names the sizes
            raise InputError(f"The saved training does not fit its model ({error}). Start afresh.") from error
        for name, parameter in model.named_parameters():
            moments = self.part(f"adam/{name}/")
            optimizer.state[parameter] = {moment: value.to(parameter.device) for moment, value in moments.items()}


def load_state(path: Path, identity: dict[str, Any]) -> State:
    """Read a state; refuse that of another training."""
    try:
        arrays, about = load_tensors(path)
        saved, position = dict(json.loads(about["identity"])), Position(**json.loads(about["position"]))
    except InputError as error:
        raise InputError(f"Cannot read the saved training: {error} Remove it to start afresh.") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"Cannot read the saved training {path}: {error}. Remove it to start afresh.") from error
    changed = [key for key, value in json.loads(json.dumps(identity)).items() if saved.get(key) != value]
    if changed:
        raise InputError(
            f"{path.parent} holds another training (its {', '.join(changed)} differ from what was asked for). "
            "Give the same options to resume it, or another folder to start afresh."
        )
    return State(position, {name: torch.from_numpy(array) for name, array in arrays.items()})


def fingerprint(model: nn.Module) -> str:
    """Return a digest that tells one model's weights from another's."""
    return digest({name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()})


class Log:
    """A JSON-lines file, one object per event, that forgets what happened after the step a run resumes from."""

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
