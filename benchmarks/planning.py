"""Is planning as cheap as sorting?

LAST at 50 % for an S4D of 6 layers x 512 channels x 32 pairs, against numpy's argsort of the same scores layer by
layer, one thread. The first plan of a model also takes the fingerprint by which a plan knows its model; later ones
find it there.
"""

from dataclasses import replace

import numpy as np

import ssmprune as sp
import subjects
from table import Figure, milliseconds, of, show
from timing import time_in_turns

ROUNDS = 21


def measure() -> list[Figure]:
    systems = sp.read(subjects.untrained(subjects.found()["image-s4d"].config))
    scores = sp.make_plan(systems, 0.5).scores
    unknown = iter([{layer: replace(system) for layer, system in systems.items()} for _ in range(ROUNDS + 1)])
    times = time_in_turns(
        {
            "argsort": lambda: [np.argsort(layer) for layer in scores.values()],
            "a plan": lambda: sp.make_plan(systems, 0.5),
            "the first plan": lambda: sp.make_plan(next(unknown), 0.5),
        },
        ROUNDS,
    )
    return [
        *(milliseconds(name, time) for name, time in times.items()),
        of("a plan / argsort", times["a plan"] / times["argsort"], at_most=4),
        of("the first plan / argsort", times["the first plan"] / times["argsort"]),
    ]


if __name__ == "__main__":
    show(__doc__, measure)
