"""ssmprune makes trained diagonal state space models smaller and faster, without retraining.

import ssmprune as sp

small = sp.prune(model, ratio=0.5)                  # LAST, the two-line door
small = sp.prune(model, ratio=0.7, data=batches)    # the surgeon: unlabelled inputs let much more go
small = sp.prune(model, sp.max_energy(0.01), data=batches)  # as far as no layer loses more of its output

systems = sp.read(model)                       # the same, step by step
plan = sp.make_plan(systems, ratio=0.5, method=sp.LAST)
print(plan)
quiet = sp.mask(model, plan)                   # same shapes, pruned states silent
small = sp.shrink(model, plan)                 # smaller and faster
sp.save(small, "small.safetensors")
"""

from .adapters import Adapter
from .adapters._files import load_tree, save_tree
from .allocation import layer_adaptive, layer_share, pooled, uniform
from .apply import convert, mask, read, shrink
from .calibration import Moments, collect, energies, white_noise
from .certificates import Certificate, certify
from .discretization import bilinear, zoh
from .errors import InputError
from .methods import AIRE, GLOBAL_HINF, GLOBAL_MAGNITUDE, LAMP, LAST, RANDOM, UNIFORM_HINF, UNIFORM_MAGNITUDE, Method
from .models import load, save
from .plan import Plan, make_plan, plan_from_scores
from .pruning import Pruning, prune
from .sequence import refit_in_sequence
from .surgeon import refit, surgeon_plan
from .system import DiagonalSystem
from .targets import max_energy, max_gain, max_latency, max_loss, max_memory

__version__ = "0.1.0"
__all__ = [
    "AIRE",
    "GLOBAL_HINF",
    "GLOBAL_MAGNITUDE",
    "LAMP",
    "LAST",
    "RANDOM",
    "UNIFORM_HINF",
    "UNIFORM_MAGNITUDE",
    "Adapter",
    "Certificate",
    "DiagonalSystem",
    "InputError",
    "Method",
    "Moments",
    "Plan",
    "Pruning",
    "bilinear",
    "certify",
    "collect",
    "convert",
    "energies",
    "layer_adaptive",
    "layer_share",
    "load",
    "load_tree",
    "make_plan",
    "mask",
    "max_energy",
    "max_gain",
    "max_latency",
    "max_loss",
    "max_memory",
    "plan_from_scores",
    "pooled",
    "prune",
    "read",
    "refit",
    "refit_in_sequence",
    "save",
    "save_tree",
    "shrink",
    "surgeon_plan",
    "uniform",
    "white_noise",
    "zoh",
]
