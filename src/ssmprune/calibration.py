"""Calibration: the second moments of every layer's states, from unlabelled data or in closed form for white noise."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapters import layers_of
from .arrays import Real
from .errors import InputError
from .features import Layout
from .system import DiagonalSystem

if TYPE_CHECKING:
    from torch import Tensor, nn

EVERY = 3  # only every third step is counted: neighbours tell little new, and the products are most of the work
STEPS_AT_ONCE = 8192  # steps, over all sequences, that are worked on together


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of a layer's features z (problems, slots, parts), see `features`, and of its input u.

    They suffice to re-fit C and the diagonal D: u here is for each output the one input that D leads to it.
    """

    gram: Real  # (problems, slots, parts, slots, parts): E[z zᵀ]
    cross: Real  # (problems, slots, parts, outputs of a problem): E[z u]
    power: Real  # (problems, outputs of a problem): E[u²]


def white_noise(system: DiagonalSystem) -> Moments:
    """Return the moments under white noise of unit power, from the parameters alone.

    E[x xᴴ] = B Bᴴ / (1 - λ λᴴ) and E[x xᵀ] = B Bᵀ / (1 - λ λᵀ), elementwise; forward and backward states share the
    present input alone. States with an unstable pole have no stationary moments and are left out, as if silent.
    """
    layout = Layout.of(system)
    B = layout.spread(np.where(system.unstable_states[:, None], 0, system.B))  # (problems, slots, inputs)
    log_poles = layout.spread(np.where(system.unstable_states, -1, system.log_poles))
    log_poles[(log_poles == 0) & ~B.any(axis=2)] = -1  # empty slots
    pairs = []  # E[x xᴴ] and E[x xᵀ]
    for conjugate in (np.conj, np.asarray):
        now = B @ conjugate(B).swapaxes(1, 2)
        same = now / -np.expm1(log_poles[:, :, None] + conjugate(log_poles)[:, None, :])
        apart = now if system.backward_delay == 0 else np.zeros_like(now)
        pairs.append(np.stack([np.stack([same, apart]), np.stack([apart, same])])[: system.directions, : system.directions])
    hermitian, plain = pairs
    real = (hermitian + plain).real / 2, (plain - hermitian).imag / 2
    imag = (hermitian + plain).imag / 2, (hermitian - plain).real / 2
    gram = np.stack([np.stack(real), np.stack(imag)])  # (2, 2, directions, directions, problems, slots, slots)
    gram = gram.transpose(4, 5, 2, 0, 6, 3, 1)
    drive = np.stack([B, B if system.backward_delay == 0 else np.zeros_like(B)])[: system.directions]
    cross = np.stack([drive.real, drive.imag], axis=1).transpose(2, 3, 0, 1, 4)
    parts = 2 * system.directions
    shape = layout.problems, layout.slots, parts
    return Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), np.ones((layout.problems, B.shape[2])))


def collect(model: nn.Module, batches: Iterable[Any]) -> dict[str, Moments]:
    """Run a model on unlabelled inputs and return the moments of every SSM layer.

    A batch is what the model takes, or a pair of that and lengths (batch,) beyond which there is padding.
    """
    import torch

    model = copy.deepcopy(model).eval()
    tallies = {path: Tally(adapter.read(layer, "keep")) for path, (adapter, layer) in layers_of(model).items()}
    with torch.no_grad():
        for x, lengths in slices(batches):
            see = {path: lambda rows, u, y, t=tally: t.add(u, None if lengths is None else lengths[rows]) for path, tally in tallies.items()}
            watch(model, x, see)
    return {path: tally.moments() for path, tally in tallies.items()}


