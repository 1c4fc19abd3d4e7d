"""What a step of a classifier costs, part by part, and what pruning can change of it."""

from __future__ import annotations

from typing import NamedTuple

from .config import Config


class Part(NamedTuple):
    """Multiplications and additions, in pairs, that a part of a classifier takes for a step, all layers together."""

    operations: int
    of_states: bool  # whether pruning states saves some
    of_features: bool  # whether pruning features does


def parts(config: Config) -> dict[str, Part]:
    """Return the parts of a classifier; what a tenth of a step takes together, activations and pooling, is left aside.

    >>> config = Config("s5", inputs=1, outputs=10, width=96, states=(64, 64, 64, 64))
    >>> [f"{name} {part.operations}" for name, part in parts(config).items()]
    ['encoder 96', 'norms 384', 'B 49152', 'recurrence 1024', 'C 49152', 'D 384', 'gates 36864', 'head 960']
    """
    width, depth, states = config.width, config.depth, sum(config.states)
    directions, diagonal = 1 + config.bidirectional, config.family == "s4d"
    linked = 2 * states * (1 if diagonal else width)  # a state of S4D has one feature, whose going takes it along
    gates = {"gelu": 0, "full_glu": 2}.get(config.activation, 1)
    head = width * config.outputs + (4 * width**2 if config.retrieval else 0)
    return {
        "encoder": Part(0 if config.tokens else config.inputs * width, False, not config.tokens),
        "norms": Part(width * depth, False, True),
        "B": Part(linked, True, True),
        "recurrence": Part(4 * states * directions, True, diagonal),
        "C": Part(linked * directions, True, True),
        "D": Part(width * depth, False, True),
        "gates": Part(gates * width**2 * depth, False, gates > 0),
        "head": Part(head, False, True),
    }


def part_of(tensor: str) -> str:
    """Return the part of a classifier that a tensor of its file belongs to.

    >>> part_of("layers.0.ssm.log_step"), part_of("layers.1.gate.weight.scale"), part_of("decoder.bias")
    ('recurrence', 'gates', 'head')
    """
    first, *rest = tensor.split(".")
    if first != "layers":
        return "encoder" if first == "encoder" else "head"
    leaf = rest[2] if rest[1] == "ssm" else rest[1]
    return {"norm": "norms", "gate": "gates", "value": "gates"}.get(leaf, leaf if leaf in "BCD" else "recurrence")


def operations(config: Config) -> int:
    """Return how many multiplications and additions, in pairs, a step takes.

    >>> operations(Config("s5", inputs=1, outputs=10, width=96, states=(64, 64, 64, 64)))
    138016
    """
    return sum(part.operations for part in parts(config).values())
