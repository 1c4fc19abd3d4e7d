"""The door to checkpoints that does not need torch to be opened by `import ssmprune`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from .models.classifier import Classifier


def load(path: str | os.PathLike[str]) -> Classifier:
    """Load one of our models, full or shrunk, in evaluation mode."""
    need_torch()
    from .models import checkpoint

    return checkpoint.load(path)


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Save one of our models as a single safetensors file that `load` reads anywhere."""
    need_torch()
    from .models import checkpoint

    checkpoint.save(model, path)


def need_torch() -> None:
    """Raise a clear error where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError("Models need PyTorch; install it with `pip install 'ssmprune[torch]'`.") from error
