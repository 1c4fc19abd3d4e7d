"""Recovery: a pruned model learns the whole model's answers again, on inputs without labels.

A few minutes of gradient steps repair what no closed form can, since poles move. The whole model teaches, by its logits
or, where outputs are no logits, by its outputs. Some inputs are held out: the weights that did best on them win, and
those that the model came with take part, so it never gets worse there.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..adapters import Adapter, layers_of
from ..calibration.recording import Sequences, refuse_what_cannot_run
from ..errors import InputError, one_of
from ..models._history import note
from ..models.classifier import Classifier
from ..progress import Bar
from ._lessons import agreement, answer, changed_probability, divergence_of_logits, in_memory, lessons, squared_error
from .state import collect_stop_requests, fingerprint, load_state, save_state

Model = TypeVar("Model", bound=nn.Module)
What = Literal["all", "states"]
WHAT = {"all": "every parameter", "states": "the parameters of the SSM layers"}
PACE = 180  # steps in a minute, of 32 sequences of 1,024 steps: what two cores do easily
FEWEST_STEPS = 32
LARGEST_RATE = 3e-3  # a third of this repairs less in a few minutes, twice as much may repair nothing
HARMED = 0.2  # held-out damage from which on the largest rate is right; below it the rate falls with its square root
VALIDATIONS = 16  # in the time that was planned
RETREAT = 0.25  # of the rate is left when it was too high: a little damage can be undone by small steps alone
CLIP = 1.0  # largest norm of a gradient
HELD_OUT = 0.1  # of the sequences, but at most
MOST_HELD_OUT = 384
NEGLIGIBLE = 1e-5, 1e-7  # damage that rounding alone can do, of classifiers and of other models


class Standing(NamedTuple):
    """How a pruned model does on the held-out inputs: its damage, and for classifiers how often it agrees."""

    damage: float  # how much probability moved between classes, or the error's share of the outputs' energy
    agreement: float | None

    @property
    def is_negligible(self) -> bool:
        """Whether rounding may be all that tells the models apart."""
        return self.damage <= NEGLIGIBLE[self.agreement is None]

    @property
    def figure(self) -> str:
        """What a person can judge."""
        return f"{self.damage:.2%}" if self.agreement is None else f"{self.agreement:.1%}"

    def __str__(self) -> str:
        """Show the figure and what it is."""
        return f"{'error' if self.agreement is None else 'agreement'} {self.figure}"


@dataclass(frozen=True)
class Recovered(Generic[Model]):
    """The model that did best on the held-out inputs, and how it got there."""

    model: Model
    before: Standing
    after: Standing
    steps: int
    seconds: float
    finished: bool = True  # False when it was asked to stop; the same call resumes

    def facts(self) -> dict[str, Any]:
        """Return all but the model, for JSON."""
        standing = {"before": self.before._asdict(), "after": self.after._asdict()}
        return standing | {"steps": self.steps, "seconds": round(self.seconds, 1)}

    def __str__(self) -> str:
        """Say what recovery did, and in what time."""
        return f"Recovery: {self.gain}" + (f" ({self.seconds:.0f} s)" if self.steps else "")

    @property
    def gain(self) -> str:
        """Say what recovery did, in the same words each time that it does the same."""
        if self.before.is_negligible:
            return "the model answers as the whole one does; it needs none and is as it was"
        if self.after.damage >= self.before.damage:
            return f"nothing gained in {self.steps} steps; the model is as it was"
        repaired = 1 - self.after.damage / self.before.damage
        change = f"{self.before} -> {self.after.figure}"
        return f"{repaired:.0%} of the damage repaired in {self.steps} steps, held-out {change}"


@dataclass
class _Position:
    """Where a recovery stands."""

    step: int = 0
    seconds: float = 0.0
    before: tuple[float, float | None] = (0.0, None)
    best: tuple[float, float | None] = (0.0, None)
    ended: bool = False
    steps: int = 0  # that are planned
    share: float = 1.0  # of the rate that the damage asks for


class Recovery(Generic[Model]):
    """A pruned model, the whole model that teaches it, and unlabelled inputs for both.

    what: "all" lets everything learn, "states" the SSM layers alone.
    data: batches as for `collect`, but many: the first 8,000 sequences are used.
    """

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
        """Hold out a part of the data, and see how the pruned model does on it."""
        one_of("part of a model to recover", what, WHAT)
        refuse_what_cannot_run(small)
        refuse_what_cannot_run(model)
        self.small, self.what, self.seed, self.adapter = small, what, seed, adapter
        self.student, self.teacher = copy.deepcopy(small).eval(), copy.deepcopy(model).eval().requires_grad_(False)
        batches = lessons(data)
        size = max(len(batch.x) for batch in batches)
        count = max(1, round(min(HELD_OUT * len(batches), MOST_HELD_OUT / size)))
        order = np.random.default_rng(seed).permutation(len(batches))
        self.lessons = [batches[k] for k in sorted(order[count:])]
        with torch.no_grad():
            parts = [part for k in sorted(order[:count]) for part in in_memory(batches[k])]
            self.held_out = [(part, answer(self.teacher, part)) for part in parts]
        self.known: dict[int, list[Tensor]] = {}  # what the whole model answered, where that is no long sequence
        self.classifies = isinstance(small, Classifier) and small.config.outputs > 1
        energy = float(np.mean([float(expected.abs().square().mean()) for _, expected in self.held_out]))
        self.unit = 1.0 if self.classifies else max(energy, 1e-12)
        self._begin()

    def of(self, small: Model) -> Recovery[Model]:
        """Return the recovery of another pruned model by the same teacher on the same data, answers once for both."""
        other = copy.copy(self)
        other.small, other.student = small, copy.deepcopy(small).eval()
        other._begin()
        return other

    def _begin(self) -> None:
        """See how the pruned model does before it learns."""
        self.unstable, self.before = self._unstable(), self.standing()
        if not math.isfinite(self.before.damage):
            raise InputError(
                "The answers of the two models to the inputs held out differ by a number that is not finite; look for "
                "NaN or infinity in the data and in the weights."
            )

    def run(
        self,
        minutes: float = 5.0,
        *,
        steps: int | None = None,
        state: Path | None = None,
        progress: bool = True,
    ) -> Recovered[Model]:
        """Learn for `steps` steps, by default as many as two cores do in these minutes, but never longer than that.

        A machine that is behind at half-time takes fewer, so that the rate still falls to zero within the time; the
        result then depends on how fast it was.

        state: a file from which the same call resumes, to the bit unless the machine is too slow, after a kill.
        """
        if not 0 < minutes < math.inf:
            raise InputError(f"minutes is the time that recovery may take, above 0; got {minutes!r}.")
        if steps is not None and steps < 1:
            raise InputError(f"steps is a number from 1 on, or None for what the minutes allow; got {steps!r}.")
        planned = self.planned_steps(minutes) if steps is None else steps
        if torch.is_inference_mode_enabled():
            raise InputError("Recovery needs gradients; call it outside torch.inference_mode().")
        optimizer = torch.optim.Adam(self._groups())
        position = _Position(before=self.before, best=self.before, steps=planned)
        best = _copied(self.student)
        identity = self._identity(planned)
        if state is not None and state.exists():
            saved = load_state(state, identity, _Position, "recovery")
            saved.restore(self.student, optimizer)
            position, best = saved.position, saved.part("best/")
        elif self.before.is_negligible:
            position.ended = True
        clock = time.monotonic() - position.seconds
        stopping = collect_stop_requests(state is not None)
        with stopping as asked_to_stop, Bar("Recovering", planned, shown=progress, brief=True) as bar:
            while not position.ended and not asked_to_stop:
                bar.total = position.steps
                bar.show(position.step, "Recovering", str(Standing(*position.best)))
                self._learn(optimizer, position)
                position.step += 1
                position.seconds = time.monotonic() - clock
                if position.seconds > 30 * minutes:
                    position.steps = min(position.steps, 2 * position.step)
                position.ended = position.step >= position.steps or position.seconds > 60 * minutes
                if position.step % math.ceil(position.steps / VALIDATIONS) == 0 or position.ended:
                    best = self._judge(optimizer, position, best)
                    if state is not None:
                        save_state(state, self.student, optimizer, position, identity, best)
            if asked_to_stop and state is not None and not position.ended:
                save_state(state, self.student, optimizer, position, identity, best)
        return self._result(position, best)

    @torch.no_grad()
    def standing(self) -> Standing:
        """Compare the answers of both models on the held-out inputs."""
        damage = same = total = 0.0
        for part, expected in self.held_out:
            given = answer(self.student, part)
            if given.shape != expected.shape:
                raise InputError(
                    f"The pruned model answers {tuple(given.shape)}, the whole one {tuple(expected.shape)}; "
                    "give the model that was pruned, and the one it was pruned from."
                )
            count = len(part.x)
            damage, total = damage + count * float(self._damage(given, expected)), total + count
            same += count * agreement(given, expected) if self.classifies else 0.0
        return Standing(damage / total, same / total if self.classifies else None)

    def planned_steps(self, minutes: float) -> int:
        """Return a number of steps that depends on the data alone, not on how busy the machine is."""
        largest: int = max(len(lesson.x) * lesson.x.shape[1] for lesson in self.lessons)
        return max(FEWEST_STEPS, round(PACE * minutes * min(4.0, 32 * 1024 / largest)))

    def _judge(
        self, optimizer: torch.optim.Optimizer, position: _Position, best: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Validate and return the best weights so far.

        When half the steps have brought nothing the rate was too high: begin again with a part of it, and stop when
        that brings nothing either. Not earlier: most is gained when the rate falls.
        """
        now = self.standing()
        if now.damage < position.best[0] and self._unstable() <= self.unstable:  # also false for NaN
            position.best = now
            return _copied(self.student)
        if position.best[0] == position.before[0]:
            if position.share == RETREAT:
                position.ended |= 4 * position.step >= 3 * position.steps
            elif 2 * position.step >= position.steps:
                position.share = RETREAT
                self.student.load_state_dict(best)
                if not math.isfinite(now.damage):
                    optimizer.state.clear()  # its averages of gradients are no numbers any more
        return best

    @torch.enable_grad()
    def _learn(self, optimizer: torch.optim.Optimizer, position: _Position) -> None:
        """Take one step: a fresh order of the lessons each time round, one cycle of the rate over all steps."""
        turn, place = divmod(position.step, len(self.lessons))
        index = int(np.random.default_rng([self.seed, turn]).permutation(len(self.lessons))[place])
        parts = in_memory(self.lessons[index])
        total = sum(len(part.x) for part in parts)
        optimizer.zero_grad()
        for part, expected in zip(parts, self._expected(index, parts), strict=True):
            loss = self._loss(answer(self.student, part), expected)
            torch.autograd.backward(loss * (len(part.x) / total))
        for group in optimizer.param_groups:
            group["lr"] = position.share * group["peak"] * one_cycle((position.step + 1) / (position.steps + 1))
            nn.utils.clip_grad_norm_(group["params"], CLIP)
        optimizer.step()

    def _expected(self, index: int, parts: list[Sequences]) -> list[Tensor]:
        """Return the whole model's answers to a lesson; short ones are kept for the next time round."""
        if index in self.known:
            return self.known[index]
        with torch.no_grad():
            expected = [answer(self.teacher, part) for part in parts]
        if sum(map(Tensor.numel, expected)) <= sum(part.x.numel() for part in parts):
            self.known[index] = expected
        return expected

    def _loss(self, given: Tensor, expected: Tensor) -> Tensor:
        return divergence_of_logits(given, expected) if self.classifies else self._damage(given, expected)

    def _damage(self, given: Tensor, expected: Tensor) -> Tensor:
        return (changed_probability if self.classifies else squared_error)(given, expected) / self.unit

    def _groups(self) -> list[dict[str, Any]]:
        """Return what learns, SSM layers and all else (clipped apart), at a rate that suits the damage."""
        peak = LARGEST_RATE * min(1.0, math.sqrt(self.before.damage / HARMED))
        paths = layers_of(self.student, self.adapter)
        states = {id(p): p for path in paths for p in self.student.get_submodule(path).parameters()}
        others = [p for p in self.student.parameters() if id(p) not in states] if self.what == "all" else []
        chosen = states.keys() | {id(p) for p in others}
        for parameter in self.student.parameters():
            parameter.requires_grad_(id(parameter) in chosen)
        groups = [group for group in (list(states.values()), others) if group]
        return [{"params": group, "peak": peak, "lr": 0.0} for group in groups]

    def _unstable(self) -> int:
        """Count the states without a stable pole: learning must not add any."""
        layers = layers_of(self.student, self.adapter).values()
        return sum(int(layer.read().unstable_states.sum()) for layer in layers)

    def _identity(self, steps: int) -> dict[str, Any]:
        examples = {str(k): lesson.x.numpy(force=True) for k, lesson in enumerate(self.lessons[:4])}
        return {
            "options": {"what": self.what, "seed": self.seed, "steps": steps},
            "pruned model": fingerprint(self.small),
            "whole model": fingerprint(self.teacher),
            "data": [len(self.lessons), [float(np.abs(x).sum()) for x in examples.values()]],
        }

    def _result(self, position: _Position, best: dict[str, Tensor]) -> Recovered[Model]:
        """Put the best weights into a copy of the model as it came, with its modes and flags."""
        model = copy.deepcopy(self.small)
        model.load_state_dict(best)
        before, after = Standing(*position.before), Standing(*position.best)
        outcome = Recovered(model, before, after, position.step, position.seconds, position.ended)
        note(model, f"recovered: {outcome.gain}")
        return outcome


def one_cycle(share: float, rise: float = 0.15) -> float:
    """Return the rate at a share of the time: up in a line, down as a cosine.

    >>> [round(one_cycle(share), 3) for share in (0, 0.15, 0.575, 1)]
    [0.0, 1.0, 0.5, 0.0]
    """
    return share / rise if share < rise else (1 + math.cos(math.pi * (share - rise) / (1 - rise))) / 2


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
