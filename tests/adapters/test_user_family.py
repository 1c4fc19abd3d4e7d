"""A family of somebody else: passed as an object, found by an entry point, checked by the contract, documented."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import families
import ssmprune as sp
from ssmprune import adapters
from ssmprune.planning import refit_each_layer
from ssmprune.testing import check_adapter

DOCUMENT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_document_runs_and_its_layer_is_short(tmp_path, monkeypatch):
    shutil.copy(Path(__file__).parents[1] / "golden" / "s5_flax_checkpoint.msgpack", tmp_path / "checkpoint.msgpack")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {}
    for block in BLOCKS:
        exec(block, names)
    assert len(BLOCKS[0].splitlines()) <= 45
    assert names["small"][1].decay.shape == (10,)
    assert names["smaller"][1].decay.shape == (4,)
    assert names["quieter"].echoes.decay.shape == (9,)
    assert names["ours"].config.states == (8, 8, 8)
    assert (tmp_path / "pruned.msgpack").is_file()


def test_the_document_names_every_family():
    assert all(f"`{name}`" in DOCUMENT for name in adapters.found())


REACH = re.search(r"\| family \| pruned on data .*?\n\n", DOCUMENT, re.DOTALL)[0].splitlines()[2:-1]
REACHED = {name: row.split("|")[2:-1] for row in REACH for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize("name", sorted(adapters.found()))
def test_the_document_says_how_far_a_family_goes(name, tmp_path):
    torch.manual_seed(0)
    data, ours, onnx, c, bits = REACHED[name]
    adapter, model, _, _ = getattr(families, name)(np.random.default_rng(0))
    whole = name in ("s5", "s4d") or adapter.classifier is not None
    assert [("model" in words) for words in (ours, onnx, c, bits)] == [whole] * 4
    assert bool(data.strip()) == (whole or type(adapter).refit is not sp.Adapter.refit)
    assert sp.convert(model, adapter=adapter).keys() == sp.read(model, adapter=adapter).keys()
    for system in sp.read(model, adapter=adapter).values():
        sp.export_c(replace(system, C=system.C[:1]), tmp_path / "layer.c", D=np.ones(system.outputs))


class Leaky(nn.Module):
    """y_k = 2 Re(c x_k) + d u_k in one channel, with x_k = p x_{k-1} + u_k."""

    def __init__(self, n):
        super().__init__()
        self.p = nn.Parameter(0.9 * torch.exp(1j * torch.rand(n) * 3))
        self.c = nn.Parameter(torch.randn(n, dtype=torch.complex64))
        self.d = nn.Parameter(torch.randn(1))

    def forward(self, u):  # (batch, length, 1)
        x, y = 0, []
        for u_k in u.unbind(1):
            x = self.p * x + u_k
            y.append(2 * (self.c * x).real.sum(1, keepdim=True) + self.d * u_k)
        return torch.stack(y, 1)


class LeakyAdapter(sp.Adapter):
    name = "leaky"
    gain = 2

    def layers(self, model):
        parts = model.named_modules() if isinstance(model, nn.Module) else ()
        return {path: part for path, part in parts if isinstance(part, Leaky)}

    def read(self, layer):
        p, c = (tensor.detach().numpy() for tensor in (layer.p, layer.c))
        return sp.DiagonalSystem.from_discrete(p, np.ones((len(p), 1)), c[None], gain=self.gain)

    def mask(self, layer, keep):
        layer.c.data[~torch.from_numpy(keep)] = 0

    def shrink(self, layer, keep):
        layer.p, layer.c = nn.Parameter(layer.p[keep]), nn.Parameter(layer.c[keep])


class RefittedLeaky(LeakyAdapter):
    def refit(self, layer, keep, C, D_change):
        layer.c.data[torch.from_numpy(keep)] = torch.from_numpy(C[0, 0]).to(layer.c)
        layer.d.data += torch.from_numpy(D_change).to(layer.d)


def run(model, path, u):
    with torch.no_grad():
        return model.get_submodule(path)(torch.from_numpy(u).float()[None])[0].numpy()


class Upright(nn.Module):
    """A Leaky for one channel-first sequence at a time, (1, 1, length), which gives its output and a word."""

    def __init__(self, n):
        super().__init__()
        self.leaky = Leaky(n)

    def forward(self, word, u):
        return self.leaky(u.mT).mT, word


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.ModuleList([Leaky(6), Leaky(5)])


def test_the_contract_holds(model):
    check_adapter(LeakyAdapter(), model, run)
    assert [len(part.p) for part in sp.prune(model, 0.5, adapter=LeakyAdapter())] != [6, 5]


def test_without_a_refit_data_is_refused_in_a_sentence(model):
    net = nn.Sequential(*model)
    with pytest.raises(sp.InputError, match="Layer '0': The adapter of leaky cannot write a re-fitted C and D"):
        sp.prune(net, 0.5, data=[torch.randn(4, 50, 1)], adapter=LeakyAdapter())
    small = sp.prune(net, 0.5, data=[torch.randn(4, 50, 1)], adapter=RefittedLeaky())
    assert sum(len(layer.p) for layer in small) == 5


@pytest.mark.parametrize("adapter", [LeakyAdapter, "leaky", object()])
def test_an_object_that_is_no_adapter_is_refused(adapter, model):
    with pytest.raises(sp.InputError, match=r"derived from ssmprune\.Adapter; `adapter` is"):
        sp.read(model, adapter=adapter)


class ForgottenFactor(LeakyAdapter):
    gain = 1


class ForgottenMask(LeakyAdapter):
    def mask(self, layer, keep):
        pass


class MaskOfThePoles(LeakyAdapter):
    def mask(self, layer, keep):
        layer.p.data[~torch.from_numpy(keep)] = 0


class CutAtTheEnd(LeakyAdapter):
    def shrink(self, layer, keep):
        count = int(keep.sum())
        layer.p, layer.c = nn.Parameter(layer.p[:count]), nn.Parameter(layer.c[:count])


class ConjugatedReadout(LeakyAdapter):
    def read(self, layer):
        system = super().read(layer)
        return sp.DiagonalSystem(system.log_poles, system.B, system.C.conj(), gain=2.0)


class RealRefit(RefittedLeaky):
    """Drops the imaginary part of C."""

    def refit(self, layer, keep, C, D_change):
        super().refit(layer, keep, C.real + 0j, D_change)


class ForgottenD(RefittedLeaky):
    def refit(self, layer, keep, C, D_change):
        super().refit(layer, keep, C, 0 * D_change)


class RefitOfTheFirst(RefittedLeaky):
    def refit(self, layer, keep, C, D_change):
        super().refit(layer, np.arange(len(keep)) < keep.sum(), C, D_change)


class ShiftedInput(RefittedLeaky):
    def inputs_of(self, arguments):
        return arguments[0].roll(1, 1)


class TurnedOutput(RefittedLeaky):
    def outputs_of(self, result):
        return result.mT


class WriteOfTheReadout(RefittedLeaky):
    """Keeps the old poles."""

    def write(self, layer, system):
        layer.p, layer.c = nn.Parameter(layer.p[: system.n]), nn.Parameter(torch.tensor(system.C[0, 0]).to(layer.c))


WRONG = [
    ForgottenFactor,
    ForgottenMask,
    MaskOfThePoles,
    CutAtTheEnd,
    ConjugatedReadout,
    RealRefit,
    ForgottenD,
    RefitOfTheFirst,
    ShiftedInput,
    TurnedOutput,
    WriteOfTheReadout,
]


def test_a_refit_is_tested(model):
    check_adapter(RefittedLeaky(), model, run)


class CarefulRefit(RefittedLeaky):
    """As for a layer that has room for a real C alone, and no D."""

    def refit(self, layer, keep, C, D_change):
        self.refuse_D(D_change)
        super().refit(layer, keep, self.as_real(C) + 0j, D_change)


def test_a_refit_may_refuse_what_the_layer_cannot_hold(model):
    check_adapter(CarefulRefit(), model, run)
    systems = sp.read(model, adapter=CarefulRefit())
    plan = refit_each_layer(sp.make_plan(systems, 0.5), systems)
    with pytest.raises(sp.InputError, match=r"Layer '0': The re.* family leaky"):
        sp.shrink(model, plan, adapter=CarefulRefit())


class Restricted(CarefulRefit):
    def read(self, layer):
        return replace(super().read(layer), real_C=True, has_D=False)


@pytest.mark.parametrize("data", [None, torch.randn(30, 50, 1)])
def test_a_refit_stays_within_what_the_layer_holds(data):
    torch.manual_seed(0)
    net, unseen = nn.Sequential(Leaky(12), Leaky(10)), torch.randn(8, 50, 1)
    for layer in net:
        layer.c.data.imag = 0
    check_adapter(Restricted(), net, run)
    data = None if data is None else [data]
    work = sp.Pruning(net, sp.SURGEON, data=data, adapter=Restricted())
    plan = work.plan(0.5)
    assert plan.C
    assert not any(C.imag.any() for C in plan.C.values())
    assert not any(D.any() for D in plan.D_change.values())
    with torch.no_grad():
        errors = [(small(unseen) - net(unseen)).square().mean() for small in (
            work.shrink(plan), work.shrink(replace(plan, C={}, D_change={})))]  # fmt: skip
        free = sp.prune(net, 0.5, sp.SURGEON, data=data, adapter=RefittedLeaky())
    assert errors[0] < 0.5 * errors[1]
    assert all(layer.c.imag.any() for layer in free)


class RefusedRefit(RefittedLeaky):
    def refit(self, layer, keep, C, D_change):
        raise sp.InputError("never")


def test_a_refit_that_refuses_everything_fails_the_contract(model):
    with pytest.raises(AssertionError, match="refuses everything"):
        check_adapter(RefusedRefit(), model, run)


class UprightAdapter(RefittedLeaky):
    def calling_module(self, path):
        return path.removesuffix(".leaky")

    def inputs_of(self, arguments):
        return arguments[1].mT

    def outputs_of(self, result):
        return result[0].mT


def test_the_calling_module_may_have_arguments_and_results_of_its_own():
    torch.manual_seed(0)
    net = nn.ModuleDict({"upright": Upright(5)})

    def call(model, path, u):
        with torch.no_grad():
            return model["upright"]("word", torch.from_numpy(u).float().T[None])[0][0].T.numpy()

    check_adapter(UprightAdapter(), net, call)


class Turned(nn.Module):
    def __init__(self, upright):
        super().__init__()
        self.upright = upright

    def forward(self, x):  # (batch, length, 1)
        return self.upright("word", x.mT)[0].mT


def test_a_channel_first_layer_is_calibrated_like_its_twin():
    torch.manual_seed(0)
    upright, x = Upright(8), torch.randn(6, 40, 1)
    turned, plain = Turned(upright), nn.Sequential(upright.leaky)
    (ours,) = sp.collect(turned, [x], adapter=UprightAdapter()).values()
    (twins,) = sp.collect(plain, [x], adapter=RefittedLeaky()).values()
    np.testing.assert_array_equal(ours.gram, twins.gram)
    small = sp.prune(turned, 0.5, data=[x], adapter=UprightAdapter())
    twin = sp.prune(plain, 0.5, data=[x], adapter=RefittedLeaky())
    with torch.no_grad():
        assert torch.equal(small(x), twin(x))
        assert (small(x) - turned(x)).square().mean() < 0.1 * turned(x).square().mean()


@pytest.mark.parametrize("wrong", WRONG)
def test_the_contract_finds_mistakes(wrong, model):
    with pytest.raises(AssertionError):
        check_adapter(wrong(), model, run)


class InPlace(LeakyAdapter):
    """Keeps hold of the first layer it sees, which is the caller's, and cuts that."""

    def layers(self, model):
        self.first = getattr(self, "first", None) or super().layers(model)
        return self.first


