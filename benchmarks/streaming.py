"""How many steps per second does a stream of batch 1 take, and is it the same model?

The whole sMNIST-size classifier, full and shrunk with LAST; the same with S4D layers of 16 pairs a channel. Against
s5-pytorch: the recurrent step of four SSM layers each, 64 pairs against 128 complex states. Equality: logits of every
step of a model of depth 6, by the forward pass, by chunks of unequal sizes, and step by step, relative to the largest
logit.
"""

from dataclasses import replace

import torch

import peers
import speed
import ssmprune as sp
import subjects
from table import Figure, of, show
from timing import Samples, time_in_turns

RATIOS, ROUNDS = (0, 0.5, 0.8), 15
CHUNKS = (1, 7, 64, 28, 100)


def measure() -> list[Figure]:
    config = subjects.found()["smnist-s5"].config
    models = {"": config, "S4D, ": replace(config, family="s4d", states=(16 * config.width,) * config.depth)}
    calls = {
        f"{name}{ratio:.0%} pruned": speed.streaming(sp.prune(subjects.untrained(size), ratio))
        for name, size in models.items()
        for ratio in RATIOS
    }
    times = time_in_turns(calls, ROUNDS)
    return [
        *(of(name, per_second(time), "steps/s") for name, time in times.items()),
        *against_peer(config),
        *equality(),
    ]


def per_second(time: Samples) -> Samples:
    return Samples((speed.STREAMED,) * len(time.values)) / time


def against_peer(config: subjects.Config) -> list[Figure]:
    found = peers.compare(config.width, config.states[0], layers=config.depth, batch=1, length=2, rounds=ROUNDS)
    if found is None:
        return [Figure("s5-pytorch's step / ours (pip install s5-pytorch)", None)]
    seconds = found["streaming"]["seconds"]
    steps = [Figure(f"SSM layers, {who}", 1 / time["median"], "steps/s") for who, time in seconds.items()]
    return [*steps, of("SSM layers, s5-pytorch's step / ours", found["streaming"]["ours_is_faster"]["theirs"])]


@torch.no_grad()
def equality() -> list[Figure]:
    config = replace(subjects.found()["smnist-s5"].config, states=(64,) * 6, pooling="none")
    model, x = subjects.untrained(config), subjects.inputs(config, 2, sum(CHUNKS))
    expected = model(x)
    state, chunks = None, []
    for chunk in x.split(CHUNKS, dim=1):
        logits, state = model.stream(chunk, state)
        chunks.append(logits)
    state, steps = model.initial_state(len(x)), []
    for now in x.unbind(1):
        logits, state = model.step(now, state)
        steps.append(logits)
    ways = {"chunks": torch.cat(chunks, 1), "steps": torch.stack(steps, 1)}
    return [
        Figure(
            f"depth 6, {way} against forward",
            float((logits - expected).abs().max() / expected.abs().max()),
            "of the largest logit",
            at_most=1e-5,
        )
        for way, logits in ways.items()
    ]


if __name__ == "__main__":
    show(__doc__, measure)
