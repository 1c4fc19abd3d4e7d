"""A family of somebody else: passed as an object, found by an entry point, checked by the contract, documented."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from ssmprune import adapters
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
    assert len(BLOCKS[0].splitlines()) < 40
    assert names["small"][1].decay.shape == (10,)
    assert names["ours"].config.states == (8, 8, 8)
    assert (tmp_path / "pruned.msgpack").is_file()


def test_the_document_names_every_family():
    assert all(f"`{name}`" in DOCUMENT for name in adapters.found())


class Leaky(nn.Module):
    """y_k = 2 Re(c x_k) + d u_k in one channel, with x_k = p x_{k-1} + u_k."""

    def __init__(self, n):
        super().__init__()
        self.p = nn.Parameter(0.9 * torch.exp(1j * torch.rand(n) * 3))
        self.c = nn.Parameter(torch.randn(n, dtype=torch.complex64))
        self.d = nn.Parameter(torch.randn(1))

    def forward(self, u):  # (length, 1)
        x, y = torch.zeros_like(self.p), []
        for u_k in u:
            x = self.p * x + u_k
            y.append(2 * (self.c * x).real.sum() + self.d[0] * u_k)
        return torch.stack(y)


class LeakyAdapter:
    name = "leaky"
    gain = 2

    def layers(self, model):
        parts = model.named_modules() if isinstance(model, nn.Module) else ()
        return {path: part for path, part in parts if isinstance(part, Leaky)}

    def read(self, layer, unstable):
        p, c = (tensor.detach().numpy() for tensor in (layer.p, layer.c))
        return sp.DiagonalSystem.from_discrete(p, np.ones((len(p), 1)), c[None], gain=self.gain, unstable=unstable)

    def mask(self, layer, keep):
        layer.c.data[~torch.from_numpy(keep)] = 0

    def shrink(self, layer, keep):
        layer.p, layer.c = nn.Parameter(layer.p[keep]), nn.Parameter(layer.c[keep])


def run(model, path, u):
    with torch.no_grad():
        return model.get_submodule(path)(torch.from_numpy(u).float()).numpy()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.ModuleList([Leaky(6), Leaky(5)])


def test_the_contract_holds(model):
    check_adapter(LeakyAdapter(), model, run)
    assert [len(part.p) for part in sp.prune(model, 0.5, adapter=LeakyAdapter())] != [6, 5]


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
    def read(self, layer, unstable):
        system = super().read(layer, unstable)
        return sp.DiagonalSystem(system.log_poles, system.B, system.C.conj(), gain=2.0)


@pytest.mark.parametrize("wrong", [ForgottenFactor, ForgottenMask, MaskOfThePoles, CutAtTheEnd, ConjugatedReadout])
def test_the_contract_finds_what_is_wrong(wrong, model):
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
    with pytest.raises(AssertionError, match="was cut"):
        check_adapter(LeakyAdapter(), model, run, shrinks=False)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Put a package with an adapter on the path, as an installer would."""

    def install(module, named):
        (tmp_path / "leaky_package.py").write_text(module)
        about = tmp_path / "leaky_package-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky-package\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[ssmprune.adapters]\nleaky = {named}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "leaky_package", raising=False)
        adapters._plugged_in.cache_clear()

    yield install
    adapters._plugged_in.cache_clear()


MODULE = """
class Adapter:
    name = "leaky"
    def layers(self, model):
        return {"everything": model} if isinstance(model, tuple) else {}
    def read(self, layer, unstable):
        import ssmprune as sp
        return sp.DiagonalSystem.from_discrete(layer, [[1.0]] * len(layer), [[1.0] * len(layer)])

ADAPTER = Adapter()
"""


@pytest.mark.parametrize("named", ["leaky_package", "leaky_package:ADAPTER"])
def test_an_entry_point_brings_a_family(named, installed):
    installed(MODULE, named)
    assert "leaky" in adapters.found()
    assert sp.read((0.5, 0.25))["everything"].n == 2


def test_a_broken_entry_point_is_named(installed):
    installed("raise RuntimeError('half installed')", "leaky_package")
    with pytest.raises(sp.InputError, match=r"The adapter leaky \(leaky_package\) does not load: half installed"):
        adapters.found()


def test_a_family_that_does_not_convert_says_so(model):
    with pytest.raises(sp.InputError, match="family leaky, which does not say how to convert"):
        sp.convert(model, adapter=LeakyAdapter())
