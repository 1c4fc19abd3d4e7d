"""Train a classifier on a task, or fine-tune a pruned one: one function, resumable to the bit."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..calibration.batches import Padded, Unlabelled
from ..errors import InputError
from ..models import checkpoint
from ..models.classifier import Classifier
from ..tasks._task import Split, Task, fewer
from . import distributed
from ._divergence import Diverged, culprit, finite_gradients
from ._meter import Meter
from ._rates import parameter_groups, rate
from .evaluate import Score, check_fits, score, tally, tally_split, tensors
from .gradual_pruning import Schedule, shrink_training
from .norm_statistics import measure_statistics
from .recipes import Recipe
from .state import Log, Position, State, fingerprint, load_state, save_state

MEASURED = 64  # batches that batch norms take their statistics for evaluation from


@dataclass(frozen=True)
class Result:
    """What a training reached; `best` and `last` are checkpoints that `models.checkpoint.load` reads."""

    best: Path
    last: Path
    best_accuracy: float  # on the validation split
    best_epoch: int
    steps: int
    seconds: float  # of training and validation, over all resumptions
    finished: bool  # False when it was asked to stop; the same call goes on


def train(
    task: Task,
    recipe: Recipe,
    run_dir: Path,
    *,
    root: Path | None = None,
    seed: int = 0,
    start: Classifier | None = None,
    pruning: Schedule | None = None,
    save_every: int = 100,
    progress: bool = True,
) -> Result:
    """Train by `recipe` on `task`, from scratch or from the model `start`; a `run_dir` with a saved state goes on.

    With `pruning` the model loses states on the way, and gets faster; the best model is one of those pruned most.

    The folder gets `log.jsonl`, `best.safetensors` (highest validation accuracy), `last.safetensors` and
    `state.safetensors`, from which a killed training resumes. State and log are written every `save_every`
    steps. Under torchrun every process calls this, and each batch is shared among them.
    """
    task = task.replace(**recipe.task)
    examples, val = task.load("train", root), task.load("val", root)
    with distributed.joined() as group, torch.random.fork_rng():
        torch.manual_seed(seed)
        config = recipe.config(task, examples.inputs, examples.outputs)
        model = tunable(start, recipe) if start else Classifier(config)
        check_fits(model, examples)
        weights = fingerprint(start) if start else None
        training = _Training(model, recipe, task, examples, val, group, run_dir, seed, pruning, weights)
        return training.run(save_every, progress and group.rank == 0)


def tunable(start: Classifier, recipe: Recipe) -> Classifier:
    """A copy of `start` that is trained as the recipe says: its dropout, not that of the old training."""
    if start.config.family != recipe.family:
        raise InputError(f"The recipe is for {recipe.family}, the model to start from is an {start.config.family}.")
    model = Classifier(dataclasses.replace(start.config, dropout=recipe.dropout))
    model.load_state_dict(start.state_dict())
    return model


def resized(model: Classifier, saved: State) -> Classifier:
    """The model with as many states in each layer as the saved one: pruning may have taken some."""
    weights = saved.part("model/")
    states = tuple(len(weights[f"layers.{layer}.ssm.pole_re"]) for layer in range(model.config.depth))
    return model if states == model.config.states else Classifier(dataclasses.replace(model.config, states=states))


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that fills when the process is asked to stop (Ctrl-C, SIGTERM), so that no step is cut in two."""
    requests: list[int] = []
    if current_thread() is not main_thread():  # only the main thread may set handlers
        yield requests
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: requests.append(number)) for number in signals]
    try:
        yield requests
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


