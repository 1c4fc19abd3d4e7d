"""Make trained state space models (S5, S4D and their cousins) smaller and faster, without retraining.

import ssmprune as sp

small = sp.prune(model, ratio=0.5)                  # LAST
small = sp.prune(model, ratio=0.7, data=loader)     # the surgeon: unlabelled inputs let much more go
small = sp.prune(model, sp.max_energy(0.01), data=loader)  # as far as no layer loses more of its output
small = sp.recover(small, model, loader)            # minutes of learning the whole model's answers, without labels

systems = sp.read(model)                       # the same, step by step
plan = sp.make_plan(systems, ratio=0.5, method=sp.LAST)
print(plan)
quiet = sp.mask(model, plan)                   # same shapes, pruned states silent
small = sp.shrink(model, plan)                 # smaller and faster
sp.save(small, "small.safetensors")

tiny = sp.quantize(small, bits=8)              # a byte a weight
sp.export_c(tiny, "tiny.c")                    # one C99 file and its header
fast = sp.compile(tiny)                        # the same, called from Python: fast(x), fast.stream()
"""

from typing import TYPE_CHECKING

from .adapters import Adapter
from .budgets import Budget, max_energy, max_error, max_gain, max_latency, max_loss, max_memory
from .calibration.data import Sequences
from .core import DiagonalSystem
from .errors import InputError, names_that_need_torch
from .methods import BALANCED, LAST, SURGEON, Method, layer_adaptive, pooled, uniform
from .models import load, save
from .planning import Limits, Plan, certify, make_plan
from .pruned_modules import load_pruned, save_pruned
from .pruning import Pruning, convert, mask, prune, read, shrink
from .tasks import get as task
from .trees import load_tree, save_tree

if TYPE_CHECKING:
    from .calibration.collect import collect as collect
    from .deploy import compile as compile
    from .deploy import export_c as export_c
    from .deploy import export_onnx as export_onnx
    from .models import Classifier as Classifier
    from .models import S4DLayer as S4DLayer
    from .models import S5Layer as S5Layer
    from .quantisation.quantise import quantize as quantize
    from .recovery import recover as recover
    from .training import evaluate as evaluate

__version__ = "0.3.0"
__all__ = [  # noqa: RUF022 (grouped)
    # a model and how far to prune it
    "prune",
    "Pruning",
    "recover",
    # budgets in place of a ratio
    "Budget",
    "max_energy",
    "max_error",
    "max_gain",
    "max_latency",
    "max_loss",
    "max_memory",
    # step by step
    "read",
    "make_plan",
    "mask",
    "shrink",
    "convert",
    "Plan",
    "Limits",
    "certify",
    # data
    "Sequences",
    "collect",
    "task",
    "evaluate",
    # methods: a criterion and an allocation, some with a refit; `ssmprune.methods` has the others
    "Method",
    "LAST",
    "BALANCED",
    "SURGEON",
    "uniform",
    "pooled",
    "layer_adaptive",
    # models and layers
    "Classifier",
    "S5Layer",
    "S4DLayer",
    "DiagonalSystem",
    "Adapter",
    # where it runs
    "quantize",
    "export_c",
    "export_onnx",
    "compile",
    # files
    "load",
    "save",
    "load_pruned",
    "save_pruned",
    "load_tree",
    "save_tree",
    "InputError",
]

# These work on torch models alone, and importing ssmprune does not import torch.
__getattr__ = names_that_need_torch(
    __name__,
    {
        **dict.fromkeys(["compile", "export_c", "export_onnx"], "deploy"),
        "collect": "calibration.collect",
        **dict.fromkeys(["Classifier", "S4DLayer", "S5Layer"], "models"),
        "evaluate": "training",
        "quantize": "quantisation.quantise",
        "recover": "recovery",
    },
)
