"""One model of every family and what its own code computes: a function named like the adapter.

A function takes a random generator and returns (adapter, model, run, whether single states can be cut out natively);
None in the last place where they cannot even be silenced.
Where a code is not installed, `run` transcribes it, reading its own names.
"""

import warnings

import numpy as np
import torch
from torch import nn

from ssmprune.adapters.annotated_s4d import AnnotatedS4D
from ssmprune.adapters.flax_s5 import FlaxS5
from ssmprune.adapters.lrnnx import LrnnxS5
from ssmprune.adapters.minimal_lru import MinimalLRU
from ssmprune.adapters.ours import S4DAdapter, S5Adapter
from ssmprune.adapters.s5_pytorch import S5Pytorch
from ssmprune.adapters.state_spaces import StateSpacesDiag, StateSpacesDPLR, StateSpacesS4D
from ssmprune.models import S4DLayer, S5Layer
from ssmprune.models.config import LayerOptions

WIDTH = 4


def s5(rng):
    layer = S5Layer(WIDTH, 6, LayerOptions(bidirectional=bool(rng.integers(2)), pole_form=rng.choice(["exp", "clip"])))
    nearly_real(layer.pole_im, layer.B)
    return S5Adapter(), nn.Sequential(layer), torch_run, True


def s4d(rng):
    layer = S4DLayer(WIDTH, 12, LayerOptions(bidirectional=bool(rng.integers(2)), backward_delay=int(rng.integers(2))))
    nearly_real(layer.pole_im, layer.B)
    return S4DAdapter(), nn.Sequential(layer), torch_run, True


def s5_pytorch(rng):
    block = s5_package().S5Block
    model = nn.Sequential(block(WIDTH, 6, bidir=bool(rng.integers(2))), block(WIDTH, 8, bidir=False))
    for part in model.modules():
        if "Lambda" in part._parameters:
            nearly_real(part.Lambda.imag, part.B)
    return S5Pytorch(), model, lambda m, path, u: torch_run(m, path.removesuffix(".seq"), u), True


def flax_s5(rng):
    conj_sym, clip_eigs, both = (bool(rng.integers(2)) for _ in range(3))
    discretization = str(rng.choice(["zoh", "bilinear"]))
    family = FlaxS5(conj_sym, clip_eigs, discretization, step_rescale=float(rng.choice([0.5, 1, 2])))

    def layer(n):
        readouts = [rng.normal(size=(WIDTH, n, 2)) for _ in range(1 + both)]
        C = {"C": np.concatenate(readouts, 1)} if rng.integers(2) else dict(zip(("C1", "C2"), readouts, strict=False))
        return {
            "Lambda_re": rng.normal(-0.5, 0.3 if clip_eigs else 0.05, n),
            "Lambda_im": rng.normal(size=n) * 20,
            "B": rng.normal(size=(n, WIDTH, 2)),
            "D": rng.normal(size=WIDTH),
            "log_step": rng.uniform(-6, -2, (n, 1)),
        } | (C if both or "C" in C else {"C": C["C1"]})

    def run(tree, path, u):
        p = at(tree, path)
        poles = (np.minimum(p["Lambda_re"], -1e-4) if clip_eigs else p["Lambda_re"]) + 1j * p["Lambda_im"]
        step = family.step_rescale * np.exp(p["log_step"][:, 0])
        if discretization == "zoh":
            poles_bar = np.exp(poles * step)
            scale = (poles_bar - 1) / poles
        else:
            scale = step / (1 - step / 2 * poles)
            poles_bar = (1 + step / 2 * poles) / (1 - step / 2 * poles)
        C = p["C"] if "C" in p else np.concatenate([p["C1"], p["C2"]], 1)
        return recurrence(poles_bar, scale[:, None] * whole(p["B"]), whole(C), u, 1 + conj_sym) + p["D"] * u

    return family, {"params": {"layers_0": {"seq": layer(6)}, "layers_1": {"seq": layer(5)}}}, run, True


