"""The classifier: the JAX code's numbers, streaming, pooling, its config."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from flax_oracle import LAST, S5, build, golden
from reference import close
from ssmprune.errors import InputError
from ssmprune.models import s5_kernel
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config


def small(**options):
    """A small S5 classifier with everything random, statistics of the norms included."""
    config = Config(
        **({"family": "s5", "inputs": 3, "outputs": 5, "width": 8, "states": (6, 4), "blocks": 2} | options)
    )
    torch.manual_seed(0)
    model = Classifier(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.ndim == 1 and tensor.is_floating_point() and "ssm" not in name:
                tensor.add_(torch.rand_like(tensor))
    return model


def some_input(config, batch=4, length=30):
    if config.tokens:
        return torch.randint(config.inputs, (batch, length))
    return torch.randn(batch, length, config.inputs)


# The JAX code


def lengths_of(arrays):
    return torch.from_numpy(arrays["lengths"]) if "lengths" in arrays else None


@pytest.mark.parametrize(
    ("suffix", "step_rescale"), [("", 1.0), ("_step_rescale2", 2.0), ("_step_rescale0.5", 0.5)], ids=lambda v: str(v)
)
@pytest.mark.parametrize("name", S5)
def test_s5_code(name, suffix, step_rescale):
    arrays = golden(name)
    model = build(arrays, step_rescale)
    logits = model(torch.from_numpy(arrays["x"]), lengths_of(arrays))
    close(logits.log_softmax(-1), arrays[f"logits{suffix}"], 1e-4)


@pytest.mark.parametrize("name", S5)
def test_s5_code_gradients(name):
    arrays = golden(name)
    model = build(arrays)
    logits = model(torch.from_numpy(arrays["x"]), lengths_of(arrays))
    F.cross_entropy(logits, torch.from_numpy(arrays["labels"])).backward()
    expected = dict(build(arrays, params="grad").named_parameters())  # its parameters are the gradients
    for name, parameter in model.named_parameters():
        close(parameter.grad, expected[name].detach(), 2e-4)


@pytest.mark.parametrize("name", [name for name in S5 if "fullglu_ln" not in name])
def test_s5_code_training_statistics(name):
    """The JAX code divides the batch's squares by their number, torch by one less for the running variance."""
    arrays = golden(name)
    model = build(arrays).train()
    x = torch.from_numpy(arrays["x"])
    close(model(x, lengths_of(arrays)).log_softmax(-1), arrays["train/logits"], 1e-4)
    count, momentum = x.shape[0] * x.shape[1], model.config.norm_momentum
    for i, block in enumerate(model.layers):
        after, before = f"train/batch_stats_after/encoder/layers_{i}/norm", f"batch_stats/encoder/layers_{i}/norm"
        close(block.norm.running_mean, arrays[f"{after}/mean"], 1e-5)
        kept = (1 - momentum) * arrays[f"{before}/var"]
        close(kept + (block.norm.running_var.numpy() - kept) * (count - 1) / count, arrays[f"{after}/var"], 1e-5)


@pytest.mark.parametrize("name", LAST)
def test_last_code(name):
    arrays = golden(name)
    close(build(arrays)(torch.from_numpy(arrays["io/x"])).log_softmax(-1), arrays["io/logits_full"], 1e-4)


# One pass, chunks, steps


