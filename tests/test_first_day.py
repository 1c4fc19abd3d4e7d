"""What people try on their first day: data that lie otherwise, files and state dicts for models, swapped arguments."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from ssmprune.deploy.build import default_folder
from ssmprune.models.config import Config

X = torch.randn(12, 20, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.zeros(12, dtype=torch.long)


class Net(nn.Module):
    def __init__(self, layer=sp.S5Layer):
        super().__init__()
        self.encoder, self.ssm, self.head = nn.Linear(3, 4), layer(4, 6), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.ssm(self.encoder(x)).mean(1))


class Foreign(Net):
    """A model that fails by itself, outside our layers."""

    def forward(self, x):
        return super().forward(x + torch.ones(x.shape[0], x.shape[1], 3))


def ours():
    return sp.Classifier(Config("s5", inputs=3, outputs=2, width=4, states=(3, 3)))


MODELS = [Net, lambda: Net(sp.S4DLayer), Foreign, ours, lambda: sp.S5Layer(3, 6), lambda: sp.S4DLayer(3, 6)]
USES = {
    "prune": lambda model, x: sp.prune(model, 0.5, data=x),
    "collect": sp.collect,
    "recover": lambda model, x: sp.recover(sp.prune(model, 0.5), model, x, minutes=0.001),
    "evaluate": lambda model, x: sp.evaluate(model, [(batch, LABELS[: len(batch)]) for batch in x]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize(
    "data", [[X.transpose(1, 2)], [X[:, 0]], list(X)], ids=["channels first", "no length", "no batch"]
)
def test_data_of_another_shape_are_refused_with_advice(use, build, data):
    with pytest.raises(sp.InputError, match=r"\(batch, length, "):
        use(build(), data)


@pytest.mark.parametrize("build", [build for build in MODELS if build is not Foreign])  # which adds floats
def test_whole_numbers_for_a_model_of_floats_are_refused_with_advice(build):
    with pytest.raises(sp.InputError, match=r"torch\.int64.*x\.float\(\)"):
        sp.prune(build(), 0.5, data=[X.long()])


def test_a_layer_says_what_it_takes():
    with pytest.raises(sp.InputError, match=r"S4DLayer takes \(batch, length, 3\), got \(20, 3\).*u\[None\]"):
        sp.S4DLayer(3, 6)(X[0])


def test_lack_of_memory_is_not_taken_for_a_wrong_shape():
    class Greedy(Net):
        def forward(self, x):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="allocate memory"):
        sp.prune(Greedy(), 0.5, data=[X])


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("small.safetensors", r"This is a path: load the file first, as by ssmprune\.load\(path\)"),
        (Net().state_dict(), r"This is a state dict: build its model, model\.load_state_dict"),
        (Net, r"This is a class: make a model of it, as by Net\(\.\.\)"),
    ],
    ids=["path", "state dict", "class"],
)
def test_what_is_no_model_is_told_how_to_become_one(given, advice):
    for use in (
        lambda: sp.prune(given, 0.5),
        lambda: sp.prune(given, 0.5, data=[X]),
        lambda: sp.read(given),
        lambda: sp.recover(given, Net(), [X]),
        lambda: sp.recover(Net(), given, [X]),
        lambda: sp.evaluate(given, [(X, LABELS)]),
    ):
        with pytest.raises(sp.InputError, match=advice):
            use()


@pytest.mark.parametrize("build", [Net, ours])
def test_models_without_numbers_are_refused(build, tmp_path):
    small, meta = sp.prune(build(), 0.5).to("meta"), build().to("meta")
    uses = [lambda: sp.prune(meta, 0.5), lambda: sp.prune(meta, 0.5, data=[X]), lambda: sp.read(meta)]
    uses += [lambda: sp.save_pruned(small, tmp_path / "m"), lambda: sp.evaluate(meta, [(X, LABELS)])]
    uses += [lambda: sp.save(meta, tmp_path / "m")] if build is ours else []
    for use in uses:
        with pytest.raises(sp.InputError, match=r"on the device meta and has no numbers; give the model its weights"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("build", MODELS)
def test_recover_with_its_arguments_swapped(build):
    model = build()
    with pytest.raises(sp.InputError, match=r"has 12 states, .* 6: call recover\(small, model, data\)"):
        sp.recover(model, sp.prune(model, 0.5), [X], minutes=0.001)


def test_a_model_that_was_not_pruned_is_not_saved_as_pruned(tmp_path):
    model, file = Net(), tmp_path / "m.safetensors"
    sp.prune(model, 0.5)  # the copy is thrown away
    with pytest.raises(sp.InputError, match=r"Net was not pruned: .*small = sp\.prune\(model, 0\.5\).*torch\.save"):
        sp.save_pruned(model, file)
    model.ssm = sp.prune(model.ssm, 0.5)
    sp.save_pruned(model, file)
    again = sp.load_pruned(Net(), file)
    sp.save_pruned(again, file)
    silent = Net()
    sp.save_pruned(sp.mask(silent, sp.make_plan(sp.read(silent), 0.5)), file)
    converted = Net()
    converted.ssm = sp.convert(converted.ssm, sp.make_plan(sp.read(converted.ssm), 0.5))[""]
    sp.save_pruned(converted, file)


def test_few_examples_for_max_loss_are_told():
    with pytest.warns(UserWarning, match="12 examples cannot show a loss below 17.5 points, so give more"):
        sp.prune(Net(), sp.max_loss(1, [(X, LABELS)]))


@pytest.mark.parametrize(
    ("systems", "message"),
    [({"a": 1}, "'a' is of type int"), ({"a": None}, "'a' is of type NoneType"), ([1], "got list")],
)
def test_plans_are_made_from_systems(systems, message):
    with pytest.raises(sp.InputError, match=rf"Plans are made from ssmprune\.read\(model\).*{message}"):
        sp.make_plan(systems, 0.5)


class Buffered(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.ssm = sp.S5Layer(2, 4)
        self.register_buffer("extra", tensor)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(3).to_sparse(), r"extra is a sparse tensor \(torch\.sparse_coo\).*to_dense"),
        (torch.ones(3).to(torch.float8_e4m3fn), r"extra holds torch\.float8_e4m3fn, which files cannot.*\.float\(\)"),
    ],
    ids=["sparse", "float8"],
)
def test_tensors_that_files_cannot_hold_are_refused(tensor, message, tmp_path):
    with pytest.raises(sp.InputError, match=message):
        sp.save_pruned(sp.prune(Buffered(tensor), 0.5), tmp_path / "m.safetensors")
    with pytest.raises(sp.InputError, match=message.replace("extra", "A tensor")):
        sp.save_tree({"extra": tensor}, tmp_path / "m.msgpack")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), ()])
def test_complex_tensors_without_entries_come_back(shape, tmp_path):
    tensor, file = torch.zeros(shape, dtype=torch.complex64), tmp_path / "m.safetensors"
    sp.save_pruned(sp.prune(Buffered(tensor), 0.5), file)
    extra = sp.load_pruned(Buffered(tensor), file).extra
    assert (extra.shape, extra.dtype) == (tensor.shape, tensor.dtype)


def test_conjugate_views_go_into_trees(tmp_path):
    tensor = torch.tensor([1 + 2j]).conj()
    sp.save_tree({"a": tensor, "b": tensor.imag}, tmp_path / "m.msgpack")
    tree = sp.load_tree(tmp_path / "m.msgpack")
    assert (tree["a"], tree["b"]) == (np.array([1 - 2j]), np.array([-2.0]))


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_a_pruned_module_is_loaded_in_the_type_it_had(kind, tmp_path):
    small, file = sp.prune(sp.S5Layer(2, 4), 0.5).to(kind), tmp_path / "m.safetensors"
    sp.save_pruned(small, file)
    with pytest.raises(sp.InputError, match=rf"holds {kind} there and torch\.float32 .*as by model\.to\({kind}\)"):
        sp.load_pruned(sp.S5Layer(2, 4), file)
    assert {p.dtype for p in sp.load_pruned(sp.S5Layer(2, 4).to(kind), file).parameters()} == {kind}


@pytest.mark.parametrize("data", [None, [X]], ids=["no data", "data"])
@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_twice_changes_nothing(bits, data):
    once = sp.quantize(sp.Classifier(Config("s5", inputs=3, outputs=2, width=12, states=(9, 9))), bits, data=data)
    for twice in (sp.quantize(once, bits, data=data), sp.quantize(once, bits)):
        assert twice is not once
        assert twice.history == once.history
        assert all(map(torch.equal, twice.state_dict().values(), once.state_dict().values()))
    pruned = sp.prune(once, 0.5)
    assert all(map(torch.equal, sp.quantize(pruned, bits).state_dict().values(), pruned.state_dict().values()))
    assert sp.quantize(once, 12 - bits).grid.bits == 12 - bits


def test_a_refused_torch_file_does_not_repeat_the_advice_to_load_it_unsafely(tmp_path):
    torch.save({"model": Net()}, tmp_path / "m.pt")
    with pytest.raises(sp.InputError, match=r"holds Python objects, which may run any code.*state_dict\(\)") as told:
        sp.load_tree(tmp_path / "m.pt")
    assert "weights_only" not in str(told.value)
    assert "can still be loaded" not in str(told.value)


@pytest.mark.parametrize(
    "line",
    [
        "inspect nosuch",
        "prune nosuch -r .5 -o small.safetensors",
        "recover nosuch nosuch --calibrate x.npy -o small.safetensors",
        "quantize nosuch -o small.safetensors",
        "evaluate nosuch",
        "export nosuch -o small.c",
        "deploy nosuch -r .5 -o folder",
        "sweep nosuch -o folder",
    ],
)
def test_a_missing_file_is_told_before_torch_is_imported(line, tmp_path):
    program = f"""
import sys
from ssmprune.cli import run
try:
    run({line.split()})
finally:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: Cannot read 'nosuch': No such file or directory.\n"
    assert not list(tmp_path.iterdir())


def test_a_cache_folder_that_is_not_absolute_is_ignored(monkeypatch, tmp_path):
    """As the XDG Base Directory specification asks."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("cache", "./cache", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_folder() == tmp_path / ".cache" / "ssmprune" / "compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_folder() == tmp_path / "cache" / "ssmprune" / "compiled"


def test_a_file_of_numbers_without_an_axis_of_inputs_is_told_apart_from_tokens(tmp_path):
    from ssmprune.training.calibration_inputs import load_unlabelled

    np.save(tmp_path / "x.npy", np.full((10, 7), 0.5, np.float32))
    with pytest.raises(sp.InputError, match=r"x.npy holds numbers \(sequences, length\).*save x\[..., None\]"):
        load_unlabelled(str(tmp_path / "x.npy"), 10)
    np.save(tmp_path / "x.npy", np.full((10, 7), 3.0))
    assert load_unlabelled(str(tmp_path / "x.npy"), 10)[0].x.dtype == torch.int64
