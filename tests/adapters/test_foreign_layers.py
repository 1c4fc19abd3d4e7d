"""Layers of other codes against the numbers those codes produced: read, simulated, converted, pruned in place."""

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ssmprune as sp
from families import LrnnxLayer, s5_package
from flax_oracle import GOLDEN, S5, close, family, golden, tree_of
from ssmprune.adapters.lrnnx import LrnnxS5
from ssmprune.adapters.s5_pytorch import S5Pytorch
from ssmprune.adapters.state_spaces import StateSpacesDiag

PEER = torch.load(GOLDEN / "s5_pytorch.pt", weights_only=True)
ENTRIES = [name for name in PEER if not name.startswith("_")]
LRNNX = golden("lrnnx.npz")
LRNNX_CONFIGS = json.loads(str(LRNNX["config_json"]))
LRNNX_LAYERS = [name for name in LRNNX_CONFIGS if name not in ("versions", "classifier")]
BLOCK = StateSpacesDiag(disc="zoh", real_transform="exp", bidirectional=False)


def run(layer, u):
    """One of our layers on one sequence (length, H)."""
    with torch.no_grad():
        return layer(torch.as_tensor(u)[None])[0].numpy()


# lindermanlab/S5


@pytest.mark.parametrize("name", S5)
def test_flax_s5_systems(name):
    arrays = golden(name)
    systems = sp.read(sp.load_tree(GOLDEN / name.replace("io.npz", "msgpack")), adapter=family(arrays))
    assert list(systems) == [f"params.encoder.layers_{i}.seq" for i in range(3)]
    for i, system in enumerate(systems.values()):
        close(system.poles, arrays[f"layer{i}/Lambda_bar"], 1e-6)
        close(system.B, arrays[f"layer{i}/B_bar"], 1e-5)
        close(np.concatenate(list(system.C), 1), arrays[f"layer{i}/C_tilde"], 1e-6)


@pytest.mark.parametrize("file", ["s5_flax_checkpoint.msgpack", "s5_flax_trainstate.msgpack"])
def test_flax_s5_outputs(file):
    arrays, tree = golden("s5_flax_checkpoint.io.npz"), sp.load_tree(GOLDEN / file)
    layers = sp.convert(tree, adapter=family(arrays))
    for i, (path, system) in enumerate(sp.read(tree, adapter=family(arrays)).items()):
        u, expected = arrays[f"layer{i}/norm_out"][0], arrays[f"layer{i}/ssm_out"][0]
        D = tree["params"]["encoder"][f"layers_{i}"]["seq"]["D"]
        close(system.simulate(u) + D * u, expected)
        close(run(layers[path], u), expected)


def test_the_tree_must_be_completed_by_name():
    tree = tree_of(golden("s5_flax_checkpoint.io.npz"))
    with pytest.raises(
        sp.InputError, match=r"does not record conj_sym, clip_eigs, discretization.*FlaxS5\(conj_sym=\.\.\."
    ):
        sp.read(tree)
    arrays = golden("s5_flax_checkpoint.io.npz")
    with pytest.raises(sp.InputError, match="discretization must be one of zoh, bilinear, not 'euler'"):
        sp.read(tree, adapter=replace(family(arrays), discretization="euler"))


def test_arrays_that_do_not_belong_together_are_refused():
    arrays = golden("s5_flax_uni_halfglu2.io.npz")
    tree = tree_of(arrays)
    tree["params"]["encoder"]["layers_1"]["seq"]["C"] = np.zeros((12, 7, 2), np.float32)
    with pytest.raises(sp.InputError, match=r"8 states and width 12 needs C \(1, 12, 8\); its C is \(1, 12, 7\)"):
        sp.read(tree, adapter=family(arrays))


