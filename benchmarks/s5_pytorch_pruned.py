"""How much faster is an s5-pytorch module after LAST has shrunk it by half?

Its own modules before and after, 128 complex states of width 96, sequences of 784 steps in a batch of 10. Equality: the
shrunk module against the masked one, relative to the largest output.
"""

import warnings

import torch

import ssmprune as sp
from table import Figure, of, show
from timing import time_in_turns

RATIO, ROUNDS = 0.5, 5


@torch.no_grad()
def measure() -> list[Figure]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it scripts its functions
            from s5 import S5
    except ImportError:
        return [Figure("evaluation, full / shrunk (pip install s5-pytorch)", None)]
    figures, x = [], torch.randn(10, 784, 96)
    for bidir in (False, True):
        torch.manual_seed(0)
        module = S5(96, 128, bidir=bidir).eval()
        plan = sp.make_plan(sp.read(module), RATIO)
        models = {"full": module, "masked": sp.mask(module, plan), "shrunk": sp.shrink(module, plan)}
        times = time_in_turns({name: lambda model=model: model(x) for name, model in models.items()}, ROUNDS)
        masked, shrunk = models["masked"](x), models["shrunk"](x)
        error = float((masked - shrunk).abs().max() / masked.abs().max())
        way = "both directions" if bidir else "one direction"
        figures += [
            of(f"{way}, full / shrunk", times["full"] / times["shrunk"], at_least=1.0),
            Figure(f"{way}, shrunk against masked", error, "of the largest output", at_most=1e-5),
        ]
    return figures


if __name__ == "__main__":
    show(__doc__, measure)
