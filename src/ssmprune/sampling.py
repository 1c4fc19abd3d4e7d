"""Watching a torch model work: what enters and leaves its SSM layers, and what their states do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from .adapters import Adapter
from .arrays import Real
from .calibration import Moments, Residual
from .errors import InputError
from .features import Layout
from .leaps import Leaps, last, stride
from .system import DiagonalSystem

STEPS_AT_ONCE = 8192  # over all sequences: bounds the memory and fits a cache


class Part(NamedTuple):
    """A few sequences, and where they end if they are padded."""

    x: Tensor  # (batch, length, ...)
    lengths: Tensor | None = None  # (batch,)


Sink: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], None]  # takes input, output, lengths of some sequences


def slices(batches: Iterable[Any]) -> Iterator[Part]:
    """Cut batches into parts of a few sequences, an even number of them, since retrieval models compare pairs."""
    empty = True
    for batch in batches:
        whole = _part(batch)
        size = max(2, STEPS_AT_ONCE // whole.x.shape[1]) // 2 * 2
        for start in range(0, len(whole.x), size):
            rows, empty = slice(start, start + size), False
            yield Part(whole.x[rows], None if whole.lengths is None else whole.lengths[rows])
    if empty:
        raise InputError("Calibration needs at least one sequence; the batches were empty.")


def _part(batch: Any) -> Part:
    part = Part(*map(torch.as_tensor, batch)) if isinstance(batch, tuple | list) else Part(torch.as_tensor(batch))
    if part.x.ndim < 2:
        raise InputError(f"A batch is x (batch, length, ...) or (x, lengths); got x of shape {tuple(part.x.shape)}.")
    if part.lengths is not None:
        fits = part.lengths.shape == part.x.shape[:1] and not part.lengths.is_floating_point()
        if not fits or not ((part.lengths > 0) & (part.lengths <= part.x.shape[1])).all():
            raise InputError(
                f"lengths must be {len(part.x)} whole numbers from 1 to {part.x.shape[1]}, "
                f"not {part.lengths.tolist()}. A batch is x or (x, lengths); labels are not needed."
            )
    return part


def refuse_what_cannot_run(model: Any) -> None:
    """Say what to do with a model that is only a tree of numbers."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"Calibration runs the model on data, so it needs a torch model; this is {type(model).__name__}. Bring it "
            "into our own layers (`ssmprune import`, or `ssmprune.convert` layer by layer), or prune without data."
        )


@torch.no_grad()
def watch(model: nn.Module, part: Part, sinks: Mapping[str, Sink], families: Mapping[str, Adapter]) -> None:
    """Run a model on some sequences and hand what enters and leaves the layers at these paths to their sinks.

    The run ends as soon as all sequences have passed all those layers. A model may send a few sequences at a time.
    """
    waiting = dict.fromkeys(sinks, len(part.x))

    def show(path: str, arguments: tuple[Any, ...], result: Any) -> None:
        u, y = families[path].inputs_of(arguments), families[path].outputs_of(result)
        start = len(part.x) - waiting[path]
        sinks[path](u, y, None if part.lengths is None else part.lengths[start : start + len(u)].to(u.device))
        waiting[path] -= len(u)
        if not any(waiting.values()):
            raise _AllSeen

    hooks = [
        model.get_submodule(path).register_forward_hook(lambda _, inputs, y, path=path: show(path, inputs, y))
        for path in sinks
    ]
    try:
        model(_for_model(model, part.x))
    except _AllSeen:
        return
    finally:
        for hook in hooks:
            hook.remove()
    missed = next(path for path, left in waiting.items() if left)
    raise InputError(f"Layer {missed!r} did not see every sequence; is it used in the model's forward?")


def _for_model(model: nn.Module, x: Tensor) -> Tensor:
    """Bring features to the device and the precision of a model's real parameters."""
    own = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    return x.to(own.device, own.dtype) if x.is_floating_point() else x.to(own.device)


