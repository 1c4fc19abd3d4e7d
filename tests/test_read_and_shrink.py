import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from ssmprune import adapters
from ssmprune.core import zoh
from ssmprune.core.discretization import DISCRETIZATIONS
from ssmprune.methods import GLOBAL_HINF
from ssmprune.models import S5Layer
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config


def model(family="s5", **options):
    torch.manual_seed(0)
    states = (8, 8) if family == "s5" else (12, 12)
    return Classifier(Config(family, inputs=3, outputs=2, width=6, states=states, **options)).eval()


def test_layers_are_named_by_their_path():
    assert list(sp.read(model())) == ["layers.0.ssm", "layers.1.ssm"]


def test_a_layer_inside_any_torch_module_is_found():
    own = nn.Sequential(nn.Linear(3, 4), S5Layer(4, 6), nn.GELU())
    small = sp.prune(own, ratio=0.5)
    assert list(sp.read(own)) == ["1"]
    assert small[1].pole_re.shape == (3,)
    assert own[1].pole_re.shape == (6,)


def test_prune_in_two_lines():
    big = model()
    small = sp.prune(big, ratio=0.5)
    assert small.config.states != big.config.states
    assert sum(small.config.states) == 8
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in big.parameters())


def test_a_plan_for_another_model_is_refused():
    plan = sp.make_plan(sp.read(model()), 0.5)
    other = model()
    with torch.no_grad():
        other.layers[1].ssm.C[0, 0, 0, 0] += 1
    for operation in (sp.mask, sp.shrink):
        with pytest.raises(sp.InputError, match=r"parameters of layer 'layers\.1\.ssm'"):
            operation(other, plan)


def test_reading_does_not_depend_on_the_storage_precision():
    single = sp.read(model())
    double = sp.read(model().double())
    assert all(single[layer].fingerprint == double[layer].fingerprint for layer in single)
    plans = [sp.make_plan(systems, 0.4) for systems in (single, double)]
    assert not any(plans[0].difference(plans[1]).values())


def test_s4d_channels_may_end_with_no_state():
    wide = model("s4d")
    plan = sp.make_plan(sp.read(wide), 0.9, GLOBAL_HINF)
    small = sp.shrink(wide, plan)
    channels = small.layers[0].ssm.channel.unique().tolist()
    assert len(channels) < 6
    x = torch.randn(2, 10, 3)
    with torch.no_grad():
        torch.testing.assert_close(small(x), sp.mask(wide, plan)(x), rtol=0, atol=1e-5)


def test_damaged_weights_are_refused_by_state():
    broken = model()
    with torch.no_grad():
        broken.layers[0].ssm.B[3, 0, 0] = float("nan")
    with pytest.raises(sp.InputError, match=r"Layer 'layers\.0\.ssm': State 3 has NaN"):
        sp.read(broken)


def test_unstable_poles_are_refused_unless_kept_and_the_layer_is_named():
    wild = model(pole_form="free")
    with torch.no_grad():
        wild.layers[1].ssm.pole_re[2] = 0.5
    with pytest.raises(
        sp.InputError, match=r"Layer 'layers\.1\.ssm': State 2 has a pole on or outside .* unstable=\"keep\""
    ):
        sp.read(wild)
    assert sp.read(wild, unstable="keep")["layers.1.ssm"].unstable_states.tolist() == [i == 2 for i in range(8)]
    with pytest.raises(sp.InputError, match='unstable is "refuse" or "keep"; got \'ignore\''):
        sp.read(wild, unstable="ignore")


def test_a_model_is_walked_through_once(monkeypatch):
    walks = []
    walk = nn.Module.named_modules
    net = model()
    monkeypatch.setattr(nn.Module, "named_modules", lambda self, *rest: walks.append(self) or walk(self, *rest))
    sp.read(net)
    assert len([module for module in walks if module is net]) == 1


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.A_log = nn.Parameter(torch.zeros(4, 2))
        self.x_proj, self.dt_proj = nn.Linear(4, 4), nn.Linear(1, 4)


class LiquidS5(nn.Module):
    liquid = True

    def forward(self, u):
        return u


dplr = nn.ParameterDict({name: nn.Parameter(torch.zeros(2)) for name in ("A_real", "A_imag", "B", "P")})


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (nn.Sequential(Mamba()), "'0' is a selective .* its poles and B change with the input"),
        (nn.ModuleDict({"kernel": dplr}), "'kernel' is a diagonal-plus-low-rank"),
        (
            {"params": {"Lambda_re": np.zeros(2), "Lambda_im": np.zeros(2), "P": np.zeros(2)}},
            "'params' is a diagonal-plus",
        ),
        (nn.Sequential(LiquidS5()), "'0' is a liquid layer"),
        (nn.Linear(2, 2), "No diagonal SSM layer found in Linear; the known families are"),
        ("model.safetensors", "No diagonal SSM layer found in str"),
    ],
)
def test_models_that_are_not_linear_time_invariant_are_refused(foreign, reason):
    with pytest.raises(sp.InputError, match=reason):
        sp.read(foreign)


def test_reading_copies_large_arrays_once():
    """The system keeps a B and a C in double precision; on the way there is no room for several more of each."""
    layer = S5Layer(width=256, n=512)
    sp.read(layer)
    tracemalloc.start()
    systems = sp.read(layer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (system,) = systems.values()
    assert peak < 1.6 * (system.B.nbytes + system.C.nbytes)


def test_shrinking_discretises_each_layer_once(monkeypatch):
    calls = []
    monkeypatch.setitem(DISCRETIZATIONS, "zoh", lambda *arguments: calls.append(arguments) or zoh(*arguments))
    model = torch.nn.Sequential(S5Layer(4, 6), S5Layer(4, 6))
    plan = sp.make_plan(sp.read(model), 0.5)
    calls.clear()
    sp.shrink(model, plan)
    assert len(calls) == 2


def test_masks_handed_to_an_adapter_may_be_written_to():
    """A plan's are read-only, which torch warns of."""
    layer = S5Layer(4, 6)
    seen = []

    class Curious(type(adapters.found()["s5"])):
        def mask(self, layer, keep):
            seen.append(keep.flags.writeable)
            torch.from_numpy(keep)

        shrink = mask

    plan = sp.make_plan(sp.read(layer), 0.5)
    for action in (sp.mask, sp.shrink):
        action(layer, plan, adapter=Curious())
    assert seen == [True, True]
