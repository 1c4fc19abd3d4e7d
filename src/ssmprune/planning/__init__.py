"""Planning: from scores and a ratio to a decision.

`make` makes plans within limits, `plan` is the decision as a value that can be saved and
replayed, `certificates` bounds how far it moves the output of a layer, whatever the input.
"""

from .certificates import Certificate, certify
from .make import Limits, make_plan, plan_from_scores, refit_each_layer
from .plan import Plan

__all__ = ["Certificate", "Limits", "Plan", "certify", "make_plan", "plan_from_scores", "refit_each_layer"]
