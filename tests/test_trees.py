"""Files of other codes: exact round trips, and nothing but an error from damaged or hostile ones."""

import contextlib
import json
import pickle
import subprocess
import sys

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import ssmprune as sp
from flax_oracle import GOLDEN
from ssmprune.adapters.flax_s5 import FlaxS5
from ssmprune.trees import from_msgpack, to_msgpack

FILES = sorted(GOLDEN.glob("*.msgpack"))
WHOLE = (GOLDEN / "s5_flax_checkpoint.msgpack").read_bytes()
PLACES = st.integers(0, len(WHOLE) - 1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_flax_file_is_written_back_byte_for_byte(path, tmp_path):
    sp.save_tree(sp.load_tree(path), tmp_path / "again.msgpack")
    assert (tmp_path / "again.msgpack").read_bytes() == path.read_bytes()


def test_every_kind_of_leaf_comes_back():
    tree = {
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.float32(3),
        "single": np.array(7, np.int32),
        "complex": 2 + 1j,
        "order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "plain": {"step": 3, "rate": 0.5, "name": "s5", "none": None, "flag": True},
    }
    back = from_msgpack(to_msgpack(tree))
    assert list(back) == list(tree)
    for key in ("empty", "scalar", "single", "order"):
        assert type(back[key]) is type(tree[key])
        assert back[key].dtype == tree[key].dtype
        np.testing.assert_array_equal(back[key], tree[key])
    assert (back["complex"], back["plain"]) == (tree["complex"], tree["plain"])
    back["empty"].resize(0), back["order"].fill(1)  # arrays of their own, not views of the file


def array(shape, name, content, code=1):
    return msgpack.packb({"params": msgpack.ExtType(code, msgpack.packb((shape, name, content)))})


NESTED = b"\x81\xa1a" * 200 + b"\x01"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Not a whole msgpack file"),
        (WHOLE[:-1], "Not a whole msgpack file"),
        (WHOLE + b"\x00", "Not a whole msgpack file"),
        (msgpack.packb([1, 2]), "Expected a tree of parameters, found list"),
        (array((2,), "float32", bytes(4)), r"An array \(2,\) of float32 needs 8 bytes"),
        (array((2**40, 2**40), "float32", b""), "needs 4835703278458516698824704 bytes"),
        (array((-1,), "float32", b""), r"An array has the shape \[-1\]"),
        (array(2, "float32", bytes(8)), "An array has the shape 2"),
        (array((2,), "object", bytes(16)), "Arrays of type 'object' cannot be read"),
        (array((2,), "bfloat16", bytes(4)), "Arrays of type 'bfloat16' cannot be read; save the model in float32"),
        (array((2,), "float32", "text"), "needs 8 bytes"),
        (array((2,), "float32", bytes(8), code=4), "Unknown extension type 4"),
        (array((2,), "float32", bytes(8), code=2), "A complex number is not two numbers"),
        (msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb([1]))}), r"not \(shape, type, bytes\)"),
        (msgpack.packb({"a": msgpack.ExtType(1, array((1,), "float32", bytes(4)))}), "inside an array"),
        (NESTED, "deeper than 64"),
        (b"\x81\xa1a" * 100_000, "Not a whole msgpack file"),
        (b"\xdd\xff\xff\xff\xff", "Not a whole msgpack file"),  # a list that claims 2^32 entries
        (b"\xdf\xff\xff\xff\xff", "Not a whole msgpack file"),
        (b"\x81\xa1a\xc6\xff\xff\xff\xff", "Not a whole msgpack file"),
    ],
    ids=range(20),
)
def test_damaged_trees_are_refused(content, reason, tmp_path):
    path = tmp_path / "model.msgpack"
    path.write_bytes(content)
    with pytest.raises(sp.InputError, match=reason) as refusal:
        sp.load_tree(path)
    assert str(path) in str(refusal.value)