def test_a_train_state_is_masked_but_not_shrunk():
    arrays, tree = golden("s5_flax_checkpoint.io.npz"), sp.load_tree(GOLDEN / "s5_flax_trainstate.msgpack")
    plan = sp.make_plan(sp.read(tree, adapter=family(arrays)), 0.5)
    masked = sp.mask(tree, plan, adapter=family(arrays))
    assert masked["params"]["encoder"]["layers_0"]["seq"]["B"].shape == (8, 12, 2)
    with pytest.raises(sp.InputError, match="optimiser's state"):
        sp.shrink(tree, plan, adapter=family(arrays))


# annotated-s4


@pytest.mark.parametrize("name", ["annotated_s4d", "annotated_s4d_generation"])
def test_annotated_s4d_outputs(name):
    arrays, tree = golden(f"{name}.io.npz"), sp.load_tree(GOLDEN / f"{name}.msgpack")
    layers = sp.convert(tree)
    for i, (path, system) in enumerate(sp.read(tree).items()):
        u, expected = arrays["layer_u"], arrays[f"layer{i}/conv_out"]
        close(system.simulate(u) + tree["params"][f"layers_{i}"]["seq"]["D"] * u, expected)
        close(run(layers[path], u), expected)
        if f"layer{i}/Lambda_bar" in arrays:
            close(system.poles.reshape(8, 16).T, arrays[f"layer{i}/Lambda_bar"], 1e-6)
            close(system.B.reshape(8, 16).T, arrays[f"layer{i}/B_bar"], 1e-5)


# state-spaces/s4


def test_state_spaces_s4d_kernels():
    arrays, state = golden("s4d_state_spaces.npz"), sp.load_tree(GOLDEN / "s4d_state_spaces.pt")
    impulse = np.eye(1, 256).T * np.ones(32)
    for i, system in enumerate(sp.read(state).values()):
        close(system.simulate(impulse).T, arrays[f"layer{i}/kernel_L256"])
        close(system.poles.reshape(32, 8), arrays[f"layer{i}/Lambda_bar"], 1e-6)


def test_state_spaces_block():
    arrays, state = golden("s4block_diag_uni.npz"), sp.load_tree(GOLDEN / "s4block_diag_uni.pt")
    ((path, system),) = sp.read(state, adapter=BLOCK).items()
    assert path == "layer.kernel"
    close(system.simulate(np.eye(1, 64).T * np.ones(8)).T, arrays["K"][0])
    u = torch.from_numpy(arrays["u"]).mT
    with torch.no_grad():
        y = sp.convert(state, adapter=BLOCK)[path](u)
    y = F.glu(F.linear(F.gelu(y), state["output_linear.0.weight"], state["output_linear.0.bias"]))
    close(y.mT, arrays["y"])


class SSMKernelDiag(nn.Module):
    """The parameters and options of the kernel, as the original module keeps them."""

    def __init__(self, state, **options):
        super().__init__()
        for name, value in state.items():
            if name.startswith("layer.kernel."):
                self.register_parameter(name.rpartition(".")[2], nn.Parameter(value.clone()))
        own = {"disc": "zoh", "real_transform": "exp", "imag_transform": "none", "dt_transform": "exp"}
        for name, value in (own | {"dt_fast": False, "bandlimit": None, "is_real": False} | options).items():
            setattr(self, name, value)
        self.N = self.C.shape[2]


def test_a_module_records_its_own_options():
    state = sp.load_tree(GOLDEN / "s4block_diag_uni.pt")
    (dictionary,) = sp.read(state, adapter=BLOCK).values()
    (module,) = sp.read(nn.Sequential(SSMKernelDiag(state))).values()
    assert module.fingerprint == dictionary.fingerprint
    (bilinear,) = sp.read(nn.Sequential(SSMKernelDiag(state, disc="bilinear"))).values()
    assert bilinear.fingerprint != dictionary.fingerprint


def test_a_kernel_cannot_be_watched_at_work():
    model = nn.Sequential(SSMKernelDiag(sp.load_tree(GOLDEN / "s4block_diag_uni.pt")))
    with pytest.raises(
        sp.InputError, match=r"Layer '0': Calibration cannot watch .* only computes a kernel.*sp\.convert"
    ):
        sp.collect(model, [torch.randn(2, 20, 8)])