VARIANTS = {
    "plain": {},
    "tokens": {"tokens": True},
    "last": {"pooling": "last"},
    "every step": {"pooling": "none"},
    "retrieval": {"retrieval": True},
    "full gate, layer norm after": {"activation": "full_glu", "norm": "layer", "prenorm": False},
    "half_glu2, batch norm after": {"activation": "half_glu2", "prenorm": False},
    "gelu, all states": {"activation": "gelu", "conj_sym": False, "exact_gelu": False},
    "s4d": {"family": "s4d", "states": (16, 12)},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_forward_is_stream_is_step(options):
    check_streaming(small(**options).eval(), length=30, chunks=[1, 7, 2, 20])


@pytest.mark.slow
@pytest.mark.parametrize("depth", [4, 6])
@torch.no_grad()
def test_forward_is_stream_is_step_in_deep_models(depth):
    model = small(width=16, states=(8,) * depth).eval()
    for chunks in ([400], [1] * 10 + [390], [56, 57, 200, 87]):
        check_streaming(model, length=400, chunks=chunks)


def check_streaming(model, length, chunks):
    x = some_input(model.config, length=length)
    prefixes, state = [], None
    for chunk in x.split(chunks, dim=1):
        logits, state = model.stream(chunk, state)
        prefixes.append(logits)
    prefixes = torch.cat(prefixes, dim=1)
    whole = model(x)
    close(prefixes if model.config.pooling == "none" else prefixes[:, -1], whole, 1e-5)
    state = model.initial_state(len(x))
    for k in range(length):
        logits, state = model.step(x[:, k], state)
        close(logits, prefixes[:, k], 1e-5)
    middle = model(x[:, : length // 2])
    close(prefixes[:, length // 2 - 1], middle[:, -1] if model.config.pooling == "none" else middle, 1e-5)


@pytest.mark.parametrize("chunk", [0, 1, 3], ids=["step", "chunks of 1", "chunks of 3"])
@torch.no_grad()
def test_long_streams_lose_nothing(chunk):
    """After 2^26 steps a single sum would not notice features below 4; here all of them arrive."""
    model, x = small().eval(), torch.randn(4, 30, 3)
    blank = model.initial_state(4)
    before = torch.full_like(blank.total, 2.0**26)
    before[:, 1] = 0
    state = replace(blank, steps=2**26, total=before)
    for part in x.split(chunk or 1, dim=1):
        state = model.stream(part, state)[1] if chunk else model.step(part[:, 0], state)[1]
    alone = model.stream(x)[1].total
    arrived = state.total[:, 0].double() - 2**26 - state.total[:, 1]
    torch.testing.assert_close(arrived, (alone[:, 0] - alone[:, 1]).double(), atol=1e-4, rtol=1e-4)


def test_streaming_refuses_what_it_cannot_do():
    model = small(bidirectional=True).eval()
    with pytest.raises(InputError, match="bidirectional"):
        model.stream(some_input(model.config))
    model = small()
    with pytest.raises(InputError, match=r"eval\(\)"):
        model.stream(some_input(model.config))


# Batches


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_slices_of_the_batch_change_nothing(options, bidirectional, monkeypatch):
    model = small(bidirectional=bidirectional, **options).eval()
    x, lengths = some_input(model.config), torch.tensor([30, 1, 17, 5])
    whole, padded = model(x), model(x, lengths)
    monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", 70 * 8)  # two sequences at a time
    close(model(x), whole)
    close(model(x, lengths), padded)
    with torch.enable_grad():
        close(model(x, lengths), padded)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_parts_of_long_sequences_change_nothing(options, monkeypatch):
    model = small(**options).eval()
    x, lengths = some_input(model.config), torch.tensor([30, 1, 17, 5])
    whole = model(x, lengths)
    monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", 7 * 8)  # seven steps at a time
    close(model(x, lengths), whole)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("family", ["s5", "s4d"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("prenorm", [False, True])
@torch.no_grad()
def test_padding_does_not_reach_the_logits(pooling, family, bidirectional, prenorm):
    model = small(family=family, pooling=pooling, bidirectional=bidirectional, prenorm=prenorm).eval()
    for block in model.layers:
        block.norm.bias.normal_()  # so that silence comes out of it as something else
    x, lengths = some_input(model.config), torch.tensor([30, 1, 17, 5])
    alone = torch.cat([model(row[None, :length]) for row, length in zip(x, lengths, strict=True)])
    close(model(x, lengths), alone)
    x[torch.arange(x.shape[1]) >= lengths[:, None]] = 10
    assert (model(x, lengths) - alone).abs().max() < 1e-6 * max(1, alone.abs().max())


@torch.no_grad()
def test_a_model_that_lets_padding_in_says_so_and_old_configs_do():
    config = small(bidirectional=True).config
    assert config.padding == "cut"
    assert Config.from_dict(config.to_dict()) == config
    old = {name: value for name, value in config.to_dict().items() if name != "padding"}
    assert Config.from_dict(old).padding == "seen"
    torch.manual_seed(0)
    model = Classifier(Config.from_dict(old)).eval()
    x, lengths = some_input(model.config), torch.tensor([30, 1, 17, 5])
    before = model(x, lengths)
    x[torch.arange(x.shape[1]) >= lengths[:, None]] = 10
    assert (model(x, lengths) - before).abs().max() > 1e-3
    with pytest.raises(InputError, match="padding must be one of cut, seen"):
        Config("s5", 1, 2, 3, (4,), padding="let in")


def test_retrieval_compares_the_two_halves_of_the_batch():
    model = small(retrieval=True).eval()
    x = some_input(model.config, batch=6)
    close(model(x)[1:2], model(x[[1, 4]]))


def test_gradients_reach_every_parameter():
    model = small(bidirectional=True, activation="full_glu", retrieval=True, dropout=0.2)
    model(some_input(model.config), torch.tensor([30, 1, 17, 5])).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_dropout_silences_a_feature_for_the_whole_sequence():
    torch.manual_seed(0)
    block = small(dropout=0.75).layers[0]
    dropped = block._drop(torch.ones(50, 20, 8))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 4.0}
    assert dropped.mean().item() == pytest.approx(1, abs=0.2)
    assert torch.equal(block.eval()._drop(dropped), dropped)


WRONG_INPUTS = {
    "features": ({}, torch.zeros(2, 5, 4), None, r"\(batch, length, 3\), got torch.float32 of shape \(2, 5, 4\)"),
    "axes": ({}, torch.zeros(2, 5), None, r"got torch.float32 of shape \(2, 5\)"),
    "no steps": ({}, torch.zeros(2, 0, 3), None, "at least one"),
    "real tokens": ({"tokens": True}, torch.zeros(2, 5), None, "integer tokens"),
    "unknown token": ({"tokens": True}, torch.tensor([[0, 3]]), None, "0 to 2, got 0 to 3"),
    "odd documents": ({"retrieval": True}, torch.zeros(3, 5, 3), None, "even number"),
    "lengths": ({}, torch.zeros(2, 5, 3), torch.tensor([1, 2, 3]), r"shape \(2,\)"),
    "long length": ({}, torch.zeros(2, 5, 3), torch.tensor([1, 6]), "from 1 to 5"),
    "no length": ({}, torch.zeros(2, 5, 3), torch.tensor([0, 5]), "from 1 to 5"),
}


@pytest.mark.parametrize(("options", "x", "lengths", "message"), WRONG_INPUTS.values(), ids=WRONG_INPUTS)
def test_wrong_inputs_are_named(options, x, lengths, message):
    with pytest.raises(InputError, match=message):
        small(**options)(x, lengths)


# The config


def test_config_goes_through_json():
    config = small(activation="full_glu", dropout=0.1).config
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_config_tells_what_the_layers_are_now():
    model = small()
    for block in model.layers:
        block.ssm.step_rescale = 2.0
    model.layers[0].ssm.pole_re = torch.nn.Parameter(torch.zeros(3))
    assert model.config.states == (3, 4)
    assert model.config.step_rescale == 2.0


WRONG_VALUES = {
    "family": "mamba",
    "inputs": 0,
    "outputs": 2.0,
    "width": -1,
    "states": (4, 0),
    "blocks": 0,
    "tokens": 1,
    "conj_sym": None,
    "discretization": "euler",
    "pole_form": "relu",
    "initial_poles": "legs",
    "step_min": 0.5,
    "step_max": float("inf"),
    "step_rescale": -1.0,
    "backward_delay": 1,
    "norm": "none",
    "norm_eps": float("nan"),
    "norm_momentum": 1.5,
    "activation": "relu",
    "dropout": 1.0,
    "pooling": "max",
    "retrieval": "yes",
}


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_config_refuses(name):
    values = {"family": "s5", "inputs": 3, "outputs": 5, "width": 8, "states": (4, 4)} | {name: WRONG_VALUES[name]}
    with pytest.raises(InputError, match=name):
        Config(**values)


@pytest.mark.parametrize("other", [{"family": "s4d"}, {"discretization": "bilinear"}])
def test_rings_are_for_s5_and_the_zero_order_hold(other):
    values = {"family": "s5", "inputs": 3, "outputs": 5, "width": 8, "states": (4,), "initial_poles": "ring"}
    assert (Config(**values).kind, Config(**values | {"initial_poles": "hippo"}).kind) == ("lru", "s5")
    with pytest.raises(InputError, match="initial_poles must be hippo unless the family is s5"):
        Config(**values | other)


@pytest.mark.parametrize("states", [(), [4], "44", (True,), (4.0,)])
def test_config_refuses_states(states):
    with pytest.raises(InputError, match="states"):
        Config("s5", inputs=3, outputs=5, width=8, states=states)


def test_config_refuses_unknown_and_missing_entries():
    values = small().config.to_dict()
    with pytest.raises(InputError, match="Unknown config entries depht"):
        Config.from_dict(values | {"depht": 4})
    del values["width"]
    with pytest.raises(InputError, match="width"):
        Config.from_dict(values)
    with pytest.raises(InputError, match="states"):
        Config.from_dict(values | {"width": 4, "states": 7})
    with pytest.raises(InputError, match="pooling"):
        small(retrieval=True, pooling="none")
