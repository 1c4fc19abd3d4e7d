"""The hand-written gradients are those of the equations.

Classifiers of depth 2 in float64 on padded batches, against twins whose layers run the recurrence step by step and
leave the gradients to torch. Largest difference of any parameter's gradient, relative to that gradient's largest entry.
"""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from ssmprune.models import S4DLayer, S5Layer
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

CASES = {
    "S5, one direction": {"family": "s5"},
    "S5, both directions": {"family": "s5", "bidirectional": True},
    "S4D, one direction": {"family": "s4d"},
    "S4D, both directions": {"family": "s4d", "bidirectional": True},
}
LENGTH = 70  # more than two chunks of the scan, and not a multiple of one


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_are_those_of_the_equations(case):
    assert difference(Config(inputs=2, outputs=3, width=4, states=(8, 8), **case)) < 1e-10


def difference(config: Config) -> float:
    model = Classifier(config).eval().double()
    twin = copy.deepcopy(model)
    for block in twin.blocks:
        block.ssm.forward = partial(naive, block.ssm)
    x, lengths = torch.randn(3, LENGTH, config.inputs, dtype=torch.float64), torch.tensor([LENGTH, 50, 1])
    pairs = zip(gradients(model, x, lengths), gradients(twin, x, lengths), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def gradients(model: Classifier, x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    loss = cross_entropy(model(x, lengths), torch.tensor([0, 1, 2]))
    return torch.autograd.grad(loss, list(model.parameters()))


def naive(layer: S5Layer | S4DLayer, u: Tensor) -> Tensor:
    """x_k = λ x_{k-1} + B u_k and y_k = gain Re(C x_k) + D u_k, the second direction from the end."""
    log_poles, B = layer.discretized()
    C = torch.view_as_complex(layer.C)
    if isinstance(layer, S4DLayer):  # as a system with many inputs whose states see one channel each
        owner = torch.nn.functional.one_hot(layer.channel, len(layer.D)).to(B)
        B, C = B[:, None] * owner, C[:, None] * owner.T
    driven = u.to(B.dtype) @ B.T
    y = layer.D * u + layer.gain * (recurrence(driven, log_poles.exp()) @ C[0].T).real
    if layer.bidirectional:
        backward = recurrence(driven.flip(1), log_poles.exp()).flip(1)
        delay = getattr(layer, "backward_delay", 0)
        y = y + layer.gain * (pad(backward, (0, 0, 0, delay))[:, delay:] @ C[1].T).real
    return y


def recurrence(driven: Tensor, poles: Tensor) -> Tensor:
    states = [driven[:, 0]]
    for v in driven.unbind(1)[1:]:
        states.append(poles * states[-1] + v)
    return torch.stack(states, 1)