def order_of_layers(model: nn.Module, part: Part, families: Mapping[str, Adapter]) -> list[str]:
    """Return the paths of layers in the order in which the model runs them."""
    order: dict[str, None] = {}
    watch(model, part, {path: partial(_note, order, path) for path in families}, families)
    return list(order)


def _note(order: dict[str, None], path: str, *_: Tensor | None) -> None:
    order[path] = None


def compare(whole: nn.Module, pruned: nn.Module, family: Mapping[str, Adapter], part: Part, tally: Tally) -> None:
    """Count a layer of the pruned model, with what its output lacks of the same layer's in the whole model."""
    outputs: list[Tensor] = []
    (path,) = family
    watch(whole, part, {path: lambda u, y, lengths: outputs.append(y)}, family)
    expected = iter(outputs)
    watch(pruned, part, {path: lambda u, y, lengths: tally.add(u, y, lengths, next(expected) - y)}, family)


class _AllSeen(Exception):
    """Nothing more is to be learnt from this run."""


class Tally:
    """Sums of second moments of one layer's features, inputs and residuals, over any number of sequences.

    States are in the precision of the model, their products in double precision.
    """

    def __init__(self, system: DiagonalSystem) -> None:
        """Start with empty sums for the layer that `system` describes."""
        layout = Layout.of(system)
        self.system, self.shape = system, (layout.problems, layout.slots, 2 * system.directions)
        self.leaps: dict[int, Leaps] = {}
        self.sums: list[Tensor] = []
        self.samples = 0

    def add(self, u: Tensor, y: Tensor, lengths: Tensor | None, residual: Tensor | None = None) -> None:
        """Count some sequences: the layer's input u (batch, length, width), and what its output lacks."""
        if u.ndim != 3 or u.shape[2] != self.system.inputs or y.shape[:2] != u.shape[:2]:
            raise InputError(
                f"Expected a layer that takes and gives (batch, length, {self.system.inputs}); "
                f"it took {tuple(u.shape)} and gave {tuple(y.shape)}."
            )
        leaps = self._leaps(u)
        cut = leaps.cut(u)
        sampled = [leaps.features(cut), last(cut)]
        if residual is not None:
            sampled.append(last(leaps.cut(residual)))
        if lengths is not None:
            steps = torch.arange(u.shape[1] - 1, -1, -leaps.every, device=u.device).flip(0)
            counted = (steps[:, None] < lengths).flatten()
            sampled = [values[:, counted] for values in sampled]
        self._sum(*(values.double() for values in sampled))

    def moments(self) -> Moments:
        """Return the means of all that was counted."""
        if not self.samples:
            raise InputError("No step was sampled: the sequences are too short. Calibrate with more or longer ones.")
        gram, cross, power = (self._mean(values) for values in self.sums[:3])
        return Moments(gram.reshape(*self.shape, *self.shape[1:]), cross.reshape(*self.shape, -1), power)

    def residual(self) -> Residual:
        """Return the means with the residual, where every sequence came with one."""
        cross, input, energy = (self._mean(values) for values in self.sums[3:])
        return Residual(cross.reshape(*self.shape, -1), input, float(energy))

    def _sum(self, z: Tensor, u: Tensor, r: Tensor | None = None) -> None:  # (problems, samples, ...)
        sums = [z.mT @ z, z.mT @ u, (u * u).sum(1)]
        if r is not None:
            sums += [z.mT @ r, (u * r).sum(1), (r * r).sum()]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.samples += z.shape[1]

    def _mean(self, values: Tensor) -> Real:
        return values.cpu().numpy() / self.samples

    def _leaps(self, u: Tensor) -> Leaps:
        """Return leaps with the stride for sequences as long as these, made once."""
        problems, slots, parts = self.shape
        every = stride(u.shape[1], slots * parts, u.shape[2] // problems)
        if every not in self.leaps:
            self.leaps[every] = Leaps(self.system, every, u)
        return self.leaps[every]