class _Training:
    """One training in progress."""

    def __init__(
        self,
        model: Classifier,
        recipe: Recipe,
        task: Task,
        train: Split,
        val: Split,
        group: distributed.Group,
        run_dir: Path,
        seed: int,
        pruning: Schedule | None,
        start: str | None,
    ) -> None:
        self.recipe, self.val, self.group, self.seed, self.pruning = recipe, val, group, seed, pruning
        self.train = fewer(train, recipe.examples)
        self.examples = len(self.train)
        self.per_epoch = self.examples // recipe.batch
        self.steps = self.per_epoch * recipe.epochs
        distributed.check_shares(recipe.batch, group.size)
        if not self.per_epoch:
            short = f"{self.examples} training examples do not fill a batch of {recipe.batch}"
            raise InputError(f"{short}; take a smaller one.")
        which = {"task": task.name, "recipe": asdict(recipe), "seed": seed, "examples": self.examples}
        which |= {"pruning": asdict(pruning) if pruning else None, "start": start}
        self.identity, self.whole = which | {"model": model.config.to_dict()}, sum(model.config.states)
        self.state_path, self.best, self.last = (run_dir / f"{n}.safetensors" for n in ("state", "best", "last"))
        saved = load_state(self.state_path, self.identity) if self.state_path.exists() else None
        self.position = saved.position if saved else Position()
        if not group.agrees_on(self.position.step):  # they would wait for each other for ever
            raise InputError(f"The processes find different trainings in {run_dir}; it must be a folder they share.")
        self._take(resized(model, saved) if saved else model)
        if saved:
            saved.restore(self.model, self.optimizer)
        self.window = torch.zeros(3, dtype=torch.float64, device=group.device)  # tally since the last log line
        self.order, self.clock = (np.empty(0, np.int64), -1), time.monotonic()
        self.log = Log(run_dir / "log.jsonl", self.position.step) if group.rank == 0 else None
        if not saved:
            self.write("start", parameters=sum(p.numel() for p in model.parameters()), **self.identity)

    def _take(self, model: Classifier) -> None:
        """Go on with this model and a fresh optimiser."""
        self.model = model.to(self.group.device).train()
        self.optimizer = torch.optim.AdamW(parameter_groups(model, self.recipe), fused=True)
        self.replica = self.group.wrap(model)

    def run(self, save_every: int, progress: bool) -> Result:
        """Train to the end, or until asked to stop."""
        position = self.position
        # Several processes are stopped by torchrun, all at once; each on its own would leave the others waiting.
        stoppable: AbstractContextManager[list[int]] = stop_requests() if self.group.size == 1 else nullcontext([])
        self.prune()
        with Meter(self.steps, position.step, shown=progress) as meter, stoppable as requests:
            while position.step < self.steps and not requests:
                seen = self.advance()
                self.prune()
                epoch, rest = divmod(position.step, self.per_epoch)
                meter.show(position.step, f"epoch {epoch + (rest > 0)}/{self.recipe.epochs}", seen)
                if rest == 0:
                    meter.say(self.validate(epoch))
                if rest == 0 or position.step % save_every == 0 or requests:
                    self.save()
        return Result(
            self.best, self.last, position.best_accuracy, position.best_epoch, position.step, position.seconds,
            finished=position.step == self.steps,
        )  # fmt: skip

    def prune(self) -> None:
        """Remove the states that the schedule wants gone by now, if they are still there."""
        ratio = self.pruning.ratio(self.position.step, self.steps) if self.pruning else 0.0
        plan = self.pruning.plan(self.model, self.whole, ratio, self._inputs) if self.pruning and ratio else None
        if plan is None:
            return
        small, moments = shrink_training(self.model, self.optimizer, plan)
        self._take(small)
        for name, parameter in small.named_parameters():
            self.optimizer.state[parameter] = moments.get(name, {})
        self.position.best_accuracy = -1.0  # of larger models
        self.write("pruning", ratio=ratio, states=list(small.config.states))

    def advance(self) -> Score:
        """One optimiser step; returns how the model does on its batch."""
        share = rate(self.position.step, self.steps, self.recipe.warmup * self.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        x, labels, lengths = self._share(self._next())
        self._seed_dropout()
        logits = self.replica(x, lengths)
        self.optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(logits, labels))
        if not finite_gradients(self.model):
            raise self._diverged(x, lengths)
        self.optimizer.step()
        sums = tally(logits.detach(), labels)
        self.window += sums
        self.position.step += 1
        return score(sums)

    def _share(self, batch: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor | None]:
        """This process' part of a batch."""
        return tensors(self.train.batch(batch[self.group.rank :: self.group.size]), self.group.device)

    def _epoch_inputs(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """This process' part of the inputs that the epoch began with."""
        for batch in self.order[0][: self.per_epoch * self.recipe.batch].reshape(self.per_epoch, -1)[:MEASURED]:
            x, _, lengths = self._share(batch)
            yield x, lengths

    def _inputs(self) -> list[Unlabelled]:
        """The inputs of the next batch, the same in every process."""
        x, _, lengths = tensors(self.train.batch(self._next()), self.group.device)
        return [x if lengths is None else Padded(x, lengths)]

    def _next(self) -> NDArray[np.int64]:
        """Which examples are next; the order depends on seed and epoch alone."""
        epoch, place = divmod(self.position.step, self.per_epoch)
        if self.order[1] != epoch:
            self.order = np.random.default_rng([self.seed, epoch]).permutation(self.examples), epoch
        return self.order[0][place * self.recipe.batch :][: self.recipe.batch]

    def _seed_dropout(self) -> None:
        """Dropout of a step depends on seed, step and rank alone, so no generator has to be saved."""
        draw = np.random.SeedSequence([self.seed, self.position.step, self.group.rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(draw[0]))

    def _diverged(self, x: Tensor, lengths: Tensor | None) -> Diverged:
        self._seed_dropout()
        where = culprit(self.model, x, lengths)
        self.write("diverged", where=where)
        return Diverged(
            f"Training stopped at step {self.position.step}: {where} is not finite. Try a lower learning rate "
            f"(now {self.recipe.lr}, of the SSM {self.recipe.ssm_lr}) or a longer warm-up "
            f"(now {self.recipe.warmup} epochs) in another folder."
        )

    def validate(self, epoch: int) -> str:
        """Score the validation split, keep the last and the best model, and say how it went."""
        measure_statistics(self.model, self._epoch_inputs())
        mine = np.arange(self.group.rank, len(self.val), self.group.size)
        seen = score(self.group.total(tally_split(self.model, self.val, self.recipe.batch, mine)))
        if self.group.rank == 0:
            checkpoint.save(self.model, self.last)
        if seen.accuracy > self.position.best_accuracy:
            self.position.best_accuracy, self.position.best_epoch = seen.accuracy, epoch
            if self.group.rank == 0:
                checkpoint.save(self.model, self.best)
        self.write("validation", **asdict(seen))
        return f"epoch {epoch}: validation loss {seen.loss:.4f}, accuracy {seen.accuracy:.2%}"

    def save(self) -> None:
        """Log the steps since the last save, then write the state: a log may be ahead of it, never behind."""
        seen = score(self.group.total(self.window))
        self.window.zero_()
        self.write("train", **asdict(seen), lr=self.optimizer.param_groups[1]["lr"])
        if self.group.rank == 0:
            save_state(self.state_path, self.model, self.optimizer, self.position, self.identity)

    def write(self, event: str, **fields: Any) -> None:
        """Add a line to the log, and the time since the last one to the time spent."""
        now = time.monotonic()
        self.position.seconds, self.clock = self.position.seconds + now - self.clock, now
        if self.log:
            self.log.write(event, step=self.position.step, seconds=round(self.position.seconds, 1), **fields)
