"""DPLR kernels of state-spaces/s4: read as modes where they are well conditioned, refused with the number elsewhere."""

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from flax_oracle import GOLDEN
from reference import close
from ssmprune.adapters.state_spaces import StateSpacesDiag, StateSpacesDPLR
from ssmprune.models.layers import hippo_n

STATE = sp.load_tree(GOLDEN / "s4block_diag_uni.pt")
DPLR = StateSpacesDPLR(real_transform="exp", bidirectional=False)
DAMAGED = STATE | {"layer.kernel.P": torch.full((1, 8, 8, 2), torch.nan)}


def legs(n, scale=1.0):
    """A DPLR kernel of one channel at the LegS initialisation, its low-rank part times `scale`."""
    k = torch.arange(n, dtype=torch.float64)
    poles, V = (value[..., n // 2 :] for value in hippo_n(n))  # the half with Im < 0, as the original code keeps
    P, B = V.mH @ ((k + 0.5).sqrt() * scale).to(V.dtype), V.mH @ (2 * k + 1).sqrt().to(V.dtype)
    kernel = {"A_real": (-poles.real).log(), "A_imag": -poles.imag, "P": torch.view_as_real(P)[None]}
    kernel |= {"B": torch.view_as_real(B)[None], "C": torch.randn(1, n // 2, 2, dtype=torch.float64)}
    arrays = {name: value[None] for name, value in kernel.items()}
    return {f"layer.kernel.{name}": value for name, value in arrays.items()} | {
        "layer.kernel.inv_dt": torch.full((1, 1), -3.0, dtype=torch.float64),
        "layer.kernel.l_kernel": torch.tensor(0),
    }


def test_the_condition_of_legs_is_that_of_its_matrix():
    """A - P P* of all states is HiPPO-LegS itself, whose eigenvalues are -1 to -N."""
    k = np.arange(16)
    matrix = -np.where(k[:, None] > k, np.sqrt(np.outer(2 * k + 1, 2 * k + 1)), np.diag(k + 1.0))
    assert f"{np.linalg.cond(np.linalg.eig(matrix)[1]):.1g}" == "8e+10"
    (system,) = sp.read(legs(4), adapter=StateSpacesDPLR(real_transform="exp", bidirectional=False)).values()
    continuous = 2 * np.tanh(system.log_poles / 2) / np.exp(-3.0)
    close(np.sort_complex(continuous), np.array([-4, -3, -2, -1], complex), 1e-9)


def test_dplr_without_its_low_rank_part_is_diagonal():
    state = legs(8, scale=0.0)
    (system,) = sp.read(state, adapter=DPLR).values()
    plain = {name: value for name, value in state.items() if not name.endswith((".P", "l_kernel"))}
    (diagonal,) = sp.read(
        plain, adapter=StateSpacesDiag(disc="bilinear", real_transform="exp", bidirectional=False)
    ).values()
    u = np.random.default_rng(0).normal(size=(30, 1))
    close(system.simulate(u), diagonal.simulate(u), 1e-9)


class SSMKernelDPLR(nn.Module):
    """The parameters and options of the kernel, as the original module keeps them."""

    def __init__(self, state, **options):
        super().__init__()
        for name, value in state.items():
            self.register_buffer(name.rpartition(".")[2], value.clone())
        for name, value in (
            {"real_transform": "exp", "imag_transform": "none", "dt_transform": "exp"} | options
        ).items():
            setattr(self, name, value)


def test_a_dplr_module_records_its_options_and_is_converted():
    state = legs(6, scale=0.1)
    (expected,) = sp.read(state, adapter=DPLR).values()
    block = nn.Module()
    block.kernel, block.D, block.bidirectional = SSMKernelDPLR(state), nn.Parameter(torch.ones(1, 1)), False
    (system,) = sp.read(block).values()
    assert system.fingerprint == expected.fingerprint
    plan = sp.make_plan(sp.read(block), 0.5)
    with pytest.raises(sp.InputError, match=r"Layer 'kernel': .*coupled.*sp\.convert\(model, plan\)"):
        sp.shrink(block, plan)
    u = np.random.default_rng(0).normal(size=(30, 1))
    with torch.no_grad():
        y = sp.convert(block, plan)["kernel"](torch.from_numpy(u)[None].float())[0]
    close(y, plan.apply(sp.read(block))["kernel"].simulate(u) + u)
    with pytest.raises(sp.InputError, match="Calibration cannot watch a layer of state_spaces_dplr"):
        sp.collect(block, [torch.randn(2, 20, 1)])


def module_with(**options):
    block = nn.Module()
    block.kernel, block.D = SSMKernelDPLR(legs(6, scale=0.1), **options), nn.Parameter(torch.ones(1, 1))
    block.bidirectional = False
    return block


def test_steps_of_a_fast_kernel_are_stored_as_the_inverse_of_sinh():
    state = legs(6, scale=0.1)
    (expected,) = sp.read(state | {"layer.kernel.inv_dt": state["layer.kernel.inv_dt"].sinh()}, adapter=DPLR).values()
    (system,) = sp.read(module_with(dt_fast=True)).values()
    close(system.log_poles, expected.log_poles, 1e-12)


@pytest.mark.parametrize(("options", "reason"), [({"bandlimit": 0.5}, "bandlimit=0.5"), ({"is_real": True}, "is_real")])
def test_unusual_kernels_are_refused(options, reason):
    with pytest.raises(sp.InputError, match=reason):
        sp.read(module_with(**options))


@pytest.mark.parametrize(
    ("model", "adapter", "reason"),
    [
        (lambda: STATE | {"layer.kernel.P": torch.zeros(1)}, None, "does not record real_transform, bidirectional"),
        (lambda: STATE | {"layer.kernel.P": torch.zeros(1)}, DPLR, "state_spaces_dplr layer do not belong together"),
        (lambda: DAMAGED, DPLR, "A or P of a DPLR layer is not finite"),
        (
            lambda: legs(16),
            DPLR,
            r"'layer\.kernel': .*\(DPLR\) S4 layer.* their condition number is 8e\+10.*more than 1e\+04.*S4D",
        ),
    ],
)
def test_unreadable_kernels_are_refused_with_the_reason(model, adapter, reason):
    with pytest.raises(sp.InputError, match=reason):
        sp.read(model(), adapter=adapter)
