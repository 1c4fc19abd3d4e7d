"""The state space layers, S5 and S4D: what they share, their way into discrete time, and how their weights start.

Poles start at HiPPO-N, dense weights as truncated normal numbers whose variance undoes the fan-in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import InputError
from .config import CLIP, LayerOptions
from .s4d_kernel import convolve, kernel
from .s5_kernel import convolution_pays, respond, scan, steps_at_once

CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable cut at -2 and 2


class DiagonalLayer(nn.Module):
    """A diagonal system whose poles are parameters; states whose `mask` is False get no input and stay silent.

    `n` counts stored states; with `conj_sym` each stands for a conjugate pair and the gain is 2.
    Subclasses have the methods `discretized`, `forward` for whole sequences, `stream` for chunks and `step`.
    """

    B: Tensor
    mask: Tensor

    def __init__(self, width: int, poles: Tensor, B: Tensor, C: Tensor, options: LayerOptions) -> None:
        """Store poles (n,), B and C as real numbers; D and the steps, of states or of channels, are drawn."""
        super().__init__()
        self.bidirectional, self.conj_sym = options.bidirectional, options.conj_sym
        self.discretization, self.pole_form = options.discretization, options.pole_form
        self.step_rescale = options.step_rescale
        self.gain = 2.0 if options.conj_sym else 1.0
        self.pole_re = nn.Parameter(stored_real_part(poles.real, self.pole_form))
        self.pole_im = nn.Parameter(poles.imag.clone())
        for_channels = B.dim() == 1  # then B stays 1 unless it is asked to learn
        if for_channels and not options.train_B:
            self.register_buffer("B", torch.view_as_real(B))
        else:
            self.B = nn.Parameter(torch.view_as_real(B).contiguous())
        self.C = nn.Parameter(torch.view_as_real(C).contiguous())
        self.D = nn.Parameter(torch.randn(width))
        steps = torch.empty(width if for_channels else len(poles))
        self.log_step = nn.Parameter(steps.uniform_(math.log(options.step_min), math.log(options.step_max)))
        self.register_buffer("mask", torch.ones(len(poles), dtype=torch.bool))

    def initial_state(self, batch: int) -> Tensor:
        """Return the silent state (batch, n), which a stream starts from."""
        self.check_streaming()
        return self.pole_re.new_zeros(batch, len(self.pole_re), dtype=self.pole_re.dtype.to_complex())

    def check_inputs(self, u: Tensor) -> None:
        """Refuse what is no batch of sequences."""
        if u.dim() != 3 or u.shape[2] != len(self.D):
            raise InputError(
                f"{type(self).__name__} takes (batch, length, {len(self.D)}), got {tuple(u.shape)}; a single sequence "
                "is u[None], and u.transpose(1, 2) puts channels last."
            )

    def check_streaming(self) -> None:
        """Refuse to stream a layer that also reads backwards."""
        if self.bidirectional:
            raise InputError("A bidirectional layer needs the whole sequence; only unidirectional models stream.")


class S5Layer(DiagonalLayer):
    """y_k = gain Re(C x_k) + D u_k with x_k = λ_bar x_{k-1} + B_bar u_k [Smith2023].

    A bidirectional layer runs a second scan backwards in time over the same B_bar u and reads it with a second C.

    >>> S5Layer(width=3, n=4)(torch.zeros(2, 16, 3)).shape
    torch.Size([2, 16, 3])
    """

    def __init__(self, width: int, n: int, options: LayerOptions = LayerOptions()) -> None:  # noqa: B008 (frozen)
        """Start with poles at HiPPO-N or on a ring, random B, C, D and steps between step_min and step_max, or of 1."""
        ring = options.initial_poles == "ring"
        poles, B, C = (ring_system if ring else hippo_system)(width, n, options)
        super().__init__(width, poles, B, C, options)
        if ring:
            nn.init.zeros_(self.log_step)

    def discretized(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar (n, H), complex, differentiable; masked states have no input."""
        log_poles, factor = self.discretization_factors()
        return log_poles, factor[:, None] * torch.view_as_complex(self.B)

    def discretization_factors(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar / B (n,), complex, differentiable; zero for masked states."""
        poles = continuous_poles(self.pole_re, self.pole_im, self.pole_form)
        log_poles, factor = discretize(poles, self.log_step.exp() * self.step_rescale, self.discretization)
        return log_poles, factor * self.mask

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences that start from a silent state."""
        self.check_inputs(u)
        if not self.bidirectional and convolution_pays(len(self.pole_re), u.shape[2]):
            return torch.addcmul(convolve(u, self._kernels(u.shape[1])), self.D, u)
        return respond(u, *self._matrices(), self.D)[0]

    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """Return the outputs for the next chunk of a sequence and the state after it."""
        self.check_streaming()
        return respond(u, *self._matrices(), self.D, state)

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next token and the state after it."""
        self.check_streaming()
        poles, B, C = self._matrices()
        state = torch.addcmul(torch.view_as_complex((u @ B.mT).view(len(u), -1, 2)), poles, state)
        return torch.addcmul(torch.view_as_real(state).flatten(1) @ C[0].mT, self.D, u), state

    def _kernels(self, length: int) -> Tensor:
        """Return gain Re C λ_bar^l B_bar for l below the length: (1, H, H, length), output by input."""
        log_poles, B_bar = self.discretized()
        C = self.gain * torch.view_as_complex(self.C[0])
        pairs, owner = (C[:, None] * B_bar.mT).flatten(0, 1), torch.zeros_like(self.mask, dtype=torch.long)
        return kernel(log_poles, pairs, owner, 1, length).view(1, len(C), len(C), length)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return λ_bar (n,) and real B (2n, H), C (directions, H, 2n) that act on [Re x_1, Im x_1, Re x_2, ...]."""
        log_poles, B_bar = self.discretized()
        C = self.gain * torch.view_as_complex(self.C).conj()  # Re(c x) is the scalar product of conj(c) and x
        return log_poles.exp(), torch.view_as_real(B_bar).mT.flatten(0, 1), torch.view_as_real(C).flatten(2)


class S4DLayer(DiagonalLayer):
    """y_k = sum_i gain Re(C_i x_k,i) + D u_k with x_k,i = λ_i x_k-1,i + B_i u_k, in every channel [Gu2022b].

    All channels' states lie in one flat list with their owner in `channel`, ascending; a channel may own any number of
    them, or none. A bidirectional layer reads states that run backwards with a second C, `backward_delay` steps later.

    >>> S4DLayer(width=3, n=12)(torch.zeros(2, 16, 3)).shape
    torch.Size([2, 16, 3])
    """

    channel: Tensor

    def __init__(self, width: int, n: int, options: LayerOptions = LayerOptions()) -> None:  # noqa: B008 (frozen)
        """Start with poles at S4D-LegS, shared out evenly to the channels; B = 1, random C, D and steps."""
        state = torch.arange(n)
        channel = state * width // max(n, 1)
        rank = state - (channel * n + width - 1) // width  # within the channel
        most = -(-n // width)
        poles, _ = hippo_n(2 * most if options.conj_sym else most)
        poles = poles[:most].flip(0)[rank].to(torch.complex64)  # slowest first
        C = torch.view_as_complex(torch.randn(1 + options.bidirectional, n, 2) * 0.5**0.5)
        super().__init__(width, poles, torch.ones_like(poles), C, options)
        self.backward_delay = options.backward_delay
        self.register_buffer("channel", channel)

    def discretized(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar (n,), complex, differentiable; masked states have no input."""
        log_poles, B_bar = self._exact()
        return log_poles.to(self._readout.dtype), B_bar.to(self._readout.dtype)

    def kernel(self, length: int) -> Tensor:
        """Return K[d, h, l] = gain Re sum_{i in h} C_i B_bar_i λ_bar_i^l for each direction d."""
        log_poles, B_bar = self._exact()
        weights = (self.gain * B_bar * self._readout).to(self._readout.dtype)
        return kernel(log_poles, weights, self.channel, len(self.D), length)

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences that start from a silent state, by convolution."""
        self.check_inputs(u)
        return torch.addcmul(convolve(u, self.kernel(u.shape[1]), self.backward_delay), self.D, u)

    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """Return the outputs for the next chunk of a sequence and the state after it."""
        self.check_streaming()
        poles, B_bar = self._matrices()
        outputs = []
        for part in torch.split(u, steps_at_once(max(1, len(u) * len(poles))), dim=1):
            x = scan(self._drive(part, B_bar), poles, state)
            outputs.append(torch.addcmul(self._read_out(x), self.D, part))
            state = x[:, -1]
        return torch.cat(outputs, dim=1), state

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next token and the state after it."""
        self.check_streaming()
        poles, B_bar = self._matrices()
        state = torch.addcmul(self._drive(u, B_bar), poles, state)
        return torch.addcmul(self._read_out(state), self.D, u), state

    @property
    def _readout(self) -> Tensor:
        return torch.view_as_complex(self.C)  # (directions, n)

    def _exact(self) -> tuple[Tensor, Tensor]:
        """Return `discretized` in double precision: a long sequence multiplies the error of a phase."""
        step = self.log_step.double().exp().index_select(0, self.channel) * self.step_rescale
        poles = continuous_poles(self.pole_re.double(), self.pole_im.double(), self.pole_form)
        log_poles, factor = discretize(poles, step, self.discretization)
        return log_poles, factor * self.mask * torch.view_as_complex(self.B)

    def _matrices(self) -> tuple[Tensor, Tensor]:
        """Return λ_bar (n,) and B_bar (n,)."""
        log_poles, B_bar = self._exact()
        return log_poles.exp().to(self._readout.dtype), B_bar.to(self._readout.dtype)

    def _drive(self, u: Tensor, B_bar: Tensor) -> Tensor:
        """Return what u (..., H) feeds into each state (..., n)."""
        return B_bar * u.gather(-1, self._owners(u))

    def _read_out(self, x: Tensor) -> Tensor:
        """Return gain Re(C x) summed over the states (..., n) of each channel: (..., H)."""
        parts = self.gain * (self._readout[0] * x).real
        return parts.new_zeros(*x.shape[:-1], len(self.D)).scatter_add(-1, self._owners(x), parts)

    def _owners(self, like: Tensor) -> Tensor:
        return self.channel.expand(*like.shape[:-1], -1)


def hippo_system(width: int, n: int, options: LayerOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Return poles (n,), B (n, H), C (directions, H, n) in complex64: random B and C seen by HiPPO-N's states.

    `blocks` copies of HiPPO-N share the states; with `conj_sym` the states of a block with Im > 0 are kept.
    B_bar = V^-1 B and C_bar = C V with real B and complex C, truncated normal of variance 1 / (states before halving).
    """
    blocks = min(options.blocks, n)
    kept = -(-n // blocks)  # states of a block that are stored; the last block is cut when n is no multiple
    size = 2 * kept if options.conj_sym else kept
    poles, V = hippo_n(size)
    poles, V = poles[:kept].to(torch.complex64), V[:, :kept].to(torch.complex64)
    deviation = (blocks * size) ** -0.5
    B = V.mH @ truncated_normal(blocks, size, width, deviation=deviation).to(V.dtype)
    parts = truncated_normal(1 + options.bidirectional, width, blocks, size, 2, deviation=deviation)
    C = torch.view_as_complex(parts) @ V
    return poles.repeat(blocks)[:n], B.flatten(0, 1)[:n], C.flatten(2)[..., :n]


def ring_system(width: int, n: int, options: LayerOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Return poles (n,), B (n, H), C (directions, H, n) in complex64, started as in LRU [Orvieto2023].

    The poles λ_bar of a step of 1 are spread evenly over the area of a ring, or of its half with Im > 0 with
    `conj_sym`, where a state decays by e^-step_max to e^-step_min in a step. B_bar = sqrt(1 - |λ_bar|^2) times normal
    numbers, so that white noise drives all states alike; B is what the zero-order hold turns into that.
    """
    slowest, fastest = math.exp(-2 * options.step_min), math.exp(-2 * options.step_max)
    squared = torch.empty(n).uniform_(fastest, slowest)
    angle = torch.empty(n).uniform_(0 if options.conj_sym else -math.pi, math.pi)
    poles = torch.complex(squared.log() / 2, angle)
    B_bar = (1 - squared).sqrt()[:, None] * torch.randn(n, width, dtype=torch.complex64) / math.sqrt(width)
    C = torch.randn(1 + options.bidirectional, width, n, dtype=torch.complex64) * math.sqrt(2 / n)
    return poles, B_bar / discretize(poles, torch.ones(n), "zoh")[1][:, None], C


def continuous_poles(pole_re: Tensor, pole_im: Tensor, form: str) -> Tensor:
    """Return poles λ (n,); Re λ = -exp(pole_re) for "exp", min(pole_re, -1e-4) for "clip", pole_re for "free"."""
    if form == "exp":
        return torch.complex(-pole_re.exp(), pole_im)
    return torch.complex(pole_re.clamp(max=CLIP) if form == "clip" else pole_re, pole_im)


def stored_real_part(real: Tensor, form: str) -> Tensor:
    """Return the `pole_re` from which `continuous_poles` makes poles with these real parts."""
    return (-real).log() if form == "exp" else real.clone()


def discretize(poles: Tensor, step: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """Return log λ_bar and the factor B_bar / B of x' = λ x + B u sampled every `step`, all of shape (n,).

    "zoh": λ_bar = e^{λ step}, factor (λ_bar - 1) / λ.
    "bilinear": λ_bar = (1 + λ step/2) / (1 - λ step/2), factor step / (1 - λ step/2).
    """
    z = poles * step
    if method == "bilinear":
        a, b = z.real / 2, z.imag / 2
        decay = 0.5 * torch.log1p(4 * a / ((1 - a) ** 2 + b**2))  # log |λ_bar|, exact for slow poles too
        angle = torch.atan2(b, 1 + a) + torch.atan2(b, 1 - a)
        return torch.complex(decay, angle), step / (1 - z / 2)
    still = poles == 0
    return z, torch.where(still, step.to(z.dtype), torch.expm1(z) / torch.where(still, 1, poles))


def truncated_normal(*shape: int, deviation: float) -> Tensor:
    """Draw normal numbers cut at two deviations and widened so that what remains has the deviation asked for."""
    wide = deviation / CUT_DEVIATION
    return nn.init.trunc_normal_(torch.empty(shape), std=wide, a=-2 * wide, b=2 * wide)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights of variance 1/inputs and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    layer.weight = nn.Parameter(truncated_normal(outputs, inputs, deviation=inputs**-0.5))
    nn.init.zeros_(layer.bias)
    return layer


def embedding(tokens: int, width: int) -> nn.Embedding:
    """Return what `dense` without a bias would make of one-hot tokens."""
    layer = nn.Embedding(tokens, width)
    layer.weight = nn.Parameter(truncated_normal(tokens, width, deviation=tokens**-0.5))
    return layer


def hippo_n(n: int) -> tuple[Tensor, Tensor]:
    """Return poles (n,) and orthonormal eigenvectors V (n, n) of HiPPO-N, complex128, by descending imaginary part.

    HiPPO-N, the normal part of HiPPO-LegS, is where the poles of S5 and S4D start. With A the HiPPO-LegS matrix and
    p_i = sqrt(i + 1/2), the matrix A + p p^T = V diag(poles) V^H is -1/2 plus a skew-symmetric one, so its poles are
    conjugate pairs on the line Re = -1/2. The first n/2 poles are the half with Im > 0; the pole n-1-k is the
    conjugate of the pole k.
    """
    p = (torch.arange(n, dtype=torch.float64) + 0.5).sqrt()
    # A is -2 p_i p_k below the diagonal, so A + p p^T is -p_i p_k there, +p_i p_k above it, and -1/2 on it.
    outer = torch.outer(p, p)
    skew = outer.triu(1) - outer.tril(-1)
    imaginary, V = torch.linalg.eigh(-1j * skew)  # ascending
    return torch.complex(torch.full_like(imaginary, -0.5), imaginary).flip(0), V.flip(1)