def test_the_contract_finds_a_changed_original(model):
    with pytest.raises((AssertionError, sp.InputError)):
        check_adapter(InPlace(), model, run, ratios=(0.5,))


def test_families_that_never_lose_states_must_refuse(model):
    with pytest.raises(AssertionError, match="was pruned by shrink"):
        check_adapter(LeakyAdapter(), model, run, shrinks=False)


MODULE = """
import ssmprune as sp

class Adapter(sp.Adapter):
    name = "leaky"
    def layers(self, model):
        return {"everything": model} if isinstance(model, tuple) else {}
    def mask(self, layer, keep):
        raise NotImplementedError
    def shrink(self, layer, keep):
        raise NotImplementedError
    def read(self, layer):
        return sp.DiagonalSystem.from_discrete(layer, [[1.0]] * len(layer), [[1.0] * len(layer)])

ADAPTER = Adapter()
"""


@pytest.mark.parametrize("named", ["leaky_package", "leaky_package:ADAPTER"])
def test_an_entry_point_brings_a_family(named, install):
    install("leaky_package", f"[ssmprune.adapters]\nleaky = {named}\n", MODULE)
    assert "leaky" in adapters.found()
    assert sp.read((0.5, 0.25))["everything"].n == 2


def test_a_broken_entry_point_is_named(install):
    broken = "raise RuntimeError('half installed')"
    install("leaky_package", "[ssmprune.adapters]\nleaky = leaky_package\n", broken)
    with pytest.raises(sp.InputError, match=r"The adapter leaky \(leaky_package\) does not load: half installed"):
        adapters.found()


def test_a_family_that_does_not_convert_says_so(model):
    with pytest.raises(sp.InputError, match="Layer '0': The family leaky does not say how to convert"):
        sp.convert(model, adapter=LeakyAdapter())
