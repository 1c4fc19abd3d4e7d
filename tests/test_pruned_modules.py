"""Pruned torch modules of other codes come back: saved, loaded into a model built anew, also in another process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import families
import ssmprune as sp
from ssmprune.models import S4DLayer, S5Layer

PROGRAM = Path(__file__).parent / "programs" / "load_pruned.py"
X = torch.randn(3, 50, 8, generator=torch.Generator().manual_seed(0))


def peers(*, states=(16, 12), seed=0):
    torch.manual_seed(seed)
    S5 = families.s5_package().S5
    return nn.Sequential(
        S5(width=8, state_width=states[0]), nn.GELU(), S5(width=8, state_width=states[1], bidir=True)
    ).eval()


def outputs(model, x=X):
    with torch.no_grad():
        return model.eval()(x)


def assert_same(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_pruned_s5_pytorch_model_comes_back_in_a_new_process(tmp_path):
    small = sp.prune(peers(), ratio=0.8, data=[X])
    sp.save_pruned(small, tmp_path / "small.safetensors")
    np.save(tmp_path / "x.npy", X.numpy())
    subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "small.safetensors", tmp_path / "x.npy", tmp_path / "y.npy"], check=True
    )
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), outputs(small).numpy(), rtol=1e-5, atol=1e-6)


def test_every_tensor_comes_back_and_the_model_given_stays(tmp_path):
    small, fresh = sp.prune(peers(), ratio=0.7), peers(seed=1)
    sp.save_pruned(small, tmp_path / "small.safetensors")
    before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    again = sp.load_pruned(fresh, tmp_path / "small.safetensors")
    assert_same(again, small)
    assert torch.equal(outputs(again), outputs(small))
    assert all(torch.equal(tensor, fresh.state_dict()[name]) for name, tensor in before.items())
    assert all(isinstance(parameter, nn.Parameter) for parameter in again.parameters())
    again(X).sum().backward()  # it can be trained on


@pytest.mark.parametrize("layer", [S5Layer, S4DLayer])
def test_our_own_layers_inside_other_modules(layer, tmp_path):
    def build(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 8), layer(8, 32), nn.GELU(), layer(8, 16))

    small = sp.prune(build(0), ratio=0.6)
    sp.save_pruned(small, tmp_path / "small.safetensors")
    again = sp.load_pruned(build(1), tmp_path / "small.safetensors")
    assert_same(again, small)
    x = torch.randn(2, 30, 3)
    assert torch.equal(outputs(again, x), outputs(small, x))


class Kernel(nn.Module):
    """The parameters of state-spaces/s4's S4DKernel: a grid with as many states in every channel."""

    def __init__(self, channels, n):
        super().__init__()
        self.log_dt = nn.Parameter(torch.randn(channels) - 4)
        self.C = nn.Parameter(torch.randn(channels, n, 2))
        self.log_A_real = nn.Parameter(torch.randn(channels, n))
        self.A_imag = nn.Parameter(torch.randn(channels, n))


def test_grids_are_cut_channel_by_channel(tmp_path):
    model = nn.ModuleDict({"kernel": Kernel(4, 6)})
    small = sp.prune(model, ratio=0.5, limits=sp.Limits(floor="channel"), method=sp.Method("first", first, sp.uniform))
    assert small["kernel"].C.shape == (4, 3, 2)
    sp.save_pruned(small, tmp_path / "small.safetensors")
    assert_same(sp.load_pruned(nn.ModuleDict({"kernel": Kernel(4, 6)}), tmp_path / "small.safetensors"), small)


def first(system, evidence):
    """Score states by their place in their channel, so that every channel keeps as many."""
    return -np.arange(system.n) % (system.n // system.inputs) * 1.0


def test_other_precisions_come_back(tmp_path):
    model = nn.Sequential(S5Layer(4, 8).double(), nn.Linear(4, 2).bfloat16(), nn.Linear(2, 2).half())
    model = sp.prune(model, 0.0)
    sp.save_pruned(model, tmp_path / "m.safetensors")
    again = sp.load_pruned(model, tmp_path / "m.safetensors")
    assert_same(again, model)
    assert [p.dtype for p in again.parameters()] == [p.dtype for p in model.parameters()]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name in "ab":
        sp.save_pruned(sp.prune(peers(), 0.5), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_mistakes_are_explained(tmp_path):
    small, file = sp.prune(peers(), ratio=0.5), tmp_path / "small.safetensors"
    sp.save_pruned(small, file)
    tiny = [len(system.log_poles) for system in sp.read(small).values()]
    with pytest.raises(sp.InputError, match=rf"'0\.seq' has {tiny[0]} states there and 1 states.*before it was pruned"):
        sp.load_pruned(peers(states=(1, 12)), file)
    with pytest.raises(sp.InputError, match=r"SSM layer '2\.seq' exists only in the file"):
        sp.load_pruned(peers()[:1], file)
    with pytest.raises(sp.InputError, match=r"tensor '3\.bias' exists only in the model"):
        sp.load_pruned(nn.Sequential(*peers(), nn.Linear(8, 2)), file)
    with pytest.raises(sp.InputError, match=r"takes a torch module; got OrderedDict.*`save_tree`"):
        sp.save_pruned(small.state_dict(), file)
    with pytest.raises(sp.InputError, match="No diagonal SSM layer"):
        sp.save_pruned(nn.Linear(2, 2), file)
    with pytest.raises(
        sp.InputError, match=r"is a pruned module; expected a classifier\. Read it with ssmprune\.load_pruned\("
    ):
        sp.load(file)
    with pytest.raises(sp.InputError, match="`save_pruned`"):
        sp.save(small, tmp_path / "other.safetensors")
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(sp.InputError, match="damaged"):
        sp.load_pruned(peers(), file)


def unstable_peers():
    model = peers()
    with torch.no_grad():
        model[2].seq.Lambda.real[3] = 1e-3  # as s5-pytorch trains them: nothing holds a pole back
    return model


def test_poles_slightly_outside_are_named_and_can_be_kept(tmp_path):
    model = unstable_peers()
    told = r"Layer '2\.seq': State 3 has a pole .*`prune` and `Pruning` take unstable=\"keep\".*--unstable keep"
    with pytest.raises(sp.InputError, match=told):
        sp.prune(model, 0.5)
    for data in (None, [X]):
        small = sp.prune(model, 0.8, data=data, unstable="keep")
        assert any(system.unstable_states.any() for system in sp.read(small, unstable="keep").values())
        assert torch.isfinite(outputs(small)).all()
        sp.save_pruned(small, tmp_path / "small.safetensors")
        assert torch.equal(outputs(sp.load_pruned(peers(), tmp_path / "small.safetensors")), outputs(small))
