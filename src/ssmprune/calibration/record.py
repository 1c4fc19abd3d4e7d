"""Running a torch model: what enters and leaves its SSM layers, and its answers, beside the right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from ..adapters import Layer
from ..adapters.layers import how_to_get_model
from ..arrays import Real, check_dense
from ..errors import InputError
from ..models.classifier import Classifier
from .data import Sequences, take

HELD_BYTES = 1 << 30  # what a `Walk` holds of the residual stream, at most
TENSORS = 2  # as large as a layer's input, which count as held: the residual stream and the input


class Call(NamedTuple):
    """A layer's module was called with these arguments, which hold u (batch, length, width), and gave y."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    u: Tensor
    y: Tensor
    lengths: Tensor | None


Recorder: TypeAlias = Callable[[Call], None]


def refuse_what_cannot_run(model: Any) -> None:
    """Say what to do with a model that is only a tree of numbers."""
    if not isinstance(model, nn.Module):
        otherwise = (
            "Bring it into our own layers (`ssmprune import`, or `ssmprune.convert` layer by layer), or prune without "
            "data."
        )
        raise InputError(
            f"Calibration runs the model on data, so it needs a torch model; this is {type(model).__name__}. "
            f"{how_to_get_model(model) or otherwise}"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and then each of its modules into the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def takes_lengths(model: nn.Module) -> TypeGuard[Classifier]:
    """Say whether a model is told where sequences end: one of ours, which can also be run in stages."""
    return isinstance(model, Classifier)


def stages(model: nn.Module, sequences: Sequences) -> list[Callable[[Any], Any]]:
    """Return the functions that take the inputs through all layers, one after the other.

    Our own models have one for each block, and each of their layers is called once with all sequences and steps; any
    other model is a single stage.
    """
    return model.stages(for_model(model, sequences.x), sequences.lengths) if takes_lengths(model) else [model]


def for_model(model: nn.Module, x: Tensor) -> Tensor:
    """Bring inputs to the device and the precision of a model's real parameters."""
    name, like = next((name, each) for name, each in model.named_parameters() if each.is_floating_point())
    check_dense(name, like)
    return x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)


