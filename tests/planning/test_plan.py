import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ssmprune as sp
from ssmprune.core import white_noise
from ssmprune.methods import GLOBAL_HINF, RANDOM, named
from ssmprune.planning import plan_from_scores, refit_each_layer
from strategies import systems


def mimo(seed, n=8, gain=2.0):
    rng = np.random.default_rng(seed)
    poles = rng.uniform(0.1, 0.99, n) * np.exp(1j * rng.uniform(0, np.pi, n))
    return sp.DiagonalSystem.from_discrete(poles, rng.normal(size=(n, 3)), rng.normal(size=(3, n)), gain=gain)


@pytest.fixture
def model():
    return {"first": mimo(0), "second": mimo(1), "third": mimo(2)}


def test_every_method_prunes_as_much_as_it_is_told(model):
    plans = {name: sp.make_plan(model, 0.5, method) for name, method in named().items()}
    assert all(plan.kept == 24 for plan in plans.values())
    uniform = [plan for name, plan in plans.items() if "uniform" in name or name == "random"]
    assert all(mask.sum() == 4 for plan in uniform for mask in plan.keep.values())


def test_random_draws_differ_between_layers_and_seeds(model):
    first, second = (sp.make_plan(model, 0.5, RANDOM, seed=seed) for seed in (0, 1))
    assert any(first.difference(second).values())
    assert not np.array_equal(first.keep["first"], first.keep["second"])
    assert not any(first.difference(sp.make_plan(model, 0.5, RANDOM, seed=0)).values())


def test_excluded_layers_stay_whole_and_do_not_count(model):
    plan = sp.make_plan(model, 0.75, limits=sp.Limits(exclude=["second"]))
    assert plan.keep["second"].all()
    assert plan.keep["first"].sum() + plan.keep["third"].sum() == 4


def test_caps_limit_what_a_layer_loses(model):
    free = sp.make_plan(model, 0.75, GLOBAL_HINF)
    assert min(mask.sum() for mask in free.keep.values()) < 4
    capped = sp.make_plan(model, 0.75, GLOBAL_HINF, limits=sp.Limits(caps=0.5))
    assert all(mask.sum() >= 4 for mask in capped.keep.values())
    whole = sp.make_plan(model, 0.75, GLOBAL_HINF, limits=sp.Limits(caps={"first": 0.0}))
    assert whole.keep["first"].all()
    assert sum(mask.sum() for mask in whole.keep.values()) == 10  # eight protected, one for each other layer


@given(st.integers(0, 10), st.integers(1, 9))
def test_rounding_keeps_multiples_and_never_fewer(tenths, multiple):
    model = {"first": mimo(0), "second": mimo(1, gain=1.0)}
    exact, rounded = (sp.make_plan(model, tenths / 10, limits=sp.Limits(round_to=k)) for k in (1, multiple))
    for layer, system in model.items():
        kept = int(rounded.keep[layer].sum())
        assert not (exact.keep[layer] & ~rounded.keep[layer]).any()
        assert kept * system.states_per_entry % multiple == 0 or kept == system.n


@given(systems(multi_siso=(True,)), st.floats(0, 1))
def test_the_channel_floor_keeps_one_state_in_every_channel(system, ratio):
    plan = sp.make_plan({"ssm": system}, ratio, limits=sp.Limits(floor="channel"))
    assert set(system.channel[plan.keep["ssm"]]) == set(system.channel)


def test_a_layer_without_output_loses_all_but_one_pair_first(model):
    silent = sp.DiagonalSystem.from_discrete(model["second"].poles, model["second"].B, np.zeros((3, 8)), gain=2)
    for percent in range(101):
        plan = sp.make_plan(model | {"second": silent}, percent / 100)
        kept = {layer: int(keep.sum()) for layer, keep in plan.keep.items()}
        removed = 24 - sum(kept.values())
        assert kept["second"] == max(1, 8 - removed)
        assert not any(np.isnan(scores).any() for scores in plan.scores.values())


def test_unstable_states_stay_and_enter_the_sums():
    stable = sp.DiagonalSystem.from_discrete([0.5, 0.6, 0.7], np.ones((3, 1)), np.ones((1, 3)))
    kept = sp.DiagonalSystem.from_discrete([0.5, 3.6, 0.7], np.ones((3, 1)), np.ones((1, 3)))
    plan = sp.make_plan({"a": stable, "b": kept}, 1.0)
    assert plan.keep["b"].tolist() == [False, True, False]
    np.testing.assert_allclose(np.exp(plan.scores["b"][1]), 1 / 2.6**2)


