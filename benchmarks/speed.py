"""How fast and how small: a full, a masked and a shrunk model side by side, the ideal ratio beside the measured one.

python benchmarks/speed.py smnist-s5 --ratio 0.5     a checkpoint, or an untrained model of a size of the paper
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ssmprune.errors import InputError
from ssmprune.methods import LAST, Method, named
from ssmprune.models.checkpoint import parameters, stored_bytes
from ssmprune.models.classifier import Classifier
from ssmprune.planning.make import make_plan
from ssmprune.pruning import mask, read, shrink
from ssmprune.report import markdown_rows
from subjects import MeasuredModel, inputs, subject
from table import prepare
from timing import peak_memory, time_in_turns
from work import multiply_adds

STREAMED = 64  # steps of a stream that are timed together

Figures = dict[str, Any]


def bench(subject: MeasuredModel, ratio: float, method: Method = LAST, rounds: int = 5) -> Figures:
    """Measure the full, the masked and the shrunk model in turns, and return plain data.

    An evaluation is a forward pass without gradients. A training pass is forward, cross-entropy and backward in
    training mode, without an optimiser's step. A streaming step is one step of a single sequence, for unidirectional
    models only. Peak memory is what the process grows by during a pass.
    """
    x = subject.inputs()
    config, (batch, length) = subject.model.config, (x.shape[0], x.shape[1])
    models = variants(subject.model, ratio, method)
    passes = {
        "evaluation": {name: evaluation(model, x) for name, model in models.items()},
        "training": {name: training(model, x) for name, model in models.items()},
    }
    times = {kind: time_in_turns(calls, rounds) for kind, calls in passes.items()}
    if not config.bidirectional:
        streams = time_in_turns({name: streaming(model) for name, model in models.items()}, rounds)
        times["streaming"] = {name: time.scaled(1 / STREAMED) for name, time in streams.items()}
    work = {name: sum(multiply_adds(model.config, batch, length).values()) for name, model in models.items()}
    return {
        "model": subject.name,
        "weights": subject.weights,
        "config": config.to_dict(),
        "ratio": ratio,
        "method": method.name,
        "batch": subject.batch,
        "length": length,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "ideal_speed": work["full"] / work["shrunk"],
        "variants": {
            name: {
                "states": sum(model.config.states),
                "parameters": parameters(model),
                "bytes": stored_bytes(model),
                "multiply_adds_per_step": work[name] / (batch * length),
                "seconds": {kind: time[name].to_dict() for kind, time in times.items()},
                "speed": {kind: (time["full"] / time[name]).to_dict() for kind, time in times.items()},
                "peak_bytes": {kind: peak_memory(calls[name]) for kind, calls in passes.items()},
            }
            for name, model in models.items()
        },
    }


def variants(model: Classifier, ratio: float, method: Method = LAST) -> dict[str, Classifier]:
    """Return the model, the same masked, and the same shrunk; all copies."""
    plan = make_plan(read(model, unstable="keep"), ratio, method)
    return {"full": copy.deepcopy(model), "masked": mask(model, plan), "shrunk": shrink(model, plan)}


def evaluation(model: Classifier, x: Tensor) -> Callable[[], None]:
    """Return a call that computes the logits without gradients."""

    @torch.no_grad()
    def run() -> None:
        model.eval()(x)

    return run


def training(model: Classifier, x: Tensor) -> Callable[[], None]:
    """Return a call that computes the gradients of all parameters from scratch."""

    def run() -> None:
        model.train().zero_grad()
        logits = model(x).flatten(0, -2)
        loss: Any = cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
        loss.backward()

    return run


def streaming(model: Classifier) -> Callable[[], None]:
    """Return a call that feeds one example to the model, step by step, for `STREAMED` steps."""
    x = inputs(model.config, 1, STREAMED)

    @torch.no_grad()
    def run() -> None:
        model.eval()
        state = model.initial_state(len(x))
        for now in x.unbind(1):
            _, state = model.step(now, state)

    return run


def rows(data: Figures) -> list[dict[str, str]]:
    """Return what `bench` measured as rows of a table: a figure, the three models, what shrinking gained."""
    columns = {name: _format(variant) for name, variant in data["variants"].items()}
    columns["gained"] = _gains(data)
    return [
        {"": figure, **{name: column.get(figure, "") for name, column in columns.items()}} for figure in columns["full"]
    ]


def _format(variant: Figures) -> dict[str, str]:
    """Return the figures of one model, for people."""
    shown = {
        "states stored": f"{variant['states']:,}",
        "parameters": f"{variant['parameters']:,}",
        "bytes stored": f"{variant['bytes']:,}",
        "multiply-adds per step": f"{variant['multiply_adds_per_step']:,.0f}",
    }
    shown |= {f"{kind}, ms": _spread(time, 1e3) for kind, time in variant["seconds"].items()}
    peaks = {kind: peak for kind, peak in variant["peak_bytes"].items() if peak is not None}
    return shown | {f"{kind}'s memory, MB": f"{peak / 1e6:,.1f}" for kind, peak in peaks.items()}


def _gains(data: Figures) -> dict[str, str]:
    """Return what the shrunk model has over the full one."""
    speeds = data["variants"]["shrunk"]["speed"].items()
    return {
        "multiply-adds per step": f"ideal {data['ideal_speed']:.2f}x",
        **{f"{kind}, ms": f"{_spread(speed)}x" for kind, speed in speeds},
    }


def _spread(figure: Figures, factor: float = 1.0) -> str:
    """Return the median and half the distance between the quartiles."""
    low, high = figure["quartiles"]
    median, half = factor * figure["median"], factor * (high - low) / 2
    digits = 2 if median < 10 else 1 if median < 100 else 0
    return f"{median:,.{digits}f} ±{half:,.{digits}f}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint, or a size from the paper, such as smnist-s5 or image-s4d")
    parser.add_argument("--ratio", type=float, default=0.5)
    parser.add_argument("--method", default="last", choices=sorted(named()))
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--rounds", type=int, default=5, help="how many times each model is timed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    prepare()
    torch.set_num_threads(given.threads)
    try:
        data = bench(subject(given.model, given.batch, given.length), given.ratio, named()[given.method], given.rounds)
    except InputError as error:
        parser.error(str(error))
    shown = rows(data)
    print(json.dumps(data) if given.json else markdown_rows(list(shown[0]), [list(row.values()) for row in shown]))


if __name__ == "__main__":
    main()
