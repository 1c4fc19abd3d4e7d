"""Recovery: a few minutes of gradient steps repair what no closed form can, since poles move.

The whole model teaches the pruned one: by its logits or, where outputs are not logits, by its outputs. Some inputs are
held out. The weights that scored best on them win, and the weights before learning take part, so the model never gets
worse there.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..adapters import Adapter, layers_of
from ..calibration.data import Sequences, compares_pairs, count, in_halves, join, take
from ..calibration.record import answer, refuse_what_cannot_run
from ..errors import InputError, one_of
from ..models.classifier import Classifier
from ..progress import Bar
from .resume import collect_stop_requests, fingerprint, load_state, save_state

Model = TypeVar("Model", bound=nn.Module)
What = Literal["all", "states"]
BATCH = 32  # sequences of a step
RUN = 2 * BATCH  # sequences that are cut at the same length, an even number, since models of pairs compare two
FEWEST = 8  # sequences of a step if they are long: steps of 32 would be too few in some minutes to learn anything
STEPS_PER_PASS = 2**15  # of all sequences of a backward pass together: bounds the memory
HELD_BYTES = 2**31  # of inputs, which recovery looks at more than once
PACE = 180  # steps a minute, of 32 sequences of 1,024 steps: two cores manage that easily
TEACHING = 0.3  # share of a full-width step's time that the whole model's answers take, until they are kept
FEWEST_STEPS = 32
LARGEST_RATE = 3e-3  # a third of it repairs less in a few minutes, twice as much may repair nothing
HARMED = 0.2  # above this damage the full learning rate is used; below, the rate falls with the square root of damage
VALIDATIONS = 16  # in the planned steps
RETREAT = 0.25  # factor for a rate that was too high: a little damage is undone by small steps only
CLIP = 1.0  # largest norm of a gradient
HELD_OUT = 0.1  # share of the sequences
MOST_HELD_OUT = 384  # sequences
NEGLIGIBLE = 1e-5, 1e-7  # damage that rounding alone can do to classifiers and to other models


def recover(
    small: Model,
    model: nn.Module,
    data: Iterable[Any],
    *,
    minutes: float = 5.0,
    what: What = "all",
    seed: int = 0,
    adapter: Adapter | None = None,
) -> Model:
    """Return a pruned model that has learnt the whole model's answers on unlabelled batches.

    On held-out inputs it never gets worse; if there is nothing to repair or to gain, it stays as it is, and a warning
    says so.

    small: a pruned torch model: one of ours, or any other whose output for x is a tensor.
    model: the whole model it was pruned from, which teaches it.
    data: batches or a DataLoader, as for `collect`, but many: all are used, up to 2 GB, some of them held out.
    minutes: the longest it may take; the number of steps follows from it, the data and both sizes, so a seed gives the
        same model on every machine that is as fast as two CPU cores.
    what: "all" lets every parameter learn, "states" those of the SSM layers only.

    `Recovery` also tells what happened, and resumes after a kill.

    >>> import torch
    >>> import ssmprune as sp
    >>> layer, data = sp.S5Layer(2, 10), [torch.randn(8, 50, 2) for _ in range(4)]
    >>> small = sp.prune(layer, 0.6, data=data)
    >>> recover(small, layer, data, minutes=0.01).B.shape
    torch.Size([4, 2, 2])
    """
    outcome = Recovery(small, model, data, what=what, seed=seed, adapter=adapter).run(minutes)
    if outcome.after.damage >= outcome.before.damage:
        warnings.warn(f"Recovery: {outcome.summary}.", stacklevel=2)
    return outcome.model


class HeldOutScore(NamedTuple):
    """How near a pruned model is to the whole one on the held-out inputs."""

    damage: float  # how much probability moved between classes, or the error's share of the outputs' energy
    agreement: float | None  # share of equal answers, of classifiers

    @property
    def is_negligible(self) -> bool:
        """Whether rounding may be the only difference between the models."""
        return self.damage <= NEGLIGIBLE[self.agreement is None]

    @property
    def percentage(self) -> str:
        """The error, or for classifiers the agreement."""
        return f"{self.damage:.2%}" if self.agreement is None else f"{self.agreement:.1%}"

    def __str__(self) -> str:
        """Show the percentage and what it measures."""
        return f"{'error' if self.agreement is None else 'agreement'} {self.percentage}"


@dataclass(frozen=True)
class Recovered(Generic[Model]):
    """The model that scored best on the held-out inputs, and how it got there."""

    model: Model
    before: HeldOutScore
    after: HeldOutScore
    steps: int
    seconds: float
    finished: bool = True  # False when it was asked to stop; the same call resumes

    def facts(self) -> dict[str, Any]:
        """Return all but the model, for JSON."""
        scores = {"before": self.before._asdict(), "after": self.after._asdict()}
        return scores | {"steps": self.steps, "seconds": round(self.seconds, 1)}

    def __str__(self) -> str:
        """Summarise the outcome, with its time."""
        return f"Recovery: {self.summary}" + (f" ({self.seconds:.0f} s)" if self.steps else "")

    @property
    def summary(self) -> str:
        """Summarise the outcome without timings, so that it is reproducible."""
        if self.before.is_negligible:
            return "the model answers as the whole one does; it needs none and is as it was"
        if self.after.damage >= self.before.damage:
            return f"nothing gained in {self.steps} steps; the model is as it was"
        repaired = 1 - self.after.damage / self.before.damage
        change = f"{self.before} -> {self.after.percentage}"
        return f"{repaired:.0%} of the damage repaired in {self.steps} steps, held-out {change}"


@dataclass
class _Position:
    """How far a recovery has come."""

    before: HeldOutScore
    best: HeldOutScore
    steps: int  # planned
    step: int = 0
    seconds: float = 0.0
    ended: bool = False
    share: float = 1.0  # of the rate that suits the damage

    def __post_init__(self) -> None:
        """Take the lists of a file for the scores they were."""
        self.before, self.best = HeldOutScore(*self.before), HeldOutScore(*self.best)


class Recovery(Generic[Model]):
    """A pruned model, the whole model that teaches it, and unlabelled inputs; the arguments are those of `recover`."""

    def __init__(
        self,
        small: Model,
        model: nn.Module,
        data: Iterable[Any],
        *,
        what: What = "all",
        seed: int = 0,
        adapter: Adapter | None = None,
    ) -> None:
        """Hold out some of the data, and score the pruned model on them."""
        one_of("part of a model to recover", what, dict.fromkeys(get_args(What)))
        refuse_what_cannot_run(small)
        refuse_what_cannot_run(model)
        self.small, self.what, self.seed = small, what, seed
        self.student, self.teacher = copy.deepcopy(small).eval(), copy.deepcopy(model).eval().requires_grad_(False)
        self.layers = layers_of(self.student, adapter)
        self._refuse_swapped(adapter)
        self.classifies = isinstance(small, Classifier) and small.config.outputs > 1
        sees_padding = [not isinstance(each, Classifier) or each.config.sees_padding for each in (small, model)]
        self.batches, held_out = batches(data, seed, padded=any(sees_padding), pairs=compares_pairs(model))
        with torch.no_grad():
            parts = [part for batch in held_out for part in micro_batches(batch)]
            self.held_out = [(part, _answer(self.teacher, part)) for part in parts]
        self.known: dict[int, list[Tensor]] = {}  # the whole model's answers by batch, where they are short
        energies = [float(expected.abs().square().mean()) for _, expected in self.held_out]
        self.energy = max(float(np.mean(energies)), 1e-12)
        self.unstable, self.before = self._count_unstable(), self.score()
        if not math.isfinite(self.before.damage):
            raise InputError(
                "The answers of the two models to the inputs held out differ by a number that is not finite; look for "
                "NaN or infinity in the data and in the weights."
            )

    def _refuse_swapped(self, adapter: Adapter | None) -> None:
        """Refuse a teacher with fewer states, where both are models whose states are known."""
        try:
            teachers = layers_of(self.teacher, adapter)
        except InputError:  # a teacher of another kind
            return
        small, whole = (sum(layer.read().states for layer in layers.values()) for layers in (self.layers, teachers))
        if small > whole:
            raise InputError(
                f"The model to recover has {small:,} states, the one that teaches it {whole:,}: call "
                "recover(small, model, data), the pruned model first and then the whole one it was pruned from."
            )

    def run(
        self, minutes: float = 5.0, *, steps: int | None = None, state: Path | None = None, progress: bool = True
    ) -> Recovered[Model]:
        """Learn for `steps` steps, by default as many as two cores take in these minutes, but never longer than that.

        A machine that is behind at half-time takes fewer, so that the rate still falls to zero within the time; the
        result then depends on its speed.

        state: a file from which the same call resumes after a kill, to the bit unless the machine is too slow.
        """
        if not 0 < minutes < math.inf:
            raise InputError(f"minutes is the time that recovery may take, above 0; got {minutes!r}.")
        if steps is not None and steps < 1:
            raise InputError(f"steps is a number from 1 on, or None for what the minutes allow; got {steps!r}.")
        planned = self.planned_steps(minutes) if steps is None else steps
        if torch.is_inference_mode_enabled():
            raise InputError("Recovery needs gradients; call it outside torch.inference_mode().")
        optimizer = torch.optim.Adam(self._groups())
        position = _Position(self.before, self.before, planned)
        best = copy.deepcopy(self.student.state_dict())
        identity = self._identity(planned)
        if state is not None and state.exists():
            saved = load_state(state, identity, _Position, "recovery")
            saved.restore(self.student, optimizer)
            position, best = saved.position, saved.part("best/")
        elif self.before.is_negligible:
            position.ended = True
        clock = time.monotonic() - position.seconds
        stopping, longest = collect_stop_requests(state is not None), 60 * minutes - position.seconds
        bar = Bar("Recovering", planned, shown=progress, brief=True, longest=longest)
        with stopping as asked_to_stop, bar:
            while not position.ended and not asked_to_stop:
                bar.show(position.step, "Recovering", position.steps, str(position.best))
                self._learn(optimizer, position)
                position.step += 1
                position.seconds = time.monotonic() - clock
                if position.seconds > 30 * minutes:
                    position.steps = min(position.steps, 2 * position.step)
                position.ended = position.step >= position.steps or position.seconds > 60 * minutes
                if position.step % math.ceil(position.steps / VALIDATIONS) == 0 or position.ended:
                    best = self._validate(optimizer, position, best)
                    if state is not None:
                        save_state(state, self.student, optimizer, position, identity, best)
            if asked_to_stop and state is not None and not position.ended:
                save_state(state, self.student, optimizer, position, identity, best)
        return self._result(position, best)

    @torch.no_grad()
    def score(self) -> HeldOutScore:
        """Compare the answers of both models on the held-out inputs."""
        damage = same = total = 0.0
        for part, expected in self.held_out:
            given = _answer(self.student, part)
            if given.shape != expected.shape:
                raise InputError(
                    f"The pruned model answers {tuple(given.shape)}, the whole one {tuple(expected.shape)}; "
                    "give the model that was pruned, and the one it was pruned from."
                )
            size = len(part.x)
            damage, total = damage + size * float(self._damage(given, expected)), total + size
            same += size * float((given.argmax(-1) == expected.argmax(-1)).double().mean()) if self.classifies else 0.0
        return HeldOutScore(damage / total, same / total if self.classifies else None)

    def planned_steps(self, minutes: float) -> int:
        """Return a number of steps that depends on the data and both sizes alone, not on how busy the machine is."""
        steps = statistics.fmean(len(batch.x) * batch.x.shape[1] for batch in self.batches)
        pace = PACE * min(4.0, 32 * 1024 / steps)
        if isinstance(self.student, Classifier) and isinstance(self.teacher, Classifier):
            small, whole = self.student.config, self.teacher.config
            left = max(small.width / whole.width, sum(small.states) / max(1, sum(whole.states)))
            pace /= TEACHING + (1 - TEACHING) * left
        return max(FEWEST_STEPS, round(pace * minutes))

    def _validate(
        self, optimizer: torch.optim.Optimizer, position: _Position, best: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Score the weights and return the best so far.

        When half the steps have gained nothing the rate was too high: begin again with a share of it, and stop when
        that gains nothing either. Not earlier: most is gained while the rate falls.
        """
        now = self.score()
        if now.damage < position.best.damage and self._count_unstable() <= self.unstable:  # false for NaN
            position.best = now
            return copy.deepcopy(self.student.state_dict())
        if position.best == position.before:
            if position.share == RETREAT:
                position.ended |= 4 * position.step >= 3 * position.steps
            elif 2 * position.step >= position.steps:
                position.share = RETREAT
                self.student.load_state_dict(best)
                if not math.isfinite(now.damage):
                    optimizer.state.clear()  # its averages of gradients are NaN
        return best

    @torch.enable_grad()
    def _learn(self, optimizer: torch.optim.Optimizer, position: _Position) -> None:
        """Take one step: the batches in a new order in each epoch, one cycle of the rate over all steps."""
        epoch, place = divmod(position.step, len(self.batches))
        index = int(np.random.default_rng([self.seed, epoch]).permutation(len(self.batches))[place])
        parts = micro_batches(self.batches[index])
        total = count(parts)
        optimizer.zero_grad()
        for part, expected in zip(parts, self._expected(index, parts), strict=True):
            loss = self._loss(_answer(self.student, part), expected)
            torch.autograd.backward(loss * (len(part.x) / total))
        for group in optimizer.param_groups:
            group["lr"] = position.share * group["peak"] * one_cycle((position.step + 1) / (position.steps + 1))
            nn.utils.clip_grad_norm_(group["params"], CLIP)
        optimizer.step()

    def _expected(self, index: int, parts: list[Sequences]) -> list[Tensor]:
        """Return the whole model's answers to a batch; short ones are kept for the next epoch."""
        if index in self.known:
            return self.known[index]
        with torch.no_grad():
            expected = [_answer(self.teacher, part) for part in parts]
        if sum(map(Tensor.numel, expected)) <= sum(part.x.numel() for part in parts):
            self.known[index] = expected
        return expected

    def _loss(self, given: Tensor, expected: Tensor) -> Tensor:
        """Return what learning makes smaller: of logits, the mean divergence KL(expected || given) of all answers."""
        if not self.classifies:
            return self._damage(given, expected)
        ours, theirs = (F.log_softmax(logits.flatten(0, -2), dim=-1) for logits in (given, expected))
        return F.kl_div(ours, theirs, reduction="batchmean", log_target=True)

    def _damage(self, given: Tensor, expected: Tensor) -> Tensor:
        """Return what `HeldOutScore` calls damage."""
        if self.classifies:
            return changed_probability(given, expected)
        return (given - expected).abs().square().mean() / self.energy

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameters that learn, of SSM layers and others (clipped apart), at a rate for the damage."""
        peak = LARGEST_RATE * min(1.0, math.sqrt(self.before.damage / HARMED))
        states = {id(p): p for path in self.layers for p in self.student.get_submodule(path).parameters()}
        others = [p for p in self.student.parameters() if id(p) not in states] if self.what == "all" else []
        chosen = states.keys() | {id(p) for p in others}
        for parameter in self.student.parameters():
            parameter.requires_grad_(id(parameter) in chosen)
        groups = [group for group in (list(states.values()), others) if group]
        return [{"params": group, "peak": peak, "lr": 0.0} for group in groups]

    def _count_unstable(self) -> int:
        """Count the states without a stable pole: learning must not add any."""
        return sum(int(layer.read().unstable_states.sum()) for layer in self.layers.values())

    def _identity(self, steps: int) -> dict[str, Any]:
        return {
            "options": {"what": self.what, "seed": self.seed, "steps": steps},
            "pruned model": fingerprint(self.small),
            "whole model": fingerprint(self.teacher),
            "data": [len(self.batches), [float(np.abs(batch.x.numpy(force=True)).sum()) for batch in self.batches[:4]]],
        }

    def _result(self, position: _Position, best: dict[str, Tensor]) -> Recovered[Model]:
        """Put the best weights into a copy of the model as it came, with its modes and flags."""
        model = copy.deepcopy(self.small)
        model.load_state_dict(best)
        outcome = Recovered(model, position.before, position.best, position.step, position.seconds, position.ended)
        if isinstance(model, Classifier):
            model.record(f"recovered: {outcome.summary}")
        return outcome


def batches(
    data: Iterable[Any], seed: int, *, padded: bool = True, pairs: bool = False
) -> tuple[list[Sequences], list[Sequences]]:
    """Return batches to learn from, and some of sequences drawn at random that are held out.

    data: as `collect` takes them. A batch has at most 32 sequences, 8 if long, and there are at least about eight.
    padded: what follows the length of a sequence stays; otherwise sequences of similar length are batched without it.
    pairs: the sequences of a pair, as a model takes them, follow each other in the batches.
    """
    joined, together = join(take(data, None, HELD_BYTES, pairs=pairs)), 1 + pairs
    total = count(joined) // together
    if total * together < 4:
        raise InputError("Recovery needs at least four sequences: some to learn from, some held out.")
    spared = max(2 // together, round(min(HELD_OUT * total, MOST_HELD_OUT / together)))
    is_held_out = np.zeros(total, bool)
    is_held_out[np.random.default_rng(seed).permutation(total)[:spared]] = True
    masks = torch.split(torch.from_numpy(is_held_out.repeat(together)), [len(long.x) for long in joined])
    size = max(2, min(BATCH, total * together // 8 // 2 * 2))
    learnt, held_out = (
        [
            batch
            for long, mask in zip(joined, masks, strict=True)
            for run in _runs(long, (mask == wanted).nonzero().view(-1, together), padded=padded)
            for batch in _slices(run, min(size, max(FEWEST, sequences_per_pass(run))))
        ]
        for wanted in (False, True)
    )
    return learnt, held_out


def micro_batches(batch: Sequences) -> list[Sequences]:
    """Cut a batch into what the memory allows in a backward pass."""
    return _slices(batch, sequences_per_pass(batch))


def sequences_per_pass(sequences: Sequences) -> int:
    """Return how many sequences of this length the memory allows in a backward pass."""
    return max(2, STEPS_PER_PASS // sequences.x.shape[1] // 2 * 2)


def _runs(sequences: Sequences, rows: Tensor, *, padded: bool) -> Iterator[Sequences]:
    """Yield some sequences; without padding in order of length, a few batches together, cut after the longest.

    rows: (n, together); sequences that follow each other in them stay together.
    """
    x, lengths = sequences.x, None if sequences.lengths is None else sequences.lengths.cpu()
    size = max(1, len(rows))
    if lengths is not None and not padded:
        rows, size = rows[lengths[rows].amax(1).argsort(descending=True, stable=True)], RUN // rows.shape[1]
    for run in filter(len, torch.split(rows, size)):
        ends = None if lengths is None else lengths[run.flatten()]
        longest = x.shape[1] if padded or ends is None else int(ends.max())
        yield Sequences(x[:, :longest][run.flatten()], ends)


def _slices(sequences: Sequences, size: int) -> list[Sequences]:
    """Cut into slices of `size` sequences; a last slice of one is dropped, since models of pairs cannot take it."""
    slices = [sequences.rows(slice(start, start + size)) for start in range(0, len(sequences.x), size)]
    return [part for part in slices if len(part.x) > 1 or len(slices) == 1]


def one_cycle(share: float) -> float:
    """Return the rate at a share of the time: it rises linearly and falls as a cosine.

    >>> [round(one_cycle(share), 3) for share in (0, 0.15, 0.575, 1)]
    [0.0, 1.0, 0.5, 0.0]
    """
    rise = 0.15
    return share / rise if share < rise else (1 + math.cos(math.pi * (share - rise) / (1 - rise))) / 2


def _answer(model: nn.Module, sequences: Sequences) -> Tensor:
    """Return a model's answers, without those at steps that are padding; of pairs the batch has one after the other."""
    if compares_pairs(model):
        sequences = in_halves(sequences)
    output = answer(model, sequences)
    if output is None:
        raise InputError(f"Recovery compares output tensors; {type(model).__name__} gives none.")
    return output


def changed_probability(logits: Tensor, expected: Tensor) -> Tensor:
    """Return how much probability moved from class to class, from 0 to 1, the mean over all answers.

    Unlike the divergence it is bounded, so a few answers that are wrong with confidence do not outweigh all others.

    >>> float(changed_probability(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 99.0]])))
    0.5
    """
    return (logits.softmax(-1) - expected.softmax(-1)).abs().sum(-1).mean() / 2