def minimal_lru(rng):
    n = 7
    shapes = {"B_re": (n, WIDTH), "B_im": (n, WIDTH), "C_re": (WIDTH, n), "C_im": (WIDTH, n), "D": (WIDTH,)}
    parts = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    own = {"nu_log": rng.normal(-2, 1, n), "theta_log": rng.normal(0, 1, n), "gamma_log": rng.normal(-1, 0.3, n)}

    def run(tree, path, u):
        p = at(tree, path)
        poles = np.exp(-np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"]))
        B = (p["B_re"] + 1j * p["B_im"]) * np.exp(p["gamma_log"])[:, None]
        return recurrence(poles, B, p["C_re"] + 1j * p["C_im"], u) + p["D"] * u

    return MinimalLRU(), {"params": {"seq": parts | own}}, run, True


class LrnnxLayer(nn.Module):
    """A stand-in for the layers of lrnnx, which needs CUDA to be built: the same arrays, attributes and equations.

    It ignores the lengths of steps.
    """

    def __init__(self, arrays, rule="zoh", conj_sym=False, step_rescale=1.0):
        super().__init__()
        for name, array in arrays.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(array)))
        self.events, self.conj_sym = arrays["D"].ndim == 1, conj_sym  # `ltv.S5`, or `lti.S5`
        self.d_state = len(arrays["B"] if "B" in arrays else arrays["B_re"])
        self.discretize_fn = lambda: None
        self.discretize_fn.__name__ = rule
        if self.events:
            self.discretization, self.step_rescale = rule, step_rescale
        else:
            self.state_dim = self.d_state

    def discrete(self):
        if hasattr(self, "nu_log"):
            B = torch.complex(self.B_re, self.B_im) * self.gamma_log.exp()[:, None]
            return torch.complex(-self.nu_log.exp(), self.theta_log.exp()).exp(), B
        step, A = self.log_dt.exp(), torch.view_as_complex(self.A)
        if self.events:
            step, B = step * self.step_rescale, torch.view_as_complex(self.B)
        else:
            A, B = torch.complex(-nn.functional.softplus(self.A[:, 0]), self.A[:, 1]), self.B
        rule, half = self.discretize_fn.__name__, step * A / 2 * (1 if self.events else -1)
        poles, factor = {
            "zoh": lambda: ((step * A).exp(), ((step * A).exp() - 1) / A),
            "dirac": lambda: ((step * A).exp(), torch.ones_like(A)),
            "bilinear": lambda: ((1 + half) / (1 - half), step / (1 - half)),
            "no_discretization": lambda: (A, torch.ones_like(A)),
        }[rule]()
        return poles, factor[:, None] * B

    def forward(self, u, integration_timesteps=None, lengths=None):
        y, s = [], torch.zeros(len(u), self.d_state, dtype=u.dtype.to_complex())
        for u_k in u.unbind(1):
            y_k, s = self.step(u_k, s)
            y.append(y_k)
        return torch.stack(y, 1)

    def step(self, u, s):
        poles, B = self.discrete()
        C = torch.complex(self.C_re, self.C_im) if hasattr(self, "C_re") else torch.view_as_complex(self.C)
        s = poles * s + u.to(s.dtype) @ B.T.to(s.dtype)
        return (1 + self.conj_sym) * (s @ C.T).real + (self.D * u if self.D.ndim == 1 else u @ self.D), s


def lrnnx_s5(rng):
    """One layer of each kind; D of the first is diagonal, since the contract converts it."""
    n = 6
    plain = {
        "A": rng.normal(size=(n, 2)),
        "B": rng.normal(size=(n, WIDTH)),
        "C": rng.normal(size=(WIDTH, n, 2)),
        "D": np.diag(rng.normal(size=WIDTH)),
        "log_dt": rng.uniform(-3, -1, n),
    }
    plain["A"][:4, 1] = [1e-40, 1e-20, 1e-12, 1e-6]
    event = plain | {"B": rng.normal(size=(n, WIDTH, 2)), "D": rng.normal(size=WIDTH)}
    event["A"] = np.stack([-np.exp(rng.normal(size=n)), rng.normal(size=n) * 10], 1)
    lti = LrnnxLayer(plain, str(rng.choice(["zoh", "dirac"])))
    ltv = LrnnxLayer(
        event, str(rng.choice(["zoh", "dirac", "bilinear"])), bool(rng.integers(2)), float(rng.integers(1, 3))
    )
    return LrnnxS5(), nn.Sequential(lti, ltv).float(), torch_run, True


