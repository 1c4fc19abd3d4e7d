"""What the S5 and the S4D layer share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Tensor, is_grad_enabled, nn

from ..errors import InputError
from .config import LayerOptions
from .parametrisation import stored_real_part

Matrices = TypeVar("Matrices")


class DiagonalLayer(nn.Module, Generic[Matrices]):
    """A diagonal system whose poles are parameters; states whose `mask` is False get no input and stay silent."""

    B: Tensor
    C: Tensor
    D: Tensor
    log_step: Tensor
    mask: Tensor

    def __init__(self, poles: Tensor, options: LayerOptions) -> None:
        """Take over the options and store poles (n,) in the form that the options name."""
        super().__init__()
        self.bidirectional, self.conj_sym = options.bidirectional, options.conj_sym
        self.discretization, self.pole_form = options.discretization, options.pole_form
        self.step_rescale = options.step_rescale
        self.pole_re = nn.Parameter(stored_real_part(poles.real, self.pole_form))
        self.pole_im = nn.Parameter(poles.imag.clone())
        self._memo: ParameterMemo[Matrices] = ParameterMemo()

    @property
    def gain(self) -> float:
        """2 where a stored state stands for a conjugate pair, otherwise 1."""
        return 2.0 if self.conj_sym else 1.0

    def initial_state(self, batch: int) -> Tensor:
        """Return the silent state (batch, n)."""
        self._memo.forget()
        return self.pole_re.new_zeros(batch, len(self.pole_re), dtype=self.pole_re.dtype.to_complex())

    @abstractmethod
    def discretized(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar, complex, differentiable; masked states have no input."""

    @abstractmethod
    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences that start from a silent state."""

    @abstractmethod
    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """Return the outputs for the next chunk of a sequence and the state after it."""

    @abstractmethod
    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next token and the state after it."""

    @abstractmethod
    def _matrices(self) -> Matrices:
        """Compute from the parameters what the recurrence needs."""

    def _matrices_of_a_step(self) -> Matrices:
        """Return `_matrices`, computed again only when a parameter has changed: it costs more than a single step."""
        if is_grad_enabled():
            return self._matrices()
        tensors = (self.pole_re, self.pole_im, self.B, self.C, self.log_step, self.mask)
        return self._memo.get(tensors, self.step_rescale, self._matrices)

    def _refuse_streaming_both_ways(self) -> None:
        if self.bidirectional:
            raise InputError("A bidirectional layer needs the whole sequence; only unidirectional models stream.")


class ParameterMemo(Generic[Matrices]):
    """The last value that was computed from some tensors and a number, until one of them changes.

    A tensor has changed if it is another object, or if torch has raised its version, which every operation in place
    does. What is written through `.data` raises nothing, so a layer forgets whenever a new stream begins.
    """

    def __init__(self) -> None:
        """Begin without a value."""
        self.forget()

    def forget(self) -> None:
        """Drop the value, so that the next `get` computes it."""
        self._value: Matrices | None = None
        self._versions: list[tuple[int, int]] = []
        self._tensors: tuple[Tensor, ...] = ()  # kept so that no other tensor can take an identity over
        self._number = 0.0

    def get(self, tensors: tuple[Tensor, ...], number: float, compute: Callable[[], Matrices]) -> Matrices:
        """Return the result of `compute`, which depends on these tensors and this number."""
        versions = [(id(tensor), -1 if tensor.is_inference() else tensor._version) for tensor in tensors]
        if self._value is None or self._versions != versions or self._number != number:
            self._value, self._versions, self._tensors, self._number = compute(), versions, tensors, number
        return self._value