class Tally:
    def __init__(self, system: DiagonalSystem, every: int = EVERY) -> None:
        self.every = every
        self.system, self.layout = system, Layout.of(system)
        B = self.layout.spread(system.B)  # (problems, slots, inputs)
        log_poles = self.layout.spread(system.log_poles)
        a = np.arange(every)
        self.sums = None
        self.count = 0
        powers = np.exp(a[:, None] * log_poles[:, None])  # (problems, every, slots)
        into = (powers[..., None] * B[:, None]).swapaxes(2, 3)  # (problems, every, inputs, slots): from a step to the state at the end
        self.drives = [into[:, ::-1], into][: system.directions]
        self.leap = np.exp(every * log_poles)
        self.pole = np.exp(log_poles)
        self.B = B

    def add(self, u, lengths=None, residual=None):
        import torch
        for i in range(0, len(u), max(1, STEPS_AT_ONCE // u.shape[1])):
            s = slice(i, i + max(1, STEPS_AT_ONCE // u.shape[1]))
            self._add(u[s], None if lengths is None else lengths[s], None if residual is None else residual[s])

    def chunks(self, u):
        from torch.nn.functional import pad
        b, L, H = u.shape
        u = pad(u, (0, 0, -L % self.every, 0))
        P = self.layout.problems
        return u.view(b, -1, self.every, P, H // P).permute(3, 1, 0, 2, 4)  # P, C, b, s, p

    def _add(self, u, lengths, residual):
        import torch
        P, m = self.layout.problems, self.layout.slots
        b, L, H = u.shape
        c = self.chunks(u)
        C = c.shape[1]
        flat = c.reshape(P, C * b, -1)
        z = []
        like = dict(dtype=u.dtype, device=u.device)
        cplx = u.dtype.to_complex()
        leap = torch.from_numpy(self.leap).to(cplx)[:, None]
        for d, drive in enumerate(self.drives):
            K = torch.view_as_real(torch.from_numpy(np.ascontiguousarray(drive)).to(cplx)).reshape(P, -1, 2 * m)
            x = torch.view_as_complex(torch.bmm(flat, K).view(P, C, b, m, 2))
            order = range(1, C) if d == 0 else range(C - 2, -1, -1)
            for k in order:
                x[:, k].addcmul_(x[:, k - 1 if d == 0 else k + 1], leap)
            if d == 1:
                nxt = torch.zeros_like(x); nxt[:, :-1] = x[:, 1:]
                if self.system.backward_delay == 0:
                    now = c[:, :, :, -1] @ 0 if False else torch.einsum("pcbi,pmi->pcbm", c[:, :, :, -1].to(cplx), torch.from_numpy(self.B).to(cplx))
                    nxt = nxt * torch.from_numpy(self.pole).to(cplx)[:, None, None] + now
                x = nxt
            z.append(torch.view_as_real(x))
        z = torch.stack(z, -2).double().view(P, C * b, -1)
        us = c[:, :, :, -1].reshape(P, C * b, -1).double()
        n = C * b
        if lengths is not None:
            times = torch.arange(C) * self.every + (L - 1 - (C - 1) * self.every)
            valid = (times[:, None] < lengths[None]).reshape(1, -1, 1)
            z, us = z * valid, us * valid
            n = int(valid.sum())
        parts = [z.mT @ z, z.mT @ us, us.square().sum(1)]
        if residual is not None:
            r = self.chunks(residual)[:, :, :, -1].reshape(P, C * b, -1).double()
            if lengths is not None: r = r * valid
            parts += [z.mT @ r, (us * r).sum(1), r.square().sum(1)]
        self.sums = parts if self.sums is None else [s.add_(p) for s, p in zip(self.sums, parts)]
        self.count += n

    def moments(self):
        s = [x.div(self.count).numpy() for x in self.sums]
        f = 2 * self.system.directions
        P, m = self.layout.problems, self.layout.slots
        self.residual = s[3:]
        return Moments(s[0].reshape(P, m, f, m, f), s[1].reshape(P, m, f, -1), s[2])


class _AllSeen(Exception):
    pass


def watch(model, x, see):
    waiting = dict.fromkeys(see, len(x))

    def hook(path):
        def shown(layer, args, y):
            u = args[0]
            start = len(x) - waiting[path]
            see[path](slice(start, start + len(u)), u, y)
            waiting[path] -= len(u)
            if not any(waiting.values()):
                raise _AllSeen
        return shown
    handles = [model.get_submodule(path).register_forward_hook(hook(path)) for path in see]
    try:
        model(x)
    except _AllSeen:
        pass
    finally:
        for h in handles: h.remove()


def slices(batches):
    for batch in batches:
        x, lengths = batch if isinstance(batch, tuple | list) else (batch, None)
        size = max(2, STEPS_AT_ONCE // x.shape[1]) // 2 * 2
        for i in range(0, len(x), size):
            yield x[i:i+size], None if lengths is None else lengths[i:i+size]
