"""A training or recovery on disk: what a killed run needs to resume to the bit.

Data order and dropout are drawn afresh from (seed, epoch) and (seed, step), so weights, Adam's moments
and a few numbers are the whole state: no generator has to be saved.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..files import digest, load_tensors, save_tensors

Position = TypeVar("Position")  # a dataclass that says how far a run has come


def save_state(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Any,
    identity: dict[str, Any],
    best: Mapping[str, Tensor] | None = None,
) -> None:
    """Write everything that `State.restore` brings back, atomically; `identity` says which run this is."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in (best or {}).items()}
    for name, parameter in model.named_parameters():
        for moment, value in optimizer.state.get(parameter, {}).items():
            tensors[f"adam/{name}/{moment}"] = value
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    save_tensors(path, arrays, {"position": json.dumps(asdict(position)), "identity": json.dumps(identity)})


@dataclass(frozen=True)
class State(Generic[Position]):
    """What `save_state` wrote."""

    position: Position
    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix`, without it."""
        return {name.removeprefix(prefix): v for name, v in self.tensors.items() if name.startswith(prefix)}

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put weights and moments back into a model of the size that was saved, and its optimiser."""
        try:
            model.load_state_dict(self.part("model/"))
        except RuntimeError as error:  # the file was edited: its identity names the sizes
            raise InputError(f"The saved run does not fit its model ({error}). Start afresh.") from error
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        known: dict[int, dict[str, Tensor]] = {}
        for index, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            name = names[id(parameter)]
            moments = self.part(f"adam/{name}/")
            if not moments:  # the parameter has not learnt yet
                continue
            shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            if {moment: value.shape for moment, value in moments.items()} != shapes:
                raise InputError(f"The saved moments of {name} do not fit it. Start afresh.")
            known[index] = moments
        optimizer.load_state_dict(optimizer.state_dict() | {"state": known})  # moves the moments to their devices


def load_state(path: Path, identity: dict[str, Any], kind: type[Position], what: str = "training") -> State[Position]:
    """Read the state of a run; refuse that of another run. `what` names the kind of run in messages."""
    try:
        arrays, about = load_tensors(path)
        saved, position = dict(json.loads(about["identity"])), kind(**json.loads(about["position"]))
    except InputError as error:
        raise InputError(f"Cannot read the saved {what}: {error} Remove it to start afresh.") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"Cannot read the saved {what} {path}: {error}. Remove it to start afresh.") from error
    changed = [key for key, value in json.loads(json.dumps(identity)).items() if saved.get(key) != value]
    if changed:
        raise InputError(
            f"{path} holds another {what} (its {', '.join(changed)} differ from what was asked for). "
            "Give the same options to resume it, or another place to start afresh."
        )
    return State(position, {name: torch.from_numpy(array) for name, array in arrays.items()})


def fingerprint(model: nn.Module) -> str:
    """Return a digest that tells one model's weights from another's."""
    return digest({name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()})


@contextmanager
def collect_stop_requests(wanted: bool) -> Iterator[list[int]]:
    """Yield a list that fills when the process is asked to stop (Ctrl-C, SIGTERM), so that no step is cut in two.

    Not wanted of several processes: torchrun stops them all at once; a process that stopped by itself would leave the
    others waiting.
    """
    requests: list[int] = []
    if not wanted or current_thread() is not main_thread():  # only the main thread may set handlers
        yield requests
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: requests.append(number)) for number in signals]
    try:
        yield requests
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
