"""Let a model learn to read before it compares documents, for Retrieval: pairs are too few to learn both from.

    python -m ssmprune_paper.pretrain_retrieval --data DATA --out reader.safetensors
    ssmprune train retrieval --recipe cpu --from reader.safetensors --data DATA --out runs/retrieval

First a model tells how much of 128 bytes of text is about each of 64 topics; words that occur in the same documents
share a topic. Then its layers get a head that compares two documents, fitted while the layers stay as they are: a
random head sends trained layers noise for gradients, and they forget what they know before it has learned anything.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from ssmprune.errors import InputError
from ssmprune.files import write_atomically
from ssmprune.models import Classifier, measure_statistics, save
from ssmprune.progress import Bar
from ssmprune.tasks import Split, card_path
from ssmprune.training import Recipe, parameter_groups, warmup_cosine

from .recipes import RECIPES
from .tasks.retrieval import TASK, as_tokens, read_texts
from .topics import shares, sort_words

READING = {"lr": 0.004, "ssm_lr": 0.0026, "warmup": 0.3, "epochs": 4}  # in place of the cpu recipe's
MEASURED = 64  # batches from which batch norms take their statistics

HEAD_BATCH, HEAD_EPOCHS, HEAD_RATE = 32, 8, 0.001
HEAD_DECAY = 1.0  # strong: a head can learn some thousand examples by heart
# A feature that hardly moves is not blown up to the size of the others: its deviation counts as at least these shares
# of the largest deviation, and of its own mean, which raw features make the head subtract in single precision.
OF_LARGEST, OF_MEAN = 1e-3, 0.02


@dataclass(frozen=True)
class Pieces:
    """Pieces of documents, and how much of each is about every topic."""

    tokens: NDArray[np.uint16]  # (pieces, length)
    amounts: NDArray[np.float32]  # (pieces, topics), of mean 0 and variance 1 over the training pieces

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the tokens and the amounts of some pieces."""
        return torch.from_numpy(self.tokens[rows].astype(np.int64)), torch.from_numpy(self.amounts[rows])


def read_pieces(root: Path | None, topics: int, length: int) -> tuple[Pieces, Pieces]:
    """Return the pieces of the training and of the validation documents; the former decide on the topics."""
    texts = [read_texts(split, root) for split in ("train", "val")]
    topic_of = sort_words(texts[0], topics)
    cut = [cut_pieces(some, length) for some in texts]
    train, val = (np.stack([shares(piece, topic_of, topics) for piece in pieces]) for pieces in cut)
    mean, deviation = train.mean(0), train.std(0)
    deviation[deviation == 0] = 1  # of a topic that has lost all its words
    tokens = [np.stack([as_tokens(piece) for piece in pieces]) for pieces in cut]
    return Pieces(tokens[0], (train - mean) / deviation), Pieces(tokens[1], (val - mean) / deviation)


def cut_pieces(texts: list[bytes], length: int) -> list[bytes]:
    """Cut documents into pieces of equal length; the rest of a document is left out."""
    pieces = [text[at : at + length] for text in texts for at in range(0, len(text) - length + 1, length)]
    if not pieces:
        raise InputError(f"No document is {length} bytes long; choose shorter pieces.")
    return pieces


def learn_to_read(train: Pieces, val: Pieces, recipe: Recipe, seed: int = 0) -> tuple[Classifier, float]:
    """Train a model to tell the amounts; return the best by validation, and the share of variance it explains."""
    torch.manual_seed(seed)
    config = recipe.config(TASK, TASK.inputs, TASK.outputs)
    model = Classifier(dataclasses.replace(config, outputs=train.amounts.shape[1], retrieval=False))
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe), fused=True)
    per_epoch = len(train.tokens) // recipe.batch
    best, explained = model, -np.inf
    with Bar("Learning to read", recipe.epochs * per_epoch) as bar:
        for epoch in range(recipe.epochs):
            order = np.random.default_rng([seed, epoch]).permutation(len(train.tokens))
            batches = order[: per_epoch * recipe.batch].reshape(per_epoch, -1)
            for step, rows in enumerate(batches, start=epoch * per_epoch):
                share = warmup_cosine(step, recipe.epochs * per_epoch, recipe.warmup * per_epoch)
                for group in optimizer.param_groups:
                    group["lr"] = group["peak"] * share
                x, amounts = train.batch(rows)
                optimizer.zero_grad()
                torch.autograd.backward(mse_loss(model.train()(x), amounts))
                optimizer.step()
                bar.update()
            measure_statistics(model, ((train.batch(rows)[0], None) for rows in batches[:MEASURED]))
            now = variance_explained(model, val)
            bar.say(f"epoch {epoch + 1}: {now:.2%} of the variance explained")
            if now > explained:
                best, explained = copy.deepcopy(model), now
    return best, explained


