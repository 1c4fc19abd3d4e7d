"""What a classifier is made of: one flat value that validates itself and goes through JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import InputError

CHOICES = {
    "family": ("s5", "s4d"),
    "discretization": ("zoh", "bilinear"),
    "pole_form": ("exp", "clip", "free"),
    "initial_poles": ("hippo", "ring"),
    "norm": ("batch", "layer"),
    "activation": ("gelu", "half_glu1", "half_glu2", "full_glu"),
    "pooling": ("mean", "last", "none"),
    "padding": ("cut", "seen"),
}
CLIP = -1e-4  # the largest real part of a pole stored in the form "clip"
POSITIVE = ("inputs", "outputs", "width", "blocks", "step_min", "step_max", "step_rescale", "norm_eps")


def check_lengths(lengths: Any, batch: int, length: int) -> None:
    """Refuse an array or tensor of lengths that are not those of a batch of sequences of `length` steps."""
    if tuple(lengths.shape) != (batch,):
        raise InputError(f"Expected lengths of shape ({batch},), got {tuple(lengths.shape)}.")
    if not 1 <= int(lengths.min()) <= int(lengths.max()) <= length:
        raise InputError(f"Expected lengths from 1 to {length}, got {lengths.tolist()}.")


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """How a state space layer is parametrised and started; a `Config` is one, with more."""

    bidirectional: bool = False
    conj_sym: bool = True  # a stored state stands for a conjugate pair
    discretization: str = "zoh"
    pole_form: str = "exp"  # Re λ = -exp(pole_re), min(pole_re, -1e-4) or pole_re
    blocks: int = 1  # HiPPO blocks of the initialisation, S5 only
    initial_poles: str = "hippo"  # S5 only; "ring": as in LRU, |λ_bar| from e^-step_max to e^-step_min, all steps 1
    step_min: float = 1e-3
    step_max: float = 1e-1
    step_rescale: float = 1.0
    train_B: bool = False  # S4D only; S5 always trains B
    backward_delay: int = 0  # S4D only: 1 when the backward scan is read one step late

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name, choices[0]) not in choices:
                self._refuse(name, f"one of {', '.join(choices)}")

    def _refuse(self, name: str, expected: str) -> None:
        raise InputError(f"{type(self).__name__}.{name} must be {expected}, not {getattr(self, name)!r}.")


@dataclass(frozen=True)
class Config(LayerOptions):
    """The architecture of a `Classifier`; `states` holds the stored states of each layer and so sets the depth.

    With `conj_sym` a stored state is a conjugate pair, which plans, tables and `inspect` count as two.

    >>> Config("s5", inputs=1, outputs=10, width=96, states=(64, 64, 64, 64)).depth
    4
    >>> Config("s5", inputs=1, outputs=10, width=96, states=(64,), norm="none")
    Traceback (most recent call last):
    ssmprune.errors.InputError: Config.norm must be one of batch, layer, not 'none'.
    """

    family: str
    inputs: int  # features of a step, or the size of the vocabulary
    outputs: int
    width: int
    states: tuple[int, ...]
    tokens: bool = False
    norm: str = "batch"
    prenorm: bool = True
    norm_eps: float = 1e-5
    norm_momentum: float = 0.05  # weight of the newest batch in the running statistics
    activation: str = "half_glu1"
    exact_gelu: bool = True  # False: the tanh form of the JAX codes
    dropout: float = 0.0  # one decision per sequence and feature, kept over time
    pooling: str = "mean"
    retrieval: bool = False  # two documents per example
    padding: str = "cut"  # "seen": what follows a sequence's length enters the backward scan, as in the original codes

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Config).items():
            self._check_type(name, kind)
        super().__post_init__()
        fewest = 1 if self.family == "s5" else 0
        for name, holds, expected in (
            *((name, 0 < getattr(self, name) < math.inf, "positive and finite") for name in POSITIVE),
            ("states", min(self.states, default=-1) >= fewest, "one positive number of states per layer"),
            ("step_min", self.step_min <= self.step_max, f"at most step_max = {self.step_max}"),
            ("dropout", 0 <= self.dropout < 1, "at least 0 and below 1"),
            ("norm_momentum", 0 <= self.norm_momentum <= 1, "between 0 and 1"),
            ("backward_delay", self.backward_delay in ((0, 1) if self.family == "s4d" else (0,)), "0, or 1 for S4D"),
            ("pooling", not self.retrieval or self.pooling != "none", "mean or last for retrieval"),
        ):
            if not holds:
                self._refuse(name, expected)
        if self.initial_poles == "ring" and (self.family, self.discretization) != ("s5", "zoh"):
            self._refuse("initial_poles", "hippo unless the family is s5 and the discretization zoh")

    @property
    def depth(self) -> int:
        """How many layers are stacked."""
        return len(self.states)

    @property
    def kind(self) -> str:
        """What tables call the model: its family, or lru where S5 layers started as those of LRU do."""
        return "lru" if self.initial_poles == "ring" else self.family

    @property
    def sees_padding(self) -> bool:
        """Whether answers depend on what follows a sequence's length."""
        return self.bidirectional and self.padding == "seen"

    def check_inputs(self, x: Any, whole: bool, *, one_step: bool = False) -> None:
        """Refuse an array or tensor that is no batch of sequences, or of single steps; `whole`: it holds integers."""
        shape, axes = tuple(x.shape), ("batch",) if one_step else ("batch", "length")
        wanted = f"({', '.join(map(str, axes if self.tokens else (*axes, self.inputs)))})"
        if self.tokens and not (whole and len(shape) == len(axes)):
            raise InputError(f"Expected integer tokens of shape {wanted}, got {x.dtype} of shape {shape}.")
        if not self.tokens and (len(shape) != len(axes) + 1 or shape[-1] != self.inputs):
            hint = "; x.transpose(1, 2) puts channels last" if len(shape) == 3 and shape[1] == self.inputs else ""
            raise InputError(f"Expected input of shape {wanted}, got {x.dtype} of shape {shape}{hint}.")
        if not all(shape[: len(axes)]):
            raise InputError(f"Expected at least one sequence with at least one step, got shape {shape}.")
        if self.tokens and not 0 <= int(x.min()) <= int(x.max()) < self.inputs:
            raise InputError(f"Expected tokens 0 to {self.inputs - 1}, got {int(x.min())} to {int(x.max())}.")
        if self.retrieval and shape[0] % 2:
            raise InputError(f"Expected an even number of documents (pairs to compare), got {shape[0]}.")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return asdict(self) | {"states": list(self.states)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Config:
        """Return the config that `to_dict` wrote; unknown and missing names are errors.

        Configs without `padding` predate it; such models were trained with padding visible.
        """
        names = {field.name for field in fields(Config)}
        if unknown := sorted(set(values) - names):
            raise InputError(f"Unknown config entries {', '.join(unknown)}; known are {', '.join(sorted(names))}.")
        states = values.get("states")
        if not isinstance(states, (list, tuple)):
            raise InputError(f"Config.states must be a list of states per layer, not {states!r}.")
        try:
            return Config(**{"padding": "seen", **values, "states": tuple(states)})
        except TypeError as error:
            raise InputError(f"The config is incomplete: {error}.") from error

    def _check_type(self, name: str, kind: Any) -> None:
        value = getattr(self, name)
        if get_origin(kind) is tuple:
            kind, values = get_args(kind)[0], value if isinstance(value, tuple) else (None,)
        else:
            values = (value,)
        for item in values:
            whole_number_for_float = kind is float and type(item) is int and abs(item) < 2**63
            if type(item) is not kind and not whole_number_for_float:
                self._refuse(name, f"of type {kind.__name__}")