def annotated_s4d(rng):
    n = 5
    layer = {
        "A_re": rng.normal(-0.2, 0.2, (n, WIDTH)),
        "A_im": rng.normal(size=(n, WIDTH)) * 10,
        "B_re": rng.normal(size=(n, WIDTH)),
        "B_im": rng.normal(size=(n, WIDTH)),
        "C": rng.normal(size=(n, WIDTH, 2)),
        "D": rng.normal(size=(1, WIDTH)),
        "log_step": rng.uniform(-5, -2, (1, WIDTH)),
    }

    def run(tree, path, u):
        p = at(tree, path)
        poles = np.minimum(p["A_re"], -1e-4) + 1j * p["A_im"]
        poles_bar = np.exp(poles * np.exp(p["log_step"]))
        return kernels_applied((whole(p["C"]) * (poles_bar - 1) / poles).T, poles_bar.T, u, 1) + p["D"] * u

    return AnnotatedS4D(), {"params": {"layers_0": {"seq": layer}}}, run, False


def state_spaces_s4d(rng):
    n = 5
    state = {
        "D": rng.normal(size=WIDTH),
        "kernel.C": rng.normal(size=(WIDTH, n, 2)),
        "kernel.log_dt": rng.uniform(-6, -2, WIDTH),
        "kernel.log_A_real": rng.normal(size=(WIDTH, n)),
        "kernel.A_imag": rng.normal(size=(WIDTH, n)) * 10,
    }
    model = {f"s4_layers.{i}.{name}": torch.from_numpy(value) for i in range(2) for name, value in state.items()}

    def run(tree, path, u):
        p = {name: tree[f"{path}.{name}"].numpy() for name in ("C", "log_dt", "log_A_real", "A_imag")}
        poles = -np.exp(p["log_A_real"]) + 1j * p["A_imag"]
        steps = np.exp(p["log_dt"])[:, None]
        C = whole(p["C"]) * (np.exp(poles * steps) - 1) / poles
        return kernels_applied(C, np.exp(poles * steps), u, 2) + tree[path.replace("kernel", "D")].numpy() * u

    return StateSpacesS4D(), model, run, False