@torch.no_grad()
def variance_explained(model: Classifier, pieces: Pieces, batch: int = 50) -> float:
    """Return which share of the variance of the amounts a model explains; they have unit variance."""
    model.eval()
    error = 0.0
    for rows in np.array_split(np.arange(len(pieces.tokens)), -(-len(pieces.tokens) // batch)):
        x, amounts = pieces.batch(rows)
        error += float((model(x).double() - amounts).square().mean(-1).sum())
    return 1 - error / len(pieces.tokens)


def compare_documents(reader: Classifier, outputs: int = 2) -> Classifier:
    """Return a model with the reader's layers and a new head, of random weights, that compares two documents."""
    model = Classifier(dataclasses.replace(reader.config, outputs=outputs, retrieval=True))
    for name in ("encoder", "layers"):
        model.get_submodule(name).load_state_dict(reader.get_submodule(name).state_dict())
    return model


def fit_head(model: Classifier, split: Split) -> None:
    """Fit the head of a model to the features that its layers give for the examples of a split."""
    with torch.no_grad(), Bar("Fitting the head", len(split)) as bar:
        measure_statistics(model, ((x, lengths) for x, _, lengths in _batches(split, MEASURED)))
        model.eval()
        parts = []
        for x, y, lengths in _batches(split):
            parts.append((model.features(x, lengths), y))
            bar.update(len(y))
        model.train()
    features, labels = torch.stack([features for features, _ in parts]), torch.stack([labels for _, labels in parts])
    scale, shift = torch.std_mean(features, dim=(0, 1), correction=0)
    scale = torch.maximum(scale.clamp(min=OF_LARGEST * float(scale.max())), OF_MEAN * shift.abs())
    scale[scale == 0] = 1
    features = (features - shift) / scale  # so that one rate suits them all
    head = [parameter for part in (model.hidden, model.decoder) if part is not None for parameter in part.parameters()]
    optimizer = torch.optim.AdamW(head, weight_decay=HEAD_DECAY)
    steps = HEAD_EPOCHS * len(parts)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(len(parts)), (HEAD_EPOCHS, 1)), axis=1).ravel()
    for step, number in enumerate(order):
        optimizer.param_groups[0]["lr"] = HEAD_RATE * (1 - step / steps)
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model.head(features[number]), labels[number]))
        optimizer.step()
    take_raw_features(model, shift, scale)


@torch.no_grad()
def take_raw_features(model: Classifier, shift: Tensor, scale: Tensor) -> None:
    """Let a head that was fitted to (features - shift) / scale take the features themselves, for the same answers."""
    hidden: nn.Linear | None = model.hidden
    if hidden is None:
        raise InputError("The head of this model compares nothing.")
    of_a, of_b, of_difference, of_product = hidden.weight.chunk(4, dim=1)
    product, shifted = of_product / scale**2, shift / scale  # (a - s)(b - s) = ab - sa - sb + s²
    weight = [of_a / scale - product * shift, of_b / scale - product * shift, of_difference / scale, product]
    offset = (of_a + of_b) @ shifted - of_product @ shifted**2
    hidden.weight.copy_(torch.cat(weight, dim=1))
    hidden.bias.sub_(offset)


def _batches(split: Split, count: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield whole batches of examples in a random order that is always the same."""
    order = np.random.default_rng(0).permutation(len(split))
    size = min(HEAD_BATCH, len(split))
    for rows in order[: len(order) // size * size].reshape(-1, size)[:count]:
        batch = split.batch(rows)
        lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths)
        yield torch.from_numpy(batch.x), torch.from_numpy(batch.y), lengths


def main(arguments: list[str] | None = None) -> None:
    """Write a checkpoint that `ssmprune train retrieval` can start from."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write (.safetensors)")
    parser.add_argument("--data", type=Path, help="folder with the data; by default $SSMPRUNE_DATA or a cache")
    parser.add_argument("--model", choices=("s5", "s4d"), default="s5")
    parser.add_argument("--epochs", type=int, default=READING["epochs"])
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--length", type=int, default=128, help="bytes of text that a question is about")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    cpu, started = RECIPES[f"retrieval {given.model} cpu"], perf_counter()
    recipe = dataclasses.replace(cpu, **READING | {"epochs": given.epochs})
    reader, explained = learn_to_read(*read_pieces(given.data, given.topics, given.length), recipe, given.seed)
    model = compare_documents(reader)
    fit_head(model, TASK.replace(**cpu.task).load("train", given.data))
    save(model, given.out)
    told = {key: value for key, value in vars(given).items() if value != parser.get_default(key) and key != "data"}
    told = {"model": given.model, "seed": given.seed} | told | {"out": f"runs/{given.out.name}"}
    command = "python -m ssmprune_paper.pretrain_retrieval " + " ".join(f"--{key} {told[key]}" for key in told)
    known = {"task": TASK.name, "task_parameters": cpu.task, "model": given.model, "epochs": given.epochs}
    known |= {"command": command, "explained": explained}
    known["seconds"] = round(perf_counter() - started, 1)
    write_atomically(card_path(given.out), (json.dumps(known, indent=2) + "\n").encode())
    print(f"{given.out}: reads {explained:.2%} of the variance of topics; train it with --from.")


if __name__ == "__main__":
    main()
