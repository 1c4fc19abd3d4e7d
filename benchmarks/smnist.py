"""How far from the bare matrix products, and from s5-pytorch, at sMNIST size?

Batch 50, length 784, H = 96, 64 pairs, 4 layers, half_glu1, batch norm, one direction, dropout as trained. The
products are B u, C x, GLU, encoder and decoder in float32; a training pass (forward, loss, backward) does three
times as many. Against s5-pytorch: four SSM layers each, 64 pairs against 128 complex states, without norms and gates.
"""

import peers
import speed
import subjects
from products import bare_products
from table import Figure, milliseconds, of, show
from timing import time_in_turns

ROUNDS, PEER_ROUNDS = 11, 3


def measure() -> list[Figure]:
    size = subjects.found()["smnist-s5"]
    model, x = subjects.untrained(size.config), subjects.inputs(size.config, size.batch, size.length)
    times = time_in_turns(
        {
            "products": bare_products(size.config, size.batch, size.length),
            "evaluation": speed.evaluation(model, x),
            "training": speed.training(model, x),
        },
        ROUNDS,
    )
    products = times["products"]
    return [
        *(milliseconds(name, time) for name, time in times.items()),
        of("evaluation / products", times["evaluation"] / products, at_most=1.7),
        of("training / 3 products", times["training"] / products.scaled(3), at_most=2.0),
        *against_peer(size),
    ]


def against_peer(size: subjects.Size) -> list[Figure]:
    config = size.config
    shape = {"batch": size.batch, "length": size.length}
    found = peers.compare(config.width, config.states[0], layers=config.depth, rounds=PEER_ROUNDS, **shape)
    if found is None:
        return [Figure("s5-pytorch / ours (pip install s5-pytorch)", None, at_least=4)]
    figures = []
    for kind in ("evaluation", "training"):
        seconds, faster = found[kind]["seconds"], found[kind]["ours_is_faster"]
        figures += [milliseconds(f"{kind}, SSM layers, {who.replace('_', ' ')}", time) for who, time in seconds.items()]
        figures.append(of(f"{kind}, s5-pytorch / ours", faster["theirs"], at_least=4))
        figures.append(of(f"{kind}, s5-pytorch at its best / ours", faster["theirs_at_best"]))
    return figures


if __name__ == "__main__":
    show(__doc__, measure)
