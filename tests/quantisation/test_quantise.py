"""Weights on a grid: what is rounded, how errors are made up for, and files of whole numbers."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ssmprune as sp
from ssmprune.files import load_tensors, save_tensors
from ssmprune.models.classifier import Classifier, measure_statistics
from ssmprune.models.config import Config
from ssmprune.quantisation.grid import bits_of, largest_number, pack, scale_shapes, spread_scale, unpack
from ssmprune.quantisation.quantise import DAMPING, Rows, _round_rows, input_moments, quantize, round_weights

KINDS = {
    "s5": Config("s5", inputs=3, outputs=4, width=10, states=(5, 4)),
    "s5 both ways": Config("s5", inputs=3, outputs=4, width=10, states=(5, 4), bidirectional=True, norm="layer"),
    "s4d": Config("s4d", inputs=3, outputs=4, width=10, states=(30, 20), bidirectional=True, activation="full_glu"),
    "tokens": Config("s5", inputs=9, outputs=2, width=10, states=(5,), tokens=True, retrieval=True),
}
kinds = pytest.mark.parametrize("kind", KINDS)
bits = pytest.mark.parametrize("bits", [8, 4])


def model_and_data(kind):
    torch.manual_seed(1)
    config = KINDS[kind]
    model = Classifier(config).eval()
    if kind == "s4d":  # channels of different sizes, one of them empty
        plan = sp.make_plan(sp.read(model), 0.4)
        model = sp.shrink(model, plan)
    x = torch.randint(0, 9, (8, 20)) if config.tokens else torch.randn(8, 20, 3)
    return model, x


@bits
@kinds
def test_every_large_weight_is_a_whole_multiple_of_its_scale(kind, bits):
    model, x = model_and_data(kind)
    small = quantize(model, bits, data=[x])
    for name, scale in small.grid.scales.items():
        multiple = small.arrays()[name] / spread_scale(name, scale, small.arrays())
        assert np.allclose(multiple, multiple.round(), atol=1e-4)
        assert np.abs(multiple).max() <= largest_number(bits_of(name, multiple.shape, bits)) + 1e-3
    untouched = dict(small.named_parameters()).keys() - small.grid.scales.keys()
    assert any(name.endswith("pole_re") for name in untouched)
    for name in untouched:
        assert torch.equal(small.get_parameter(name), model.get_parameter(name))


@bits
@kinds
def test_a_quantised_model_survives_its_file_to_the_bit(kind, bits, tmp_path):
    model, x = model_and_data(kind)
    small = quantize(model, bits, data=[x])
    sp.save(small, tmp_path / "small.safetensors")
    loaded = sp.load(tmp_path / "small.safetensors")
    for name, tensor in small.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert loaded.history == small.history == (*model.history, f"quantised to {bits} bits on 8 sequences")
    assert loaded.grid.bits == bits
    numbers = loaded.whole_numbers()
    assert numbers is not None
    assert (
        numbers.keys()
        == small.grid.scales.keys()
        == scale_shapes({name: t.shape for name, t in small.arrays().items()}).keys()
    )
    sp.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "small.safetensors").read_bytes()
    with torch.no_grad():
        assert torch.equal(loaded(x), small(x))


def test_files_hold_a_byte_or_half_a_byte_a_weight(tmp_path):
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=1, outputs=10, width=64, states=(64, 64))).eval()
    sizes = []
    for bits in (8, 4):
        sp.save(quantize(model, bits), tmp_path / f"{bits}.safetensors")
        sizes.append((tmp_path / f"{bits}.safetensors").stat().st_size)
    sp.save(model, tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").stat().st_size
    assert sizes[0] < 0.35 * whole
    assert sizes[1] < 0.24 * whole


def test_eight_bits_change_little_and_four_more():
    model, x = model_and_data("s5")
    with torch.no_grad():
        whole, eight, four = model(x), quantize(model, 8)(x), quantize(model, 4)(x)
    assert (eight - whole).abs().max() < 0.05 * whole.abs().max()
    assert (eight - whole).abs().max() < (four - whole).abs().max()


@given(st.integers(0, 1000))
def test_rounding_with_what_is_known_of_the_inputs_errs_less_on_them(seed):
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(200, 12))
    gram, weights = mixed.T @ mixed / 200, rng.normal(size=(20, 12))  # of 5 rows, a few in a thousand are unlucky
    place, owners = np.arange(240).reshape(20, 12), np.arange(20)[:, None]

    def error(gram_used):
        numbers, scale = round_weights(weights, owners, (20, 1), [Rows(place, gram_used)], 7)
        return np.sum((mixed @ (weights - numbers * scale).T) ** 2)

    assert error(gram) < 0.5 * error(None)


def naive_rounding(weights, scale, gram, largest):
    """Round column by column, solving the least squares problem of all columns to come afresh each time."""
    H = gram + DAMPING * np.mean(np.diag(gram)) * np.eye(len(gram))
    order = np.argsort(-np.diag(gram), kind="stable")
    numbers, current = np.zeros_like(weights), weights.copy()
    for j, column in enumerate(order):
        numbers[:, column] = np.clip(np.rint(current[:, column] / scale[:, column]), -largest, largest)
        done, left = order[: j + 1], order[j + 1 :]
        error = numbers[:, done] * scale[:, done] - weights[:, done]
        current[:, left] = weights[:, left] - error @ H[np.ix_(done, left)] @ np.linalg.inv(H[np.ix_(left, left)])
    return numbers


@given(st.integers(0, 1000))
def test_rounding_is_that_of_solving_anew_for_every_column(seed):
    rng = np.random.default_rng(seed)
    inputs, weights = rng.normal(size=(30, 6)) @ rng.normal(size=(6, 6)), rng.normal(size=(4, 6))
    gram, scale = inputs.T @ inputs, np.full((4, 6), 0.3)
    assert np.array_equal(_round_rows(weights, scale, gram, 7), naive_rounding(weights, scale, gram, 7))


def test_padding_is_not_counted():
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=2, outputs=2, width=4, states=(3,))).eval()
    x = torch.randn(4, 10, 2)
    other = x.clone()
    other[:, 6:] = 100.0
    lengths = torch.full((4,), 6)
    one, two = (input_moments(model, [sp.Sequences(values, lengths)]) for values in (x, other))
    for path in ("encoder", "layers.0.ssm", "layers.0.gate"):
        assert np.allclose(one[path], two[path])


@pytest.mark.parametrize("lengths", [None, torch.tensor([20, 7, 13])])
def test_sequences_that_a_model_cuts_into_chunks_are_rounded_on_as_others(lengths, monkeypatch):
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=2, outputs=2, width=4, states=(3, 3), norm="layer")).eval()
    data = [sp.Sequences(torch.randn(3, 20, 2), lengths)]
    whole = quantize(model, data=data)
    monkeypatch.setattr("ssmprune.models.s5_kernel.NUMBERS_AT_ONCE", 32)  # 8 steps
    for name, tensor in quantize(model, data=data).state_dict().items():
        assert torch.allclose(tensor, whole.state_dict()[name]), name


@bits
@pytest.mark.parametrize("bidirectional", [False, True])
def test_what_padding_is_filled_with_does_not_matter(bidirectional, bits):
    torch.manual_seed(0)
    sizes = {"inputs": 2, "outputs": 3, "width": 10, "states": (6, 6)}
    model = Classifier(Config("s5", **sizes, bidirectional=bidirectional)).eval()
    x, lengths = torch.randn(6, 30, 2), torch.tensor([3, 30, 11, 1, 20, 29])
    padding = (torch.arange(30) >= lengths[:, None])[..., None]
    one, two = (quantize(model, bits, data=[sp.Sequences(x.masked_fill(padding, v), lengths)]) for v in (0.0, 10.0))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


def test_a_silent_input_keeps_its_range():
    """Calibration that never saw an input must not cut its weights: it may come."""
    weights, rows = np.array([[1.0, 0.2, 0.15]]), np.arange(3)[None]
    gram = np.diag([0.0, 1.0, 1.0])
    numbers, scale = round_weights(weights, 0 * rows, (1, 1), [Rows(rows, gram)], 127)
    assert abs(float(numbers[0, 0] * scale[0, 0]) - 1.0) < 0.05


def test_a_layer_without_states_survives_its_file(tmp_path):
    model = Classifier(Config("s4d", inputs=1, outputs=2, width=4, states=(0, 8))).eval()
    small = quantize(model, 8)
    sp.save(small, tmp_path / "small.safetensors")
    loaded = sp.load(tmp_path / "small.safetensors")
    assert loaded.grid.bits == 8
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in small.state_dict().items())


def test_a_refit_takes_a_model_off_its_grid(tmp_path):
    model, x = model_and_data("s5")
    small = sp.prune(quantize(model, 8), 0.5, data=[x])
    assert small.whole_numbers() is None
    sp.save(small, tmp_path / "small.safetensors")
    loaded = sp.load(tmp_path / "small.safetensors")
    assert loaded.grid is None
    first, second = loaded.history
    assert first == "quantised to 8 bits"
    assert second.startswith("pruned by surgeon at ")
    assert second.endswith(", C and D re-fitted, on 8 sequences, in floats again")
    assert torch.equal(loaded.layers[0].ssm.C, small.layers[0].ssm.C)


@bits
@kinds
def test_states_that_go_without_a_refit_leave_the_others_on_their_grid(kind, bits, tmp_path):
    model, x = model_and_data(kind)
    whole = quantize(model, bits, data=[x])
    sp.save(whole, tmp_path / "whole.safetensors")
    small = sp.prune(sp.load(tmp_path / "whole.safetensors"), 0.5)
    sp.save(small, tmp_path / "small.safetensors")
    loaded = sp.load(tmp_path / "small.safetensors")
    assert loaded.grid.bits == bits
    assert loaded.history == (*whole.history, f"pruned by {sp.Pruning(whole).plan(0.5).title}")
    for name, tensor in small.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    size, before = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("small", "whole"))
    assert size < before
    numbers, kept = whole.whole_numbers(), sp.Pruning(whole).plan(0.5).keep
    for path, keep in kept.items():
        if f"{path}.B" in numbers:
            assert np.array_equal(loaded.whole_numbers()[f"{path}.B"], numbers[f"{path}.B"][keep])


@given(st.lists(st.integers(-7, 7), min_size=1, max_size=9))
def test_halves_of_bytes_are_found_again(numbers):
    values = np.array(numbers, np.int8)
    assert np.array_equal(unpack(pack(values, 4), values.shape, 4, "C"), values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, about: about.update(bits="3"), "bits"),
        (lambda arrays, about: arrays.pop("decoder.weight.scale"), "needs whole numbers and scales"),
        (lambda arrays, about: arrays.update({"decoder.weight.scale": -arrays["decoder.weight.scale"]}), "positive"),
        (lambda arrays, about: arrays.update({"layers.0.ssm.C": arrays["layers.0.ssm.C"][:-1]}), "needs uint8"),
        (lambda arrays, about: about.update(history=json.dumps([1])), "list of sentences"),
        (lambda arrays, about: about.pop("bits"), "scale"),
    ],
)
def test_damaged_grids_are_refused(change, message, tmp_path):
    model, _ = model_and_data("s5")
    sp.save(quantize(model, 4), tmp_path / "small.safetensors")
    arrays, about = load_tensors(tmp_path / "small.safetensors")
    change(arrays, about)
    save_tensors(tmp_path / "damaged.safetensors", arrays, about)
    with pytest.raises(sp.InputError, match=message):
        sp.load(tmp_path / "damaged.safetensors")


def test_other_bits_and_other_models_are_refused():
    model, _ = model_and_data("s5")
    with pytest.raises(sp.InputError, match="8 or 4 bits; got 5"):
        quantize(model, 5)
    with pytest.raises(sp.InputError, match="own classifiers"):
        quantize(torch.nn.Linear(2, 2))


def test_the_model_that_was_given_is_left_alone():
    model, x = model_and_data("s5")
    before = copy.deepcopy(model.state_dict())
    quantize(model, 4, data=[x])
    assert model.grid is None
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


@bits
def test_batch_norms_move_by_what_rounding_did_to_their_inputs(bits):
    """Also where the sequences are unlike those of the training, whose statistics stay where 8 bits change nothing."""
    model, x = model_and_data("s5")
    for number, block in enumerate(model.blocks, start=1):
        block.norm.running_mean.fill_(0.3 * number)
        block.norm.running_var.fill_(2.0 * number)
    small = quantize(model, bits, data=[x])
    measured = [copy.deepcopy(each) for each in (model, small)]
    for each in measured:
        measure_statistics(each, [(x, None)])
    for old, new, *seen in zip(model.blocks, small.blocks, *(each.blocks for each in measured), strict=True):
        before, after = (block.norm for block in seen)
        moved = old.norm.running_mean + after.running_mean - before.running_mean
        scaled = old.norm.running_var * (after.running_var + 1e-5) / (before.running_var + 1e-5)
        assert torch.allclose(new.norm.running_mean, moved, atol=1e-5)
        assert torch.allclose(new.norm.running_var, scaled, rtol=1e-4)
        if bits == 8:
            assert torch.allclose(new.norm.running_mean, old.norm.running_mean, atol=0.02)
