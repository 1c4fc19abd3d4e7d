"""Unstructured random pruning, the baseline of the paper's appendix: single elements of the matrices, not states."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from ssmprune.methods import kept_count
from ssmprune.models import Classifier, S4DLayer, S5Layer, continuous_poles, discretize, stored_real_part

FORGETS = {"zoh": -100.0, "bilinear": -2 + 1e-5}  # λ Δ for which a discretised pole is 0 in single precision


@torch.no_grad()
def unstructured_random(model: Classifier, ratio: float, seed: int) -> Classifier:
    """Return a copy in which as many elements are 0 as pruning states would remove, chosen anywhere.

    Where uniform pruning takes k of a layer's n states, k elements of the discretised Λ go, k times the inputs of the
    discretised B, and k times the outputs of the C of each direction. No state goes, so the model cannot be shrunk.
    """
    other, rng = copy.deepcopy(model), np.random.default_rng(seed)
    for block in other.blocks:
        layer = block.ssm
        n = len(layer.pole_re)
        share = (n - max(1, kept_count(n, ratio))) / n
        _forget(layer, _chosen(torch.Size([n]), share, rng))
        layer.B.data[_chosen(layer.B.shape[:-1], share, rng)] = 0  # the discretised B is a multiple of it, row by row
        for C in layer.C.data:
            C[_chosen(C.shape[:-1], share, rng)] = 0
    return other


def _chosen(shape: torch.Size, share: float, rng: np.random.Generator) -> Tensor:
    """Mark a share of the places of an array at random."""
    chosen = torch.zeros(shape.numel(), dtype=torch.bool)
    chosen[torch.from_numpy(rng.permutation(len(chosen))[: round(share * len(chosen))])] = True
    return chosen.reshape(shape)


def _forget(layer: S5Layer | S4DLayer, states: Tensor) -> None:
    """Set the discretised poles of some states (n,) to 0 and leave their discretised B as it is."""
    step = layer.log_step.double().exp() * layer.step_rescale
    step = step if isinstance(layer, S5Layer) else step[layer.channel]

    def factor() -> Tensor:
        poles = continuous_poles(layer.pole_re.double(), layer.pole_im.double(), layer.pole_form)
        return discretize(poles, step, layer.discretization)[1]

    before, fast = factor(), FORGETS[layer.discretization] / step[states]
    layer.pole_re.data[states] = stored_real_part(fast, layer.pole_form).to(layer.pole_re.dtype)
    layer.pole_im.data[states] = 0
    B = torch.view_as_complex(layer.B.double()) * (before / factor()).reshape(-1, *[1] * (layer.B.ndim - 2))
    layer.B.data[states] = torch.view_as_real(B).to(layer.B.dtype)[states]
