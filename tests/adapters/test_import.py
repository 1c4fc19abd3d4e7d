"""Whole models of other codes as our classifiers, through Python, through files, through the command line."""

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ssmprune as sp
from flax_oracle import GOLDEN, S5, build, close, family, golden, tree_of
from ssmprune.adapters.annotated_s4d import AnnotatedS4D
from ssmprune.adapters.flax_s5 import FlaxS5
from ssmprune.adapters.state_spaces import StateSpacesS4D

CHECKPOINT = "s5_flax_checkpoint"
ANSWERS = ["conj_sym=true", "clip_eigs=false", "discretization=zoh", "prenorm=true", "pooling=mean"]


# lindermanlab/S5: outputs at every rate and gradients are compared in test_classifier.py


@pytest.mark.parametrize("name", S5)
def test_the_file_and_the_arrays_are_the_same_model(name):
    arrays, tree = golden(name), sp.load_tree(GOLDEN / name.replace("io.npz", "msgpack"))
    from_file = build(arrays, tree=tree).state_dict()
    for key, tensor in build(arrays).state_dict().items():
        assert torch.equal(tensor, from_file[key])


def test_a_train_state_is_imported():
    arrays = golden(f"{CHECKPOINT}.io.npz")
    model = build(arrays, tree=sp.load_tree(GOLDEN / "s5_flax_trainstate.msgpack"))
    close(model(torch.from_numpy(arrays["x"])).log_softmax(-1), arrays["logits"])


def test_one_hot_encoders_become_embeddings():
    arrays = golden("s5_flax_uni_halfglu2.io.npz")
    options = {"activation": "half_glu2", "prenorm": True, "pooling": "mean"}
    dense, table = (family(arrays).classifier(tree_of(arrays), tokens=tokens, **options) for tokens in (False, True))
    tokens = torch.randint(3, (2, 20))
    with torch.no_grad():
        close(table(tokens), dense(F.one_hot(tokens, 3).float()).numpy(), 1e-5)


def test_double_precision_is_kept():
    arrays = golden("s5_flax_uni_halfglu2.io.npz")
    doubled = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in arrays.items()}
    assert build(doubled).decoder.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"activation": "half_glu1"}, "activation must be full_glu for this tree; got 'half_glu1'"),
        ({}, {"pooling": "pool"}, "Config.pooling must be one of mean, last, none, not 'pool'"),
        ({"extra": np.ones(2)}, {}, "no place for: encoder.extra"),
        ({"encoder": {"kernel": np.ones((3, 12), int), "bias": np.ones(12)}}, {}, "kernel holds int64; expected"),
        ({"encoder": {}}, {}, "no array encoder.encoder.kernel"),
        ({"layers_0": {}}, {}, r"no flax_s5 layer at encoder\.layers_0\.seq"),
        ({"encoder": {"kernel": np.ones((3, 11)), "bias": np.ones(11)}}, {}, "do not fit together"),
    ],
)
def test_trees_that_do_not_fit_are_refused(change, options, reason):
    arrays = golden("s5_flax_uni_fullglu_ln_postnorm.io.npz")
    tree = tree_of(arrays)
    tree["params"]["encoder"] |= change
    answers = {"activation": "full_glu", "prenorm": False, "pooling": "mean"} | options
    with pytest.raises(sp.InputError, match=reason):
        family(arrays).classifier(tree, **answers)


# Write back


@pytest.mark.parametrize("name", S5)
def test_a_pruned_flax_tree_goes_through_its_file(name, tmp_path):
    arrays, adapter = golden(name), family(golden(name))
    tree = sp.load_tree(GOLDEN / name.replace("io.npz", "msgpack"))
    plan = sp.make_plan(sp.read(tree, adapter=adapter), 0.5)
    masked, small = sp.mask(tree, plan, adapter=adapter), sp.shrink(tree, plan, adapter=adapter)
    x = torch.from_numpy(arrays["x"])
    lengths = torch.from_numpy(arrays["lengths"]) if "lengths" in arrays else None
    for pruned in (masked, small):
        sp.save_tree(pruned, tmp_path / "pruned.msgpack")
        back = sp.load_tree(tmp_path / "pruned.msgpack")
        same(back, pruned)
        with torch.no_grad():
            ours = sp.shrink(build(arrays), plan_for_ours(plan))(x, lengths)
            close(build(arrays, tree=back)(x, lengths), ours.numpy())
    same(shapes(masked), shapes(tree))
    sizes = [layer["seq"]["Lambda_re"].shape for key, layer in small["params"]["encoder"].items() if "layers" in key]
    assert sizes == [(int(keep.sum()),) for keep in plan.keep.values()]


def plan_for_ours(plan):
    """The plan under the names of our classifier's layers: the fingerprints agree across codes."""
    renamed = copy.copy(plan)
    for name in ("keep", "scores", "fingerprints", "states_per_entry"):
        entries = getattr(plan, name).values()
        object.__setattr__(renamed, name, {f"layers.{i}.ssm": entry for i, entry in enumerate(entries)})
    return renamed


