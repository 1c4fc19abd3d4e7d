"""Whether a training is still finite, and where it first was not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def has_finite_gradients(model: nn.Module) -> bool:
    """Return whether every gradient is finite (a loss that is not finite has none that are)."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return bool(torch.isfinite(torch.stack([gradient.sum() for gradient in gradients])).all())


def first_not_finite(model: nn.Module, *inputs: Tensor | None) -> str:
    """Name the first place, in the order of computation, where something is not finite.

    Parameters come first, then the outputs of the modules on `inputs`, then gradients, from the last layer on.
    """
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the parameter {name}"
    if output := _first_bad_output(model, inputs):
        return f"the output of {output}"
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name}"
    return "the loss"


def _first_bad_output(model: nn.Module, inputs: tuple[Tensor | None, ...]) -> str | None:
    bad: list[str] = []

    def check(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                bad.append(name)

        return hook

    hooks = [module.register_forward_hook(check(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for handle in hooks:
            handle.remove()
    return bad[0] if bad else None