def test_a_grid_shrinks_if_all_channels_keep_equally_many():
    state = sp.load_tree(GOLDEN / "s4block_diag_uni.pt")
    model = nn.Sequential(SSMKernelDiag(state))
    systems = sp.read(model)
    uneven = sp.make_plan(systems, 0.5)
    with pytest.raises(sp.InputError, match=r"one number of states for all channels.*sp\.convert"):
        sp.shrink(model, uneven)
    keep = np.tile(np.arange(8) % 2 == 0, 8)
    even = replace(uneven, keep={"0": keep})
    small = sp.shrink(model, even)
    assert small[0].N == 4
    assert small[0].C.shape == (1, 8, 4, 2)
    close(sp.read(small)["0"].poles, systems["0"].poles[keep], 1e-7)
    np.testing.assert_array_equal(sp.read(sp.mask(model, even))["0"].C[0, 0] != 0, keep)


def test_uneven_grids_become_our_layers():
    state = sp.load_tree(GOLDEN / "s4d_state_spaces.pt")
    plan = sp.make_plan(sp.read(state), 0.7)
    ours = sp.convert(state, plan)
    full = sp.convert(sp.mask(state, plan))
    u = torch.randn(2, 50, 32)
    for path, layer in ours.items():
        assert len(layer.pole_re) == plan.keep[path].sum()
        close(layer(u), full[path](u), 1e-5)


# PyPI lrnnx


def lrnnx(name):
    """The arrays of a layer, what its constructor was told, its input and outputs."""
    config = LRNNX_CONFIGS[name]
    told = {"discretization": "zoh", "conj_sym": False, "step_rescale": 1.0} | config["arguments"]
    state = {key.rpartition("/")[2]: array for key, array in LRNNX.items() if key.startswith(f"{name}/state/")}
    return state, told, LRNNX[f"x/{told['d_model']}"], [LRNNX[f"{name}/{key}"] for key in ("y", "y_step")]


def lrnnx_module(name):
    state, told, _, _ = lrnnx(name)
    return LrnnxLayer(state, told["discretization"], told["conj_sym"], told["step_rescale"])


