"""Running a torch model and recording what enters and leaves its SSM layers, and what their states do meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from ..adapters import Layer
from ..arrays import Real, is_count
from ..core.layout import ChannelLayout
from ..core.least_squares import Residual, Sample
from ..core.moments import Moments
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models.classifier import Classifier
from .batches import Padded, Unlabelled
from .strided import StridedStates, last_steps, stride

STEPS_AT_ONCE = 8192  # over all sequences: bounds the memory and fits a cache


class Sequences(NamedTuple):
    """A few sequences, and where they end if they are padded."""

    x: Tensor  # (batch, length, ...)
    lengths: Tensor | None = None  # (batch,)


Recorder: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], None]  # takes input, output, lengths of some sequences


def in_slices(batches: Iterable[Unlabelled]) -> Iterator[Sequences]:
    """Cut batches into slices of a few sequences, an even number of them, since retrieval models compare pairs."""
    for batch in batches:
        whole = Sequences(*batch) if isinstance(batch, Padded) else Sequences(batch)
        size = max(2, STEPS_AT_ONCE // whole.x.shape[1]) // 2 * 2
        for start in range(0, len(whole.x), size):
            rows = slice(start, start + size)
            yield Sequences(whole.x[rows], None if whole.lengths is None else whole.lengths[rows])


def refuse_what_cannot_run(model: Any) -> None:
    """Say what to do with a model that is only a tree of numbers."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"Calibration runs the model on data, so it needs a torch model; this is {type(model).__name__}. Bring it "
            "into our own layers (`ssmprune import`, or `ssmprune.convert` layer by layer), or prune without data."
        )


@torch.no_grad()
def record(
    model: nn.Module, sequences: Sequences, layers: Mapping[str, Layer], recorders: Mapping[str, Recorder]
) -> None:
    """Run a model on some sequences and hand what enters and leaves its layers at these paths to their recorders.

    The run ends as soon as all sequences have passed all those layers. A model may send a few sequences at a time.
    """
    x, lengths = sequences
    waiting = dict.fromkeys(recorders, len(x))

    def show(path: str, arguments: tuple[Any, ...], result: Any) -> None:
        family, start = layers[path].family, len(x) - waiting[path]
        u, y = family.inputs_of(arguments), family.outputs_of(result)
        recorders[path](u, y, None if lengths is None else lengths[start : start + len(u)].to(u.device))
        waiting[path] -= len(u)
        if not any(waiting.values()):
            raise _AllSeen

    modules = {path: model.get_submodule(layers[path].calling_module) for path in recorders}
    hooks = [
        module.register_forward_hook(lambda _, arguments, result, path=path: show(path, arguments, result))
        for path, module in modules.items()
    ]
    try:
        run_at_once(model, sequences)
    except _AllSeen:
        return
    finally:
        for hook in hooks:
            hook.remove()
    missed = next(path for path, left in waiting.items() if left)
    raise InputError(f"Layer {missed!r} did not see every sequence; is it used in the model's forward?")


def run(model: nn.Module, sequences: Sequences) -> Any:
    """Run a model on some sequences; where they end is told to our own models, which others do not take."""
    x = for_model(model, sequences.x)
    return model(x, sequences.lengths) if isinstance(model, Classifier) else model(x)


def run_at_once(model: nn.Module, sequences: Sequences) -> Any:
    """Do the same, but let our own models call each layer once, with all sequences and steps, for who records it."""
    if not isinstance(model, Classifier):
        return run(model, sequences)
    return model.at_once(for_model(model, sequences.x), sequences.lengths)


def takes_pairs(model: nn.Module) -> bool:
    """Say whether a model compares two sequences, so that it takes an even number of them."""
    return isinstance(model, Classifier) and model.config.retrieval


def answer(model: nn.Module, sequences: Sequences) -> Tensor | None:
    """Return what a model answers, the first of several, without its answers at steps that are padding.

    None where that is no tensor.
    """
    given, lengths = run(model, sequences), sequences.lengths
    if isinstance(given, Mapping):
        given = tuple(given.values())
    output = given[0] if isinstance(given, tuple | list) and given else given
    if not isinstance(output, Tensor):
        return None
    if lengths is None or output.ndim < 3 or output.shape[:2] != sequences.x.shape[:2]:
        return output
    return output[torch.arange(output.shape[1], device=output.device) < lengths.to(output.device)[:, None]]


