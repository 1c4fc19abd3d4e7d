"""Checkpoints come back exactly, and anything else is refused with the reason."""

import json
import struct

import pytest
import torch
from safetensors.torch import save as to_bytes

from ssmprune.errors import InputError
from ssmprune.files import load_tensors, save_tensors
from ssmprune.models.checkpoint import FORMAT, load, save
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

S5 = {"family": "s5", "inputs": 3, "outputs": 5, "width": 8, "states": (6, 4)}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Classifier(Config(**S5))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bidirectional": True, "norm": "layer", "activation": "full_glu", "retrieval": True},
        {"tokens": True, "conj_sym": False, "discretization": "bilinear", "blocks": 10**20, "step_rescale": 2.0},
        {"family": "s4d", "states": (16, 9), "bidirectional": True, "backward_delay": 1, "train_B": True},
        {"family": "s4d", "states": (16, 0)},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_is_exact(options, dtype, path):
    torch.manual_seed(1)
    model = Classifier(Config(**(S5 | options))).to(dtype).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("mask"):
            buffer[1::2] = False
    save(model, path)
    again = load(path)
    assert again.config == model.config
    assert not again.training
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name, parameter in again.named_parameters() if parameter.requires_grad} == trained
    save(again, path.with_name("again.safetensors"))
    assert path.with_name("again.safetensors").read_bytes() == path.read_bytes()
    x = torch.randint(3, (2, 20)) if model.config.tokens else torch.randn(2, 20, 3, dtype=dtype)
    assert torch.equal(model(x), again(x))


def test_loading_leaves_the_random_numbers_alone(model, path):
    save(model, path)
    before = torch.get_rng_state()
    load(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_trains(model, path):
    save(model, path)
    again = load(path).train()
    again(torch.randn(2, 9, 3)).sum().backward()
    torch.optim.SGD(again.parameters(), 0.1).step()
    assert not torch.equal(again.decoder.bias, model.decoder.bias)


def rewritten(path, tensors=None, **metadata):
    """Write the checkpoint again with other tensors or metadata, and a digest that is right."""
    stored, about = load_tensors(path)
    about = {name: value for name, value in (about | metadata).items() if value is not None}
    save_tensors(path, stored | (tensors or {}), about)


def refused(path, message):
    with pytest.raises(InputError, match=message) as error:
        load(path)
    assert path.name in str(error.value)


def test_missing_file(path):
    refused(path, "No such file")


def test_directory(tmp_path):
    refused(tmp_path, "Cannot read")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x02}q\x00.", struct.pack("<Q", 2**60) + b"{}"])
def test_foreign_files(path, content):
    path.write_bytes(content)
    refused(path, "damaged or not a safetensors file")


@pytest.mark.parametrize("part", [4, 100, -1, -500])
def test_truncated_files(model, path, part):
    save(model, path)
    path.write_bytes(path.read_bytes()[:part])
    refused(path, "damaged or not a safetensors file")


def test_other_safetensors_files(path):
    path.write_bytes(to_bytes({"weight": torch.zeros(3)}))
    refused(path, "not saved by ssmprune")


def test_a_flipped_bit_is_noticed_and_a_missing_digest_is_not(model, path):
    save(model, path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    refused(path, "its digest is wrong")
    save(model, path)
    tensors, about = load_tensors(path)
    path.write_bytes(to_bytes({name: torch.tensor(array) for name, array in tensors.items()}, about))
    assert load(path).config == model.config


def test_metadata(model, path):
    for metadata, message in [
        ({"format": "other"}, "not saved by ssmprune"),
        ({"version": "99"}, "version 99"),
        ({"config": None}, "not JSON"),
        ({"config": "{"}, "not JSON"),
        ({"config": "[1]"}, "JSON object"),
        ({"config": "[" * 100_000}, "not JSON"),
        ({"config": "9" * 10_000}, "not JSON"),
        ({"config": '{"width": 3}'}, "states"),
    ]:
        save(model, path)
        rewritten(path, **metadata)
        refused(path, message)


def test_config_and_tensors_must_agree(model, path):
    values = model.config.to_dict()
    for change, message in [
        ({"width": 9}, "encoder.weight has shape"),
        ({"states": [6, 5]}, "layers.1.ssm"),
        ({"states": [6]}, "no place for"),
        ({"states": [6, 4, 4]}, "lacks the tensors"),
        ({"activation": "full_glu"}, "lacks the tensors layers.0.value.bias"),
        ({"norm": "quantum"}, "norm must be one of"),
        ({"states": [6, "4"]}, "states must be"),
    ]:
        save(model, path)
        rewritten(path, config=json.dumps(values | change))
        refused(path, message)


@pytest.mark.parametrize(
    "change", [{"width": 10**9}, {"inputs": 10**15}, {"states": [10**12, 4]}, {"states": [1] * 100}]
)
def test_a_huge_config_takes_no_memory(model, path, change):
    save(model, path)
    rewritten(path, config=json.dumps(model.config.to_dict() | change))
    refused(path, "fewer numbers")


def test_types(model, path):
    for name, dtype, message in [
        ("decoder.weight", torch.int32, "float32 or float64"),
        ("layers.0.ssm.B", torch.float64, "layers.0.ssm.B holds"),
        ("layers.0.ssm.mask", torch.float32, "mask holds"),
    ]:
        save(model, path)
        rewritten(path, {name: model.state_dict()[name].to(dtype).numpy()})
        refused(path, message)


def test_the_format_is_named(model, path):
    save(model, path)
    assert FORMAT.encode() in path.read_bytes()[:4000]
