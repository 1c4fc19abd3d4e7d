"""What follows from parameters alone, computed again only when they have changed: it costs more than a single step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")


class Remembered(Generic[T]):
    """The last result and the marks of the tensors it came from."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.forget()

    def forget(self) -> None:
        """Compute anew next time: some changes leave no mark, as those through `.data`."""
        self._value: T | None = None
        self._marks: list[tuple[int, int]] = []
        self._tensors: tuple[Tensor, ...] = ()  # kept so that no other tensor can take an identity over
        self._rate = 0.0

    def get(self, tensors: tuple[Tensor, ...], rate: float, compute: Callable[[], T]) -> T:
        """The result of `compute`, which depends on these tensors and a rate."""
        marks = [(id(tensor), -1 if tensor.is_inference() else tensor._version) for tensor in tensors]
        if self._value is None or self._marks != marks or self._rate != rate:
            self._value, self._marks, self._tensors, self._rate = compute(), marks, tensors, rate
        return self._value