def for_model(model: nn.Module, x: Tensor) -> Tensor:
    """Bring inputs to the device and the precision of a model's real parameters."""
    own = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    return x.to(own.device, own.dtype) if x.is_floating_point() else x.to(own.device)


def order_of_layers(model: nn.Module, sequences: Sequences, layers: Mapping[str, Layer]) -> list[str]:
    """Return the paths of layers in the order in which the model runs them."""
    order: dict[str, None] = {}
    record(model, sequences, layers, {path: partial(_note, order, path) for path in layers})
    return list(order)


def _note(order: dict[str, None], path: str, *_: Tensor | None) -> None:
    order[path] = None


class _AllSeen(Exception):
    """Nothing more is to be learnt from this run."""


class MomentSums:
    """Sums of second moments of one layer's regressors, inputs and residuals, over any number of sequences.

    States are in the precision of the model, their products in double precision.
    """

    def __init__(self, system: DiagonalSystem, every: int | None, expected: int) -> None:
        """Start with empty sums for the layer that `system` describes; count one in `every` steps.

        expected: the number of sequences that are to come; of few, every step counts unless told otherwise.
        """
        if every is not None and not is_count(every, least=1):
            raise InputError(f"every is a number of steps, at least 1; got {every!r}.")
        layout = ChannelLayout.of(system)
        self.system, self.shape = system, (layout.channels, layout.slots, 2 * system.directions)
        self.every, self.expected = every, expected
        self.strided: dict[int, StridedStates] = {}
        self.sums: list[Tensor] = []
        self.samples = self.sequences = 0

    def add(self, u: Tensor, y: Tensor, lengths: Tensor | None, residual: Tensor | None = None) -> None:
        """Count some sequences: the layer's input u (batch, length, width), and what its output lacks."""
        if u.ndim != 3 or u.shape[2] != self.system.inputs or y.shape[:2] != u.shape[:2]:
            raise InputError(
                f"Expected a layer that takes and gives (batch, length, {self.system.inputs}); "
                f"it took {tuple(u.shape)} and gave {tuple(y.shape)}."
            )
        states = self._states(u)
        cut = states.cut(u)
        sampled = [states.regressors(cut), last_steps(cut)]
        if residual is not None:
            sampled.append(last_steps(states.cut(residual)))
        if lengths is not None:
            steps = torch.arange(u.shape[1] - 1, -1, -states.every, device=u.device).flip(0)
            counted = (steps[:, None] < lengths).flatten()
            sampled = [values[:, counted] for values in sampled]
        self._sum(*(values.double() for values in sampled))
        self.sequences += len(u)

    def __add__(self, other: MomentSums) -> MomentSums:
        """Return the sums over the sequences of both."""
        both = copy.copy(self)
        both.sums = [one + two for one, two in zip(self.sums, other.sums, strict=True)]
        both.samples, both.sequences = self.samples + other.samples, self.sequences + other.sequences
        return both

    def sample(self) -> Sample:
        """Return the means with those of the residual, where every sequence came with one."""
        cross, input, error = (self._mean(values) for values in self.sums[3:])
        residual = Residual(cross.reshape(*self.shape, -1), input)
        return Sample(self.moments(), residual, float(error.sum()), self.sequences)

    def moments(self) -> Moments:
        """Return the means of all that was counted."""
        if not self.samples:
            raise InputError("No step was sampled: the sequences are too short. Calibrate with more or longer ones.")
        gram, cross, power = (self._mean(values) for values in self.sums[:3])
        shape = self.shape
        return Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), power, self.sequences)

    def _sum(self, z: Tensor, u: Tensor, r: Tensor | None = None) -> None:  # (channels, samples, ...)
        sums = [z.mT @ z, z.mT @ u, (u * u).sum(1)]
        if r is not None:
            sums += [z.mT @ r, (u * r).sum(1), (r * r).sum(1)]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.samples += z.shape[1]

    def _mean(self, values: Tensor) -> Real:
        return values.cpu().numpy() / self.samples

    def _states(self, u: Tensor) -> StridedStates:
        """Return the states at the stride for sequences as long as these, prepared once."""
        channels, slots, parts = self.shape
        outputs = u.shape[2] // channels
        every = self.every or stride(u.shape[1], slots * parts, outputs, self.expected)
        if every not in self.strided:
            self.strided[every] = StridedStates(self.system, every, u)
        return self.strided[every]