@pytest.mark.parametrize("name", LRNNX_LAYERS)
def test_lrnnx_outputs(name):
    state, told, x, outputs = lrnnx(name)
    options = {key: told[key] for key in ("discretization", "conj_sym", "step_rescale")}
    adapter = None if "lru" in name else LrnnxS5(**options)
    unstable = "keep" if name == "s5_bilinear" else "refuse"
    (system,) = sp.read(state, adapter=adapter, unstable=unstable).values()
    (module,) = sp.read(nn.Sequential(lrnnx_module(name)), unstable=unstable).values()
    assert module.fingerprint == system.fingerprint
    D = np.diag(state["D"]) if state["D"].ndim == 1 else state["D"]
    y = np.stack([system.simulate(u) + u @ D for u in x])
    with torch.no_grad():
        stand_in = lrnnx_module(name)(torch.from_numpy(x).to(torch.from_numpy(state["D"]).dtype)).numpy()
    for theirs in outputs:
        np.testing.assert_allclose(y, theirs, rtol=0, atol=1e-6)
        np.testing.assert_allclose(stand_in, theirs, rtol=0, atol=2e-6)
    if f"{name}/A_bar" in LRNNX:
        np.testing.assert_allclose(system.poles, LRNNX[f"{name}/A_bar"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(system.B, LRNNX[f"{name}/B_bar"], rtol=0, atol=1e-6)


def test_the_bilinear_rule_of_lrnnx_is_unstable():
    with pytest.raises(sp.InputError, match="on or outside the unit circle"):
        sp.read(lrnnx_module("s5_bilinear"))


@pytest.mark.parametrize("name", ["s5_zoh", "event_zoh_pairs", "lru"])
@pytest.mark.parametrize("data", [False, True])
def test_layers_of_lrnnx_step_after_pruning(name, data):
    model, x = nn.Sequential(lrnnx_module(name)), torch.randn(8, 30, 4)
    small = sp.prune(model, 0.5, data=[x] if data else None)
    kept = len(sp.read(small)["0"].poles)
    assert kept < len(sp.read(model)["0"].poles)
    assert small[0].d_state == getattr(small[0], "state_dim", kept) == kept
    assert model[0].d_state > kept
    with torch.no_grad():
        assert small(x).shape == x.shape
        if data:
            lost = ((sp.prune(model, 0.5)(x) - model(x)).square().mean(), (small(x) - model(x)).square().mean())
            assert lost[1] < lost[0]


class WithEvents(nn.Sequential):
    def __init__(self, name, keyword):
        super().__init__(lrnnx_module(name))
        self.keyword = keyword

    def forward(self, x):
        events = torch.ones(x.shape[:2])
        return self[0](x, integration_timesteps=events) if self.keyword else self[0](x, events)


@pytest.mark.parametrize("keyword", [False, True])
def test_steps_of_varying_length_are_refused(keyword):
    x = torch.randn(4, 20, 4)
    with pytest.raises(sp.InputError, match="Layer '0': The layer was called with integration_timesteps, so its poles"):
        sp.prune(WithEvents("event_dirac", keyword), 0.5, data=[x])
    sp.prune(WithEvents("s5_zoh", keyword), 0.5, data=[x])  # the time-invariant layer ignores them


def test_a_D_that_mixes_channels_is_not_converted():
    with pytest.raises(sp.InputError, match="D is a matrix that mixes channels"):
        sp.convert(lrnnx_module("s5_zoh"))


def test_a_state_dict_of_lrnnx_asks_for_its_rule():
    with pytest.raises(sp.InputError, match=r"does not record discretization, conj_sym.*LrnnxS5\("):
        sp.read(lrnnx("s5_zoh")[0])
    with pytest.raises(sp.InputError, match="There is no discretization 'async'"):
        sp.read(lrnnx("s5_zoh")[0], adapter=LrnnxS5("async", False))


# PyPI s5-pytorch


@pytest.mark.parametrize("name", ENTRIES)
def test_s5_pytorch_outputs(name):
    entry = PEER[name]
    ((path, system),) = sp.read(entry["state_dict"], adapter=S5Pytorch("zoh")).items()
    close(system.poles, entry["Lambda_bar"], 1e-6)
    close(system.B, entry["B_bar"], 1e-5)
    close(np.concatenate(list(system.C), 1), entry["C_tilde"], 1e-6)
    if entry["config"]["kind"] == "S5":
        for rescale, key in ((1, "y"), (2, "y_step_scale2")):
            scaled = S5Pytorch("zoh", step_rescale=rescale)
            system = sp.read(entry["state_dict"], adapter=scaled)[path]
            u, D = entry["x"][0].numpy(), entry["state_dict"]["seq.D"].numpy()
            close(system.simulate(u) + D * u, entry[key][0])
            close(run(sp.convert(entry["state_dict"], adapter=scaled)[path], u), entry[key][0])


def module_of(entry):
    config = {key: value for key, value in entry["config"].items() if key != "kind"}
    model = getattr(s5_package(), entry["config"]["kind"])(**config)
    model.load_state_dict(entry["state_dict"])
    return model.eval()


@pytest.mark.parametrize("name", ENTRIES)
def test_last_shrinks_the_modules_of_s5_pytorch(name):
    model, x = module_of(PEER[name]), PEER[name]["x"]
    plan = sp.make_plan(sp.read(model), 0.5)
    masked, small = sp.mask(model, plan), sp.shrink(model, plan)
    with torch.no_grad():
        close(model(x), PEER[name]["y"])
        close(small(x), masked(x), 1e-5)
        assert not np.allclose(small(x), model(x), atol=1e-4)
    assert [len(system.poles) for system in sp.read(small).values()] == [8]
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    model.load_state_dict(masked.state_dict())  # masked weights fit the original code


def test_pruned_modules_of_s5_pytorch_train():
    small = sp.prune(module_of(PEER["block_uni"]), ratio=0.5).train()
    optimizer = torch.optim.SGD(small.parameters(), lr=0.01)
    small(PEER["block_uni"]["x"]).square().sum().backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in small.parameters())
    optimizer.step()


# What cannot be pruned


def s5_module(**options):
    return s5_package().S5(4, 4, **options)


STATE = sp.load_tree(GOLDEN / "s4block_diag_uni.pt")


@pytest.mark.parametrize(
    ("model", "adapter", "reason"),
    [
        (lambda: s5_module(liquid=True), None, "'seq' is a liquid layer.*Train it with liquid=False"),
        (lambda: s5_module(degree=2), None, "degree=2.*Train it with degree=1"),
        (lambda: PEER["s5_uni"]["state_dict"], None, r"does not record discretization.*S5Pytorch\(discretization"),
        (lambda: SSMKernelDiag(STATE, disc="dss"), None, "normalises the kernel by the sequence length.*disc='zoh'"),
        (lambda: STATE, replace(BLOCK, disc="dss"), "normalises the kernel by the sequence length"),
        (lambda: SSMKernelDiag(STATE, bandlimit=0.5), None, "bandlimit=0.5 switches states off.*Set it to None"),
        (lambda: SSMKernelDiag(STATE, is_real=True), None, "real-valued kernel"),
        (lambda: STATE, None, "does not record disc, real_transform, bidirectional"),
        (lambda: STATE, replace(BLOCK, real_transform="log"), "no real_transform 'log'; there are none, exp"),
        (lambda: STATE, replace(BLOCK, bidirectional=True), "needs C with 2 channels; it has 1"),
    ],
)
def test_variants_that_are_refused_with_what_to_do(model, adapter, reason):
    with pytest.raises(sp.InputError, match=reason):
        sp.read(model(), adapter=adapter)


def test_tied_kernels_are_masked_and_untied_when_converted():
    rng = np.random.default_rng(0)
    state = {name.removeprefix("layer."): value for name, value in STATE.items()}
    tied = state | {name: state[name][..., :4, :] for name in ("kernel.A_real", "kernel.A_imag")}
    tied["kernel.B"] = state["kernel.B"][:, :4]
    plan = sp.make_plan(sp.read(tied, adapter=BLOCK), 0.5)
    with pytest.raises(sp.InputError, match=r"sp\.convert"):
        sp.shrink(tied, plan, adapter=BLOCK)
    even = replace(plan, keep={"kernel": np.tile(np.arange(8) % 2 == 0, 8)})
    with pytest.raises(sp.InputError, match="Channels share A_real"):
        sp.shrink(tied, even, adapter=BLOCK)
    u = rng.normal(size=(20, 8)).astype(np.float32)
    masked, ours = sp.mask(tied, plan, adapter=BLOCK), sp.convert(tied, plan, adapter=BLOCK)["kernel"]
    system = sp.read(masked, adapter=BLOCK)["kernel"]
    close(run(ours, u), system.simulate(u) + state["D"].numpy() * u)


class Frozen(Mapping):
    """What Flax's FrozenDict is to us: a mapping that cannot be written to."""

    def __init__(self, values):
        self.values_ = values

    def __getitem__(self, key):
        return self.values_[key]

    def __iter__(self):
        return iter(self.values_)

    def __len__(self):
        return len(self.values_)


def test_frozen_trees_can_be_read_only():
    arrays = golden("s5_flax_checkpoint.io.npz")
    frozen = Frozen({"seq": Frozen(tree_of(arrays)["params"]["encoder"]["layers_0"]["seq"])})
    plan = sp.make_plan(sp.read(frozen, adapter=family(arrays)), 0.5)
    with pytest.raises(sp.InputError, match="frozen Frozen; `unfreeze` it"):
        sp.mask(frozen, plan, adapter=family(arrays))