def test_a_criterion_that_returns_nan_is_an_error(model):
    broken = sp.Method("broken", lambda system, evidence: np.full(system.n, np.nan), sp.pooled)
    with pytest.raises(sp.InputError, match=r"'broken' must return 8 numbers for layer 'first'.*8 NaN"):
        sp.make_plan(model, 0.5, broken)


@pytest.mark.parametrize(
    ("ratio", "limits", "message"),
    [
        (1.5, {}, "from 0 to 1; got 1.5"),
        (float("nan"), {}, "from 0 to 1; got nan"),
        (None, {}, "from 0 to 1; got None"),
        ([0.5], {}, r"from 0 to 1; got \[0.5\]"),
        ("0.5", {}, "from 0 to 1; got '0.5'"),
        (True, {}, "from 0 to 1; got True"),
        (0.5, {"exclude": ["fourth"]}, "No layer is called 'fourth'; the layers are first, second, third"),
        (0.5, {"exclude": "first"}, "collection of layer names; got the single string 'first'"),
        (0.5, {"exclude": None}, "collection of layer names; got None"),
        (0.5, {"exclude": ["first", "second", "third"]}, "All layers are excluded"),
        (0.5, {"caps": {"fourth": 0.5}}, "No layer is called 'fourth'"),
        (0.5, {"caps": 1.5}, "largest share.*; got 1.5 for 'caps'"),
        (0.5, {"caps": "0.5"}, "largest share.*; got '0.5' for 'caps'"),
        (0.5, {"caps": {"first": None}}, "largest share.*; got None for 'first'"),
        (0.5, {"caps": [0.5]}, "largest share"),
        (0.5, {"round_to": 0}, "at least 1; got 0"),
        (0.5, {"round_to": 2.5}, "at least 1; got 2.5"),
        (0.5, {"floor": "chanel"}, "There is no floor 'chanel'; there are layer, channel"),
        (0.5, {"floor": None}, "There is no floor None"),
    ],
)
def test_bad_requests_are_refused(model, ratio, limits, message):
    with pytest.raises(sp.InputError, match=message):
        sp.make_plan(model, ratio, limits=sp.Limits(**limits))


@pytest.mark.parametrize(
    ("scores", "given"),
    [({}, "none"), ({"first": np.zeros(7)}, r"shape \(7,\)"), ({"first": np.full(8, np.nan)}, r"shape \(8,\)")],
)
def test_scores_of_other_sizes_make_no_plan(model, scores, given):
    others = {layer: np.zeros(system.n) for layer, system in model.items() if layer != "first"}
    with pytest.raises(sp.InputError, match=f"'first' needs 8 scores, none of them NaN; got {given}"):
        plan_from_scores(model, others | scores, 0.5, sp.pooled, "mine")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is a whole number, at least 0; got -1"),
        ({"seed": None}, "got None"),
        ({"seed": 0.5}, "got 0.5"),
        ({"method": "last"}, "method is a Method.*got 'last'"),
        ({"method": RANDOM.criterion}, "method is a Method"),
        ({"limits": {"caps": 0.5}}, r"as in Limits\(caps=0.9\); got {'caps': 0.5}"),
        ({"limits": None}, r"as in Limits\(caps=0.9\); got None"),
        ({"moments": 200}, r"ssmprune.collect\(model, data\) returns; got int"),
    ],
)
def test_arguments_of_other_types_are_refused(model, options, message):
    with pytest.raises(sp.InputError, match=message):
        sp.make_plan(model, 0.5, **options)


@pytest.mark.parametrize(
    ("limits", "title"),
    [
        ({}, "last at 75%"),
        ({"caps": 0.5}, "last at 50% (asked for 75%)"),
        ({"round_to": 100}, "last at 0% (asked for 75%)"),
        ({"exclude": ["first", "second"]}, "last at 25% (asked for 75%)"),
    ],
)
def test_a_plan_says_the_ratio_that_was_reached(model, limits, title):
    plan = sp.make_plan(model, 0.75, limits=sp.Limits(**limits))
    assert str(plan).splitlines()[0] == title
    assert repr(plan) == f"Plan({title}: {plan.kept} of 48 states stay)"


def test_all_states_means_all_but_one_of_each_layer(model):
    assert sp.make_plan(model, 1).title == "last at 88% (asked for 100%)"