def state_spaces_diag(rng):
    n, disc, transform = 5, str(rng.choice(["zoh", "bilinear"])), str(rng.choice(["exp", "relu", "softplus"]))
    both, tied, untied_steps = (bool(rng.integers(2)) for _ in range(3))
    own = WIDTH // 2 if tied else WIDTH
    state = {
        "layer.D": rng.normal(size=(1, WIDTH)),
        "layer.kernel.inv_dt": rng.uniform(-6, -2, (WIDTH, n if untied_steps else 1)),
        "layer.kernel.C": rng.normal(size=(1 + both, WIDTH, n, 2)),
        "layer.kernel.B": rng.normal(size=(1, own, n, 2)),
        "layer.kernel.A_real": rng.normal(size=(own, n)),
        "layer.kernel.A_imag": rng.normal(size=(own, n)) * 10,
    }
    positive = {"exp": np.exp, "relu": lambda x: np.maximum(x, 0) + 1e-4, "softplus": lambda x: np.log1p(np.exp(x))}

    def run(tree, path, u):
        p = {name: tree[f"{path}.{name}"] for name in ("C", "B", "inv_dt", "A_real", "A_imag")}
        poles = np.tile(-positive[transform](p["A_real"]) - 1j * p["A_imag"], (WIDTH // len(p["A_real"]), 1))
        B = np.tile(whole(p["B"])[0], (WIDTH // len(p["A_real"]), 1))
        step = np.exp(p["inv_dt"])
        if disc == "zoh":
            poles_bar, scale = np.exp(poles * step), (np.exp(poles * step) - 1) / poles
        else:
            poles_bar, scale = (1 + poles * step / 2) / (1 - poles * step / 2), step / (1 - poles * step / 2)
        C = whole(p["C"]) * B * scale
        y = kernels_applied(C[0], poles_bar, u, 2) + tree["layer.D"] * u
        if both:  # the second kernel starts at the next sample
            later = np.concatenate([u[1:], np.zeros((1, WIDTH))])
            y += kernels_applied(C[1], poles_bar, later[::-1], 2)[::-1]
        return y

    return StateSpacesDiag(disc=disc, real_transform=transform, bidirectional=both), state, run, False


def state_spaces_dplr(rng):
    """Either generation of the kernel, by its own algorithm: a Cauchy product and Woodbury at the roots of unity."""
    n, length, rank = 5, 32, int(rng.integers(1, 3))
    both, tied, older = (bool(rng.integers(2)) for _ in range(3))
    own = WIDTH // 2 if tied else WIDTH
    decay, frequency = rng.normal(0, 0.3, (own, n)), np.arange(1, n + 1) * 3 + rng.normal(size=(own, n))
    kernel = {
        "C": rng.normal(size=(1 + both, WIDTH, n, 2)),
        "B": rng.normal(size=(1, own, n, 2)),
        "P": 0.3 * rng.normal(size=(rank, own, n, 2)),
    }
    log_dt, size = rng.uniform(-4, -2, WIDTH), np.array(length)
    if older:
        kernel |= {"inv_w_real": decay, "w_imag": frequency, "log_dt": log_dt, "L": size}
    else:
        kernel |= {"A_real": decay, "A_imag": -frequency, "inv_dt": log_dt[:, None], "l_kernel": size}
    state = {"layer.D": rng.normal(size=(1, WIDTH))} | {f"layer.kernel.{name}": v for name, v in kernel.items()}

    def run(tree, path, u):
        p = {name: tree[f"{path}.{name}"] for name in kernel}
        A = -np.exp(p["inv_w_real" if older else "A_real"]) + 1j * (p["w_imag"] if older else -p["A_imag"])
        dt = np.exp(p["log_dt"] if older else p["inv_dt"][:, 0])
        K = np.array([
            [dplr_kernel(A[h % own], whole(p["P"])[:, h % own], whole(p["B"])[0, h % own], C[h], dt[h], length)
             for h in range(WIDTH)]
            for C in whole(p["C"])
        ])  # fmt: skip
        y = np.array([sum(K[0, :, j] * u[k - j] for j in range(k + 1)) for k in range(len(u))]) + tree["layer.D"] * u
        if both:  # the second kernel starts at the next sample
            y += [sum(K[1, :, j] * u[k + 1 + j] for j in range(len(u) - k - 1)) + 0 * u[k] for k in range(len(u))]
        return y

    return StateSpacesDPLR(real_transform="exp", bidirectional=both), state, run, None


def dplr_kernel(A, P, B, C, dt, length):
    """K of one channel: the generating function of (A - P P*, B, C) at the roots of unity, C stored as C (I - Ā^L)."""
    omega = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length) + (0 if length % 2 else 1e-12)
    z = 2 * (1 - omega) / (1 + omega)

    def cauchy(left, right):
        v = left * right * dt
        return np.array([(v / (x - dt * A)).sum() + (v.conj() / (x - dt * A.conj())).sum() for x in z])

    r00, r01 = cauchy(B, C), np.array([cauchy(B, q.conj()) for q in P])
    r10, r11 = np.array([cauchy(p, C) for p in P]), np.array([[cauchy(p, q.conj()) for q in P] for p in P])
    mended = [r01[:, k] @ np.linalg.solve(np.eye(len(P)) + r11[:, :, k], r10[:, k]) for k in range(len(z))]
    return np.fft.irfft((r00 - mended) * 2 / (1 + omega), length)


def nearly_real(pole_im, B):
    """Make some states real but for rounding, as training does; Im x of these is next to nothing."""
    with torch.no_grad():
        pole_im[:4] = torch.tensor([1e-40, 1e-20, 1e-12, 1e-6])
        B[:4, ..., 1] = 0


def s5_package():
    """PyPI's s5-pytorch, which imports with warnings of the torch it was written before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import s5
    return s5


def torch_run(model, path, u):
    with torch.no_grad():
        layer = model.get_submodule(path)
        return layer(torch.from_numpy(u)[None].to(next(layer.parameters()).real.dtype))[0].double().numpy()


def at(tree, path):
    for name in path.split("."):
        tree = tree[name]
    return tree


def whole(parts):
    return parts[..., 0] + 1j * parts[..., 1]


def recurrence(poles, B, C, u, gain=1):
    """gain Re(C [x, x']) with x forwards and, where C has room for it, x' backwards over the same B u."""
    forward, backward = (np.zeros((len(u), len(poles)), complex) for _ in range(2))
    x = x_back = np.zeros(len(poles), complex)
    for k in range(len(u)):
        forward[k] = x = poles * x + B @ u[k]
        backward[-1 - k] = x_back = poles * x_back + B @ u[-1 - k]
    states = forward if C.shape[1] == len(poles) else np.concatenate([forward, backward], 1)
    return gain * (states @ C.T).real


def kernels_applied(C, poles, u, gain):
    """y_k = sum_j K_j u_{k-j} in each channel, with K_j = gain Re(sum_n C poles^j); C and poles are (channels, n)."""
    K = np.array([gain * (C * poles**j).sum(1).real for j in range(len(u))])
    return np.array([sum(K[j] * u[k - j] for j in range(k + 1)) for k in range(len(u))])