def same(ours, reference):
    assert type(ours) is type(reference)
    if isinstance(reference, dict):
        assert list(ours) == list(reference)
        for key, value in reference.items():
            same(ours[key], value)
    elif isinstance(reference, np.ndarray):
        assert ours.dtype == reference.dtype
        np.testing.assert_array_equal(ours, reference)
    else:
        assert ours == reference


def shapes(tree):
    return {key: shapes(value) if isinstance(value, dict) else value.shape for key, value in tree.items()}


# annotated-s4


def test_annotated_s4d_classifier():
    arrays = golden("annotated_s4d.io.npz")
    model = AnnotatedS4D().classifier(sp.load_tree(GOLDEN / "annotated_s4d.msgpack"), classification=True, prenorm=True)
    x = torch.from_numpy(arrays["x"])
    close(model(x).log_softmax(-1), arrays["out_conv"])
    with torch.no_grad():
        close(model.stream(x)[0][:, -1].log_softmax(-1), arrays["out_rnn_scan"])


def test_annotated_s4d_generation():
    arrays = golden("annotated_s4d_generation.io.npz")
    tree = sp.load_tree(GOLDEN / "annotated_s4d_generation.msgpack")
    model = AnnotatedS4D().classifier(tree, classification=False, prenorm=True)
    x = torch.from_numpy(arrays["x"])
    shifted = F.pad(x[:, :-1], (0, 0, 1, 0))  # the next pixel is predicted from those before it
    close(model(shifted).log_softmax(-1)[:, ::4], arrays["out_conv_every_4th"])


# state-spaces/s4


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"model": {f"module.{k}": v for k, v in s.items()}, "epoch": 3}]
)
def test_state_spaces_model(wrap):
    arrays, state = golden("s4d_state_spaces.npz"), sp.load_tree(GOLDEN / "s4d_state_spaces.pt")
    model = StateSpacesS4D().classifier(wrap(state), prenorm=False)
    close(model(torch.from_numpy(arrays["x"])), arrays["logits"])


def test_state_spaces_gradients():
    arrays = golden("s4d_state_spaces.npz")
    state, gradients = (
        {name.partition("/")[2]: torch.from_numpy(value) for name, value in arrays.items() if name.startswith(kind)}
        for kind in ("state/", "grad/")
    )
    model = StateSpacesS4D().classifier(state, prenorm=False)
    F.cross_entropy(model(torch.from_numpy(arrays["x"])), torch.from_numpy(arrays["labels"])).backward()
    expected = dict(StateSpacesS4D().classifier(gradients, prenorm=False).named_parameters())
    for name, parameter in model.named_parameters():
        close(parameter.grad, expected[name].detach().numpy(), 1e-3)


# The command line


def test_import_writes_a_model_that_prunes(ssmprune, tmp_path):
    arrays = golden(f"{CHECKPOINT}.io.npz")
    result = ssmprune(
        "import",
        GOLDEN / f"{CHECKPOINT}.msgpack",
        *("--family", "flax_s5", "--out", tmp_path / "ours", "--json", *ANSWERS, "activation=half_glu1"),
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["config"]["states"] == [8, 8, 8]
    model = sp.load(tmp_path / "ours" / "model.safetensors")
    close(model(torch.from_numpy(arrays["x"])).log_softmax(-1), arrays["logits"])
    assert sum(sp.prune(model, 0.5).config.states) == 12


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["flax_s5", *ANSWERS], "The file does not record activation (gelu, half_glu1, half_glu2 or full_glu)"),
        (
            ["flax_s5"],
            "not record conj_sym (true or false), clip_eigs (true or false), discretization (zoh or bilinear)",
        ),
        (["flax_s5", *ANSWERS, "activation=half_glu1", "depth=3"], "This family has no depth"),
        (["flax_s5", *ANSWERS, "activation=half_glu1", "conj_sym=yes"], "conj_sym must be true or false; got 'yes'"),
        (
            ["flax_s5", *ANSWERS, "activation=half_glu1", "discretization=euler"],
            "discretization must be zoh or bilinear; got 'euler'",
        ),
        (["flax_s5", *ANSWERS, "activation=relu"], "activation must be gelu, half_glu1, half_glu2 or full_glu"),
        (["flax_s5", "prenorm"], "Expected NAME=VALUE, for example prenorm=true; got 'prenorm'"),
        (["annotated_s4d", "classification=true", "prenorm=true"], "has no array encoder.kernel"),
        (["s5_pytorch"], "can be imported from the families annotated_s4d, flax_s5, state_spaces_s4d"),
        (["state_spaces_s4d", "prenorm=false"], "no array s4_layers.0.kernel.C"),
    ],
)
def test_import_asks_for_what_is_missing(ssmprune, tmp_path, arguments, named):
    file = GOLDEN / f"{CHECKPOINT}.msgpack"
    result = ssmprune("import", file, "--family", *arguments, "--out", tmp_path / "out.safetensors")
    assert result.returncode == 2
    assert named in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_without_answers_asks_for_them():
    with pytest.raises(sp.InputError, match="does not record conj_sym, clip_eigs, discretization"):
        FlaxS5().classifier(
            sp.load_tree(GOLDEN / f"{CHECKPOINT}.msgpack"), activation="gelu", prenorm=True, pooling="mean"
        )