@settings(max_examples=200)
@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=4), st.sampled_from([0, -1, 5000]))
def test_flipped_and_cut_bytes_give_a_model_or_an_error(flips, end):
    content = bytearray(WHOLE)
    for place, value in flips:
        content[place] = value
    with contextlib.suppress(sp.InputError):
        tree = from_msgpack(bytes(content[: end or None]))
        model = FlaxS5(True, False, "zoh").classifier(tree, activation="half_glu1", prenorm=True, pooling="mean")
        assert model.config.depth == 3


class Bomb:
    def __reduce__(self):
        return print, ("code in a checkpoint ran",)


def test_a_torch_file_runs_no_code(tmp_path, capsys):
    torch.save({"model": Bomb()}, tmp_path / "model.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb()))
    for name in ("model.pt", "plain.pt"):
        with pytest.raises(sp.InputError, match="Not a torch checkpoint of plain tensors"):
            sp.load_tree(tmp_path / name)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.pt", b"PK\x03\x04 not a zip", "Not a torch checkpoint"),
        ("model.ckpt", b"", "Not a torch checkpoint"),
        ("model.safetensors", b"\xff" * 20, "not a safetensors file"),
    ],
)
def test_other_damaged_files_are_refused(name, content, reason, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(sp.InputError, match=reason):
        sp.load_tree(tmp_path / name)


def test_a_checkpoint_that_is_no_state_dict_is_refused(tmp_path):
    torch.save(torch.zeros(2), tmp_path / "tensor.pt")
    with pytest.raises(sp.InputError, match="Expected a state dict, found Tensor"):
        sp.load_tree(tmp_path / "tensor.pt")
    with pytest.raises(sp.InputError, match="Cannot read"):
        sp.load_tree(tmp_path / "absent.msgpack")
    with pytest.raises(sp.InputError, match="Cannot read"):
        sp.load_tree(tmp_path)


def test_state_dicts_may_come_in_safetensors(tmp_path):
    state = sp.load_tree(GOLDEN / "s4d_state_spaces.pt")
    save_file({name: tensor.numpy() for name, tensor in state.items()}, tmp_path / "model.safetensors")
    ours, theirs = sp.read(sp.load_tree(tmp_path / "model.safetensors")), sp.read(state)
    assert {path: ours[path].fingerprint for path in theirs} == {path: s.fingerprint for path, s in theirs.items()}


def test_objects_that_a_tree_cannot_hold_are_not_written(tmp_path):
    with pytest.raises(sp.InputError, match="found a set"):
        sp.save_tree({"params": {1, 2}}, tmp_path / "model.msgpack")
    assert list(tmp_path.iterdir()) == []


CODE = """
import sys
sys.modules["torch"] = sys.modules["jax"] = sys.modules["flax"] = None  # importing them raises ImportError
import ssmprune as sp
from ssmprune.adapters.flax_s5 import FlaxS5
family = FlaxS5(conj_sym=True, clip_eigs=False, discretization="zoh")
tree = sp.load_tree(sys.argv[1])
plan = sp.make_plan(sp.read(tree, adapter=family), 0.5)
sp.save_tree(sp.mask(tree, plan, adapter=family), sys.argv[2])
small = sp.shrink(tree, plan, adapter=family)["params"]["encoder"]
print([len(small[f"layers_{i}"]["seq"]["B"]) for i in range(3)])
try:
    family.classifier(tree, activation="half_glu1", prenorm=True, pooling="mean")
except sp.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_flax_checkpoint_is_pruned_with_numpy_alone(tmp_path):
    command = [sys.executable, "-c", CODE, GOLDEN / "s5_flax_checkpoint.msgpack", tmp_path / "pruned.msgpack"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes, error = result.stdout.splitlines()
    assert sum(json.loads(sizes)) == 12
    assert error.startswith("Models need PyTorch")
    assert (tmp_path / "pruned.msgpack").stat().st_size == len(WHOLE)