def test_the_surgeon_is_a_method_like_any_other(model):
    assert named()["surgeon"] is sp.SURGEON
    plan = sp.make_plan(model, 0.5, sp.SURGEON)
    assert plan.title == "surgeon without data at 50%, C and D re-fitted"
    noise = {layer: white_noise(system) for layer, system in model.items()}
    again = refit_each_layer(plan_from_scores(model, plan.scores, 0.5, sp.pooled, "again"), model, noise)
    assert all(np.array_equal(again.C[layer], C) for layer, C in plan.C.items())
    assert sp.make_plan(model, 0.5, sp.SURGEON, moments=noise).method == "surgeon"


def test_a_method_re_fits_when_it_is_told_to(model):
    refitting = dataclasses.replace(sp.LAST, name="mine", refits=True)
    plan, plain = sp.make_plan(model, 0.5, refitting), sp.make_plan(model, 0.5)
    assert not any(plan.difference(plain).values())
    assert plan.title == "mine without data at 50%, C and D re-fitted"
    assert not plain.C
    again = refit_each_layer(plain, model)
    assert all(np.array_equal(again.C[layer], C) for layer, C in plan.C.items())


def test_moments_are_made_for_those_who_ask(model):
    """A criterion that looks at data has seen its sequences; one that does not leaves the moments alone."""
    asked = []

    def energetic(system, evidence):
        asked.append(system)
        return np.full(system.n, evidence.moments.power.sum())

    seen = {layer: dataclasses.replace(white_noise(system), sequences=30) for layer, system in model.items()}
    mine = sp.Method("mine", energetic, sp.uniform)
    assert sp.make_plan(model, 0.5, mine, moments=seen).title == "mine at 50%, on 30 sequences"
    assert sp.make_plan(model, 0.5, moments=seen).title == "last at 50%"
    assert asked == list(model.values())


def test_plans_reload_as_they_were(model, tmp_path):
    plan = sp.make_plan(model, 0.3)
    plan.save(tmp_path / "plan.safetensors")
    again = sp.Plan.load(tmp_path / "plan.safetensors")
    assert str(again) == str(plan)
    assert list(again.keep) == list(plan.keep)
    assert not any(plan.difference(again).values())
    for layer in model:
        np.testing.assert_array_equal(again.scores[layer], plan.scores[layer])
    again.check(model)
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "plan.safetensors").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_sequences_a_plan_has_seen_are_saved(model, tmp_path):
    seen = {layer: dataclasses.replace(white_noise(system), sequences=30) for layer, system in model.items()}
    plan = sp.make_plan(model, 0.5, sp.SURGEON, moments=seen)
    plan.save(tmp_path / "plan.safetensors")
    again = sp.Plan.load(tmp_path / "plan.safetensors")
    assert again.title == plan.title == "surgeon at 50%, C and D re-fitted, on 30 sequences"


def test_a_plan_names_the_layer_that_differs(model):
    plan = sp.make_plan(model, 0.5)
    with pytest.raises(sp.InputError, match="The parameters of layer 'second'"):
        plan.check(model | {"second": mimo(7)})
    with pytest.raises(sp.InputError, match="Layer 'second' has 9 stored states, the plan was made for 8"):
        plan.check(model | {"second": mimo(1, n=9)})
    with pytest.raises(sp.InputError, match="Layer 'fourth' exists only in the model"):
        plan.check(model | {"fourth": mimo(3)})
    with pytest.raises(sp.InputError, match="Layer 'first' exists only in the plan"):
        plan.check({"second": model["second"], "third": model["third"]})
    with pytest.raises(sp.InputError, match="different models"):
        plan.difference(sp.make_plan(model | {"second": mimo(7)}, 0.5))


@pytest.mark.parametrize("damage", ["missing", "folder", "empty", "truncated", "other", "version", "entries"])
def test_damaged_plans_are_refused(model, tmp_path, damage):
    path = tmp_path / "plan.safetensors"
    sp.make_plan(model, 0.5).save(path)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {
            "empty": b"",
            "truncated": content[:-10],
            "other": content.replace(b"ssmprune-plan", b"ssmprune-plum"),
            "version": content.replace(b'"version":"1"', b'"version":"9"'),
            "entries": content.replace(b"method", b"mothed"),
        }[damage]
        assert changed != content
        path.write_bytes(changed)
    with pytest.raises(sp.InputError):
        sp.Plan.load(path)


def test_a_plan_cannot_overwrite_a_folder(model, tmp_path):
    with pytest.raises(sp.InputError, match="is a directory"):
        sp.make_plan(model, 0.5).save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(sp.InputError, match="Cannot write"):
        sp.make_plan(model, 0.5).save(tmp_path / "file" / "plan")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
