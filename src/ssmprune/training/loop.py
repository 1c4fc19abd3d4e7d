"""Train a classifier on a task, or fine-tune a pruned one: one function, resumable to the bit."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.module import register_module_forward_hook

from ..calibration.data import Sequences
from ..errors import InputError
from ..files import write_atomically
from ..models import checkpoint
from ..models.checkpoint import parameters
from ..models.classifier import Classifier, measure_statistics
from ..progress import Bar
from ..recovery.resume import State, collect_stop_requests, fingerprint, load_state, save_state
from ..tasks.cards import copy_card, write_card
from ..tasks.task import Split, Task, fewer
from . import distributed
from .evaluation import Score, answer_split, check_fits, score, tally, tensors
from .gradual_pruning import Schedule, shrink_training
from .recipes import Recipe, parameter_groups, warmup_cosine

MEASURED = 64  # batches that batch norms take their statistics for evaluation from


class Diverged(InputError):
    """A gradient is no longer finite; the message names the layer and says what can be done."""


@dataclass(frozen=True)
class Run:
    """Where a training is kept, its seed, and whether it shows progress; a folder with a saved state is resumed."""

    folder: Path
    seed: int = 0
    save_every: int = 100  # steps
    progress: bool = True
    card: dict[str, Any] = field(default_factory=dict)  # further entries for the cards of its checkpoints


@dataclass(frozen=True)
class Result:
    """What a training reached; `best` and `last` are checkpoints that `models.checkpoint.load` reads."""

    best: Path
    last: Path
    best_accuracy: float  # on the validation split
    best_epoch: int
    steps: int
    seconds: float  # of training and validation, over all resumptions
    finished: bool  # False when it was asked to stop; the same call resumes


@dataclass
class Position:
    """How far a training has come; saved with its state."""

    step: int = 0
    seconds: float = 0.0
    best_accuracy: float = -1.0
    best_epoch: int = 0
    curve: list[float] = field(default_factory=list)  # the accuracy of each validation


def train(
    task: Task,
    recipe: Recipe,
    run: Run,
    *,
    root: Path | None = None,
    start: Classifier | None = None,
    pruning: Schedule | None = None,
) -> Result:
    """Train by `recipe` on `task`, from scratch or from the model `start`.

    With `pruning` the model loses states on the way, and gets faster; the best model is one of those pruned most.

    The run's folder gets `log.jsonl`, `best.safetensors` (highest validation accuracy) and `last.safetensors` with a
    card each, and `state.safetensors`, from which a killed training resumes. Under torchrun every process calls this,
    and each batch is shared among them.
    """
    task = task.replace(**recipe.task)
    examples, validation = task.load("train", root), task.load("val", root)
    with distributed.join_group() as group, torch.random.fork_rng():
        torch.manual_seed(run.seed)
        model = _model_for(task, recipe, examples, start)
        examples = fewer(examples, recipe.examples)
        identity = {
            "task": task.name,
            "recipe": asdict(recipe),
            "seed": run.seed,
            "examples": len(examples),
            "pruning": asdict(pruning) if pruning else None,
            "start": fingerprint(start) if start else None,
            "model": model.config.to_dict(),
        }
        with collect_stop_requests(group.size == 1) as requests:
            return _Training(model, recipe, (examples, validation), run, group, pruning, identity).run_until(requests)


def _model_for(task: Task, recipe: Recipe, examples: Split, start: Classifier | None) -> Classifier:
    """Return a new model, or a copy of `start` with the dropout of the recipe, not that of the old training."""
    wanted = recipe.config(task, examples.inputs, examples.outputs)
    if start is None:
        return Classifier(wanted)
    had = start.config
    if had.family != wanted.family:
        raise InputError(f"The recipe is for {wanted.family}, the model to start from is an {had.family}.")
    if had.retrieval != wanted.retrieval:
        kinds = {True: "pairs of documents", False: "single sequences"}
        raise InputError(f"The task is about {kinds[wanted.retrieval]}, the model takes {kinds[had.retrieval]}.")
    model = Classifier(dataclasses.replace(had, dropout=wanted.dropout))
    model.load_state_dict(start.state_dict())
    check_fits(model, examples)
    return model


def resize(model: Classifier, saved: State[Position]) -> Classifier:
    """Return a model with as many states in each layer as the saved one: pruning may have taken some."""
    weights = saved.part("model/")
    states = tuple(len(weights[f"layers.{layer}.ssm.pole_re"]) for layer in range(model.config.depth))
    return model if states == model.config.states else Classifier(dataclasses.replace(model.config, states=states))


class _Training:
    """One training in progress."""

    def __init__(
        self,
        model: Classifier,
        recipe: Recipe,
        splits: tuple[Split, Split],
        run: Run,
        group: distributed.Group,
        pruning: Schedule | None,
        identity: dict[str, Any],
    ) -> None:
        self.recipe, self.run, self.group, self.pruning, self.identity = recipe, run, group, pruning, identity
        self.examples, self.validation = splits
        self.states_at_first = sum(model.config.states)
        self.per_epoch = len(self.examples) // recipe.batch
        self.steps = self.per_epoch * recipe.epochs
        if recipe.batch % group.size:
            raise InputError(
                f"{group.size} processes cannot share a batch of {recipe.batch} evenly; use a number that divides it."
            )
        if not self.per_epoch:
            raise InputError(
                f"{len(self.examples)} training examples do not fill a batch of {recipe.batch}; take a smaller one."
            )
        self.log = run.folder / "log.jsonl"
        self.state_path, self.best, self.last = (run.folder / f"{n}.safetensors" for n in ("state", "best", "last"))
        self.window = torch.zeros(3, dtype=torch.float64, device=group.device)  # tally since the last log line
        self.order, self.clock = (np.empty(0, np.int64), -1), time.monotonic()
        self._begin(model)

    def _begin(self, model: Classifier) -> None:
        """Resume from the saved state if there is one, else start."""
        saved = load_state(self.state_path, self.identity, Position) if self.state_path.exists() else None
        self.position = saved.position if saved else Position()
        if not self.group.agrees_on(self.position.step):  # else they would wait for each other for ever
            folder = self.run.folder
            raise InputError(f"The processes find different trainings in {folder}; it must be a folder they share.")
        self._take(resize(model, saved) if saved else model)
        if saved:
            saved.restore(self.model, self.optimizer)
        if self.group.rank == 0:
            forget_later_events(self.log, self.position.step)
        if not saved:
            self.write("start", parameters=parameters(model), **self.identity)

    def _take(self, model: Classifier) -> None:
        """Continue with this model and a new optimiser."""
        self.model = model.to(self.group.device).train()
        self.optimizer = torch.optim.AdamW(parameter_groups(model, self.recipe), fused=True)
        self.replica = self.group.wrap(model)

    def run_until(self, requests: list[int]) -> Result:
        """Train to the end, or until there is a request to stop."""
        position = self.position
        self.prune()
        with Bar(total=self.steps, shown=self.run.progress and self.group.rank == 0) as bar:
            while position.step < self.steps and not requests:
                seen = self.advance()
                self.prune()
                epoch, rest = divmod(position.step, self.per_epoch)
                figures = f"loss {seen.loss:.3f}  accuracy {seen.accuracy:.1%}"
                bar.show(position.step, f"epoch {epoch + (rest > 0)}/{self.recipe.epochs}", figures=figures)
                if rest == 0:
                    bar.say(self.validate(epoch))
                if rest == 0 or position.step % self.run.save_every == 0 or requests:
                    self.save()
        return Result(
            self.best, self.last, position.best_accuracy, position.best_epoch, position.step, position.seconds,
            finished=position.step == self.steps,
        )  # fmt: skip

    def prune(self) -> None:
        """Remove the states that the schedule prunes by this step, if they are still there."""
        ratio = self.pruning.ratio(self.position.step, self.steps) if self.pruning else 0.0
        if not self.pruning or not ratio:
            return
        plan = self.pruning.plan(self.model, self.states_at_first, ratio, self._next_inputs)
        if plan is None:
            return
        small, moments = shrink_training(self.model, self.optimizer, plan)
        self._take(small)
        for name, parameter in small.named_parameters():
            self.optimizer.state[parameter] = moments.get(name, {})
        self.position.best_epoch = 0  # the best model so far was a larger one
        self.write("pruning", ratio=ratio, states=list(small.config.states))

    def advance(self) -> Score:
        """Take one optimiser step and return how the model does on its batch."""
        share = warmup_cosine(self.position.step, self.steps, self.recipe.warmup * self.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        sequences, labels = self._share(self._next())
        self._seed_dropout()
        logits = self.replica(*sequences)
        self.optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(logits, labels, reduction="none").mean())
        if not has_finite_gradients(self.model):
            raise self._diverged(sequences)
        self.optimizer.step()
        sums = tally(logits.detach(), labels)
        self.window += sums
        self.position.step += 1
        return score(sums)

    def _share(self, batch: NDArray[np.int64]) -> tuple[Sequences, Tensor]:
        """Return the share of a batch that this process computes."""
        return tensors(self.examples.batch(batch[self.group.rank :: self.group.size]), self.group.device)

    def _next_inputs(self) -> list[Sequences]:
        """Return the inputs of the next batch, the same in every process."""
        return [tensors(self.examples.batch(self._next()), self.group.device)[0]]

    def _next(self) -> NDArray[np.int64]:
        """Return the numbers of the next examples; the order depends on seed and epoch alone."""
        epoch, place = divmod(self.position.step, self.per_epoch)
        if self.order[1] != epoch:
            self.order = np.random.default_rng([self.run.seed, epoch]).permutation(len(self.examples)), epoch
        return self.order[0][place * self.recipe.batch :][: self.recipe.batch]

    def _seed_dropout(self) -> None:
        """Let dropout depend on seed, step and rank alone, so that no generator has to be saved."""
        draw = np.random.SeedSequence([self.run.seed, self.position.step, self.group.rank])
        torch.manual_seed(int(draw.generate_state(1, np.uint64)[0]))

    def _diverged(self, sequences: Sequences) -> Diverged:
        self._seed_dropout()
        where = first_not_finite(self.model, *sequences)
        self.write("diverged", where=where)
        return Diverged(
            f"Training stopped at step {self.position.step}: {where} is not finite. Try a lower learning rate "
            f"(now {self.recipe.lr}, of the SSM {self.recipe.ssm_lr}) or a longer warm-up "
            f"(now {self.recipe.warmup} epochs) in another folder."
        )

    def validate(self, epoch: int) -> str:
        """Score the validation split, keep the last and the best model, and say how it went."""
        batches = self.order[0][: self.per_epoch * self.recipe.batch].reshape(self.per_epoch, -1)
        measure_statistics(self.model, (self._share(batch)[0] for batch in batches[:MEASURED]))
        mine = np.arange(self.group.rank, len(self.validation), self.group.size)
        answers = answer_split(self.model, self.validation, self.recipe.batch, mine)
        sums = sum((tally(*pair) for pair in answers), torch.zeros_like(self.window))
        seen = score(self.group.total(sums))
        if self.group.rank == 0:
            checkpoint.save(self.model, self.last)
        if not self.position.best_epoch or seen.accuracy > self.position.best_accuracy:
            self.position.best_accuracy, self.position.best_epoch = seen.accuracy, epoch
            if self.group.rank == 0:
                checkpoint.save(self.model, self.best)
        self.position.curve.append(seen.accuracy)
        self.write("validation", **asdict(seen))
        if self.group.rank == 0:  # at every epoch, so that a killed training leaves cards, too
            write_card(self.best, self._card())
            copy_card(self.best, self.last)
        return f"epoch {epoch}: validation loss {seen.loss:.4f}, accuracy {seen.accuracy:.2%}"

    def _card(self) -> dict[str, Any]:
        """Return the card of the best model: the settings of its training, and how far it got."""
        about, position = self.identity, self.position
        card = {
            "task": about["task"],
            "task_parameters": about["recipe"]["task"],
            "model": about["recipe"]["family"],
            "settings": about["recipe"],
            "seed": about["seed"],
            "training_examples": about["examples"],
            "epochs": len(position.curve),
            "validation_accuracy": position.best_accuracy,
            "validation_curve": position.curve,
            "seconds": round(position.seconds, 1),
        }
        return card | {key: about[key] for key in ("start", "pruning") if about[key]} | self.run.card

    def save(self) -> None:
        """Log the steps since the last save, then write the state: a log may be ahead of it, never behind."""
        seen = score(self.group.total(self.window))
        self.window.zero_()
        self.write("train", **asdict(seen), lr=self.optimizer.param_groups[1]["lr"])
        if self.group.rank == 0:
            save_state(self.state_path, self.model, self.optimizer, self.position, self.identity)

    def write(self, event: str, **fields: Any) -> None:
        """Add a line to the log, and the time since the last line to the time spent."""
        now = time.monotonic()
        self.position.seconds, self.clock = self.position.seconds + now - self.clock, now
        if self.group.rank == 0:
            entry = {"event": event, "step": self.position.step, "seconds": round(self.position.seconds, 1), **fields}
            with self.log.open("a") as file:
                file.write(json.dumps(entry) + "\n")


def forget_later_events(log: Path, step: int) -> None:
    """Drop what a log of JSON lines says of the steps after a saved step, which are taken again."""
    try:
        lines = log.read_text("utf-8").splitlines(keepends=True) if log.exists() and step else []
        complete = [line for line in lines if line.endswith("\n")]  # a kill may tear the last line
        past = [line for line in complete if json.loads(line)["step"] <= step]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{log} is not the log of a training ({error}); move it away to continue.") from error
    write_atomically(log, "".join(past).encode())


def has_finite_gradients(model: nn.Module) -> bool:
    """Return whether every gradient is finite (a loss that is not finite has none that are)."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return bool(torch.isfinite(torch.stack([gradient.sum() for gradient in gradients])).all())


def first_not_finite(model: nn.Module, *inputs: Tensor | None) -> str:
    """Name the first place, in the order of computation, where something is not finite.

    Parameters come first, then the outputs of the modules on `inputs`, then gradients, from the last layer on.
    """
    names = {module: name for name, module in model.named_modules() if name}
    found: list[str] = []

    def check(what: str, value: object) -> None:
        if isinstance(value, Tensor) and not torch.isfinite(value).all():
            found.append(what)

    def check_output(module: nn.Module, _inputs: object, output: object) -> None:
        if module in names:
            check(f"the output of {names[module]}", output)

    for name, parameter in model.named_parameters():
        check(f"the parameter {name}", parameter)
    with register_module_forward_hook(check_output), torch.no_grad():
        model(*inputs)
    for name, parameter in reversed(list(model.named_parameters())):
        check(f"the gradient of {name}", parameter.grad)
    return found[0] if found else "the loss"