@contextmanager
def running(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Say which inputs a model was given when it fails: most often they are not as it takes them."""
    try:
        yield
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        if isinstance(error, InputError) or takes_lengths(model) or "memory" in reason:  # our own check their inputs
            raise
        raise InputError(
            f"{type(model).__name__} does not run on inputs x of shape {tuple(x.shape)} and type {x.dtype} ({reason}). "
            "Batches have to be as the model takes them, for most models (batch, length, features): give a single "
            "sequence as x[None], turn channels by x.transpose(1, 2), and convert numbers by x.float()."
        ) from error


def answer(model: nn.Module, sequences: Sequences) -> Tensor | None:
    """Return what a model answers, the first of several, without its answers at steps that are padding.

    None where that is no tensor.
    """
    x, lengths = for_model(model, sequences.x), sequences.lengths
    with running(model, x):
        given = model(x, lengths) if takes_lengths(model) else model(x)
    if isinstance(given, Mapping):
        given = tuple(given.values())
    output = given[0] if isinstance(given, tuple | list) and given else given
    if not isinstance(output, Tensor):
        return None
    if lengths is None or output.ndim < 3 or output.shape[:2] != sequences.x.shape[:2]:
        return output
    return output[torch.arange(output.shape[1], device=output.device) < lengths.to(output.device)[:, None]]


@contextmanager
def recording(
    model: nn.Module, sequences: Sequences, layers: Mapping[str, Layer], recorders: Mapping[str, Recorder]
) -> Iterator[None]:
    """Hand what enters and leaves the layers at these paths to their recorders, while the caller runs the model.

    The run ends as soon as all sequences have passed all those layers. A model may send a few sequences at a time.
    """
    waiting = dict.fromkeys(recorders, len(sequences.x))

    def show(path: str, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        layers[path].refuse_call(arguments, keywords)
        family, start = layers[path].family, len(sequences.x) - waiting[path]
        u, y, lengths = family.inputs_of(arguments), family.outputs_of(result), sequences.lengths
        ends = None if lengths is None else lengths[start : start + len(u)].to(u.device)
        recorders[path](Call(arguments, keywords, u, y, ends))
        waiting[path] -= len(u)
        if not any(waiting.values()):
            raise _AllSeen

    hooks = [
        model.get_submodule(layers[path].calling_module).register_forward_hook(
            lambda _, arguments, keywords, result, path=path: show(path, arguments, keywords, result), with_kwargs=True
        )
        for path in recorders
    ]
    try:
        yield
    except _AllSeen:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    for path, left in waiting.items():
        if left:
            raise InputError(f"Layer {path!r} did not see every sequence; is it used in the model's forward?")


class _AllSeen(Exception):
    """Nothing more is to be learnt from this run."""


def record(
    model: nn.Module, sequences: Sequences, layers: Mapping[str, Layer], recorders: Mapping[str, Recorder]
) -> None:
    """Run a model on some sequences and hand what enters and leaves its layers to their recorders."""
    x = for_model(model, sequences.x)
    with running(model, x), recording(model, sequences, layers, recorders):
        for stage in stages(model, sequences):
            x = stage(x)


def order_of_layers(model: nn.Module, sequences: Sequences, layers: Mapping[str, Layer]) -> list[str]:
    """Return the paths of layers in the order in which the model runs them."""
    order: dict[str, None] = {}
    record(model, sequences, layers, {path: partial(_note, order, path) for path in layers})
    return list(order)


def _note(order: dict[str, None], path: str, _: Call) -> None:
    order[path] = None


class Walk:
    """One model on slices of data, taken from layer to layer while the layers change.

    What a layer of a pruned model meets depends on how the layers before it were fitted, each of which takes all data.
    So all slices reach a layer before any reaches the next. Between two layers, the residual stream of our own models
    is held; other models, and what is too large to hold, start again from their inputs.
    """

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer], slices: list[Sequences]) -> None:
        """Stand before the first layer with all slices."""
        self.model, self.layers, self.slices = model, layers, slices
        self.reached: dict[int, tuple[int, Tensor]] = {}  # by slice: the stage that comes next, and what enters it
        self.held = 0

    def reach(self, number: int, path: str) -> list[Call]:
        """Take a slice to a layer; return the calls of it, several where a model splits its batches."""
        calls: list[Call] = []
        sequences = self.slices[number]
        recorded = recording(self.model, sequences, self.layers, {path: calls.append})
        with running(self.model, sequences.x), recorded:
            start, x = self.reached.get(number, (0, for_model(self.model, sequences.x)))
            for position, stage in enumerate(stages(self.model, sequences)[start:], start + 1):
                x = stage(x)
                self._hold(number, position, x)
        return calls

    def call(self, path: str, call: Call) -> Tensor:
        """Return what the layer, as it is now, gives for the arguments of a call of another model's."""
        layer = self.layers[path]
        module = self.model.get_submodule(layer.calling_module)
        output: Tensor = layer.family.outputs_of(module(*call.arguments, **call.keywords))
        return output

    def _hold(self, number: int, position: int, x: Any) -> None:
        if not isinstance(x, Tensor):
            return
        before = self.reached[number][1].nbytes if number in self.reached else 0
        if TENSORS * (self.held + x.nbytes - before) <= HELD_BYTES:
            self.reached[number] = position, x
            self.held += x.nbytes - before


def held_bytes(batches: Iterable[Sequences], width: int) -> int:
    """Return what the walks of two models that are compared hold at most, in layers of so many inputs."""
    xs = [batch.x for batch in batches]
    largest = max((x.element_size() for x in xs if x.is_floating_point()), default=4)
    return 2 * min(HELD_BYTES, TENSORS * largest * width * sum(x.shape[0] * x.shape[1] for x in xs))


def is_labelled(batch: Any) -> bool:
    """Say whether a batch is (x, labels) or (Sequences(x, lengths), labels)."""
    return isinstance(batch, tuple | list) and not isinstance(batch, Sequences) and len(batch) > 1


def logits_and_labels(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Return logits (answers, classes) and the right classes (answers,), on the same device.

    A model answers for each sequence, or at each step; steps that are padding do not count.
    """
    if not is_labelled(batch):
        kind = type(batch).__name__
        raise InputError(f"A labelled batch is (x, labels) or (ssmprune.Sequences(x, lengths), labels); got {kind}.")
    x, labels, *_ = batch
    [sequences] = take([x if isinstance(x, Sequences) else [x]], None)
    logits = answer(model, sequences)
    if logits is None:
        raise InputError(f"Right answers cannot be counted: {type(model).__name__} answers with no tensor of logits.")
    right = torch.as_tensor(labels).to(logits.device)
    steps = sequences.x.shape[:2]
    if sequences.lengths is not None and right.shape == steps and logits.ndim == 2:  # an answer at each step
        right = right[torch.arange(steps[1], device=right.device) < sequences.lengths.to(right.device)[:, None]]
    if logits.shape[-1] == 1 or (right.is_floating_point() and not torch.equal(right, right.round())):
        raise InputError(
            "Right answers cannot be counted: the outputs are numbers, not classes. Measure an error of your own; to "
            "prune within limits, use max_energy, or give max_loss a function of a model."
        )
    if logits.shape[:-1] != right.shape:
        raise InputError(
            f"Right answers cannot be counted: labels of shape {tuple(right.shape)} do not go with answers of shape "
            f"{tuple(logits.shape[:-1])}; give one class for each answer."
        )
    return logits.flatten(0, -2), right.flatten().long()


@torch.no_grad()
def answer_batches(model: nn.Module, batches: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the `logits_and_labels` of each batch, in evaluation mode."""
    refuse_what_cannot_run(model)
    with evaluating(model):
        for batch in batches:
            yield logits_and_labels(model, batch)


def labelled_batches(batches: Iterable[Any]) -> list[Any]:
    """Return labelled batches (x, labels) or (Sequences(x, lengths), labels), without empty ones; refuse others."""
    batches = list(batches)
    if not all(map(is_labelled, batches)):
        raise InputError("max_loss counts right answers: give batches (x, labels), or a function of a model.")
    batches = [batch for batch in batches if len(batch[1])]
    if not batches:
        raise InputError("max_loss counts right answers; there are no examples.")
    return batches


def right_answers(batches: list[Any], model: nn.Module) -> Real:
    """Return which answers of a model to labelled batches are right, (examples,): 1 or 0, whose mean is the accuracy.

    Where an example has an answer at each step, the number of its right steps over the mean number of steps; steps that
    are padding do not count.
    """
    right, steps = list[int](), list[int]()
    for batch, (logits, wanted) in zip(batches, answer_batches(model, batches), strict=True):
        counts = [len(wanted) // len(batch[1])] * len(batch[1])
        if isinstance(batch[0], Sequences) and batch[0].lengths is not None and sum(counts) != len(batch[1]):
            counts = torch.as_tensor(batch[0].lengths).tolist()  # an answer at each step that is no padding
        right += [int(part.sum()) for part in torch.split(logits.argmax(-1) == wanted, counts)]
        steps += counts
    return np.asarray(right) / float(np.mean(steps))
