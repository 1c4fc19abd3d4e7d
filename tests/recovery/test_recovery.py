"""Recovery: what it mends, that it never harms, that it resumes after a kill to the bit."""

import copy
import itertools

import pytest
import torch
from torch import nn

import ssmprune as sp
from families import s5_package
from ssmprune.methods import RANDOM
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.recovery import Recovery
from ssmprune.recovery import distillation as module
from ssmprune.recovery.distillation import batches

pytestmark = pytest.mark.slow


def classifier(family="s5", pooling="none"):
    """A model that is sure of what it says, so that there is something to lose."""
    torch.manual_seed(0)
    states = (12, 12) if family == "s5" else (36, 36)
    model = Classifier(Config(family, 2, 3, width=6, states=states, pooling=pooling)).eval()
    with torch.no_grad():
        model.decoder.weight *= 10
        model.decoder.bias.zero_()
        for block in model.layers:
            block.ssm.C *= 3
    return model


def inputs(count=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(16, 40, 2, generator=generator) for _ in range(count)]


def weights(model):
    return dict(model.state_dict())


def same(one, other):
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


class Killed(Exception):
    pass


def killing_at(step):
    """Return a step of recovery that does not survive this one."""
    learn = Recovery._learn

    def killing(self, optimizer, position):
        if position.step == step:
            raise Killed
        learn(self, optimizer, position)

    return killing


def divergence(small, model, x):
    with torch.no_grad():
        ours, theirs = small(x).log_softmax(-1), model(x).log_softmax(-1)
    return float((theirs.exp() * (theirs - ours)).sum(-1).mean())


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_pruned_classifier_gets_nearer_to_the_whole_one_on_inputs_it_has_not_seen(family):
    model = classifier(family)
    small = sp.prune(model, 0.8, RANDOM)
    outcome = Recovery(small, model, inputs(12)).run(steps=60)
    (unseen,) = inputs(1, seed=2)
    assert divergence(outcome.model, model, unseen) < 0.95 * divergence(small, model, unseen)
    assert outcome.after.damage < outcome.before.damage
    assert 0 < outcome.after.agreement <= 1
    assert outcome.model.config == small.config
    assert not same(outcome.model, small)


def test_a_model_of_another_library_learns_from_outputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), s5_package().S5(6, 16), nn.Tanh(), nn.Linear(6, 2))
    small = sp.prune(model, 0.75)
    outcome = Recovery(small, model, inputs(12), what="states").run(steps=60)
    (unseen,) = inputs(1, seed=2)
    with torch.no_grad():
        before, after = ((net(unseen) - model(unseen)).square().mean() for net in (small, outcome.model))
    assert after < 0.7 * before
    assert outcome.after.agreement is None
    assert "held-out error" in str(outcome)
    assert torch.equal(outcome.model[0].weight, small[0].weight)
    assert len(outcome.model[1].seq.Lambda) == 4
    assert not any(system.unstable_states.any() for system in sp.read(outcome.model).values())


def test_only_states_learn_if_asked():
    model = classifier()
    small = sp.prune(model, 0.7)
    after = weights(Recovery(small, model, inputs(), what="states").run(steps=20).model)
    changed = {name for name, tensor in weights(small).items() if not torch.equal(tensor, after[name])}
    assert changed
    assert all(".ssm." in name for name in changed)


def test_an_undamaged_model_is_returned_unchanged():
    model = classifier()
    outcome = Recovery(copy.deepcopy(model), model, inputs()).run(steps=20)
    assert (outcome.steps, outcome.finished) == (0, True)
    assert same(outcome.model, model)
    assert "needs none" in str(outcome)


def test_steps_that_harm_are_undone(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_RATE", 30.0)
    model = classifier()
    small = sp.prune(model, 0.5)
    outcome = Recovery(small, model, inputs()).run(steps=40)
    assert same(outcome.model, small)
    assert outcome.after == outcome.before
    assert "nothing gained" in str(outcome)
    assert outcome.steps == 30  # the first validation in the last quarter


def test_a_rate_that_was_too_high_is_lowered(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_RATE", 3.0)
    monkeypatch.setattr(module, "RETREAT", 1e-3)
    model = classifier()
    small, state = sp.prune(model, 0.5), tmp_path / "state"
    outcome = Recovery(small, model, inputs(10)).run(steps=40)
    assert outcome.after.damage < outcome.before.damage
    assert outcome.steps == 40
    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_learn", killing_at(26))  # after the retreat, which a resumed recovery has to know of
        with pytest.raises(Killed):
            Recovery(small, model, inputs(10)).run(steps=40, state=state)
    assert same(Recovery(small, model, inputs(10)).run(steps=40, state=state).model, outcome.model)


def test_weights_that_became_nan_do_not_spoil_the_second_half(monkeypatch):
    learn = Recovery._learn

    def run_away(self, optimizer, position):
        learn(self, optimizer, position)
        if position.step == 1:
            for parameter in self.student.parameters():
                parameter.data.fill_(torch.nan)

    monkeypatch.setattr(Recovery, "_learn", run_away)
    model = classifier()
    outcome = Recovery(sp.prune(model, 0.5), model, inputs()).run(steps=160)
    assert outcome.after.damage < outcome.before.damage
    assert all(tensor.isfinite().all() for tensor in weights(outcome.model).values())


@pytest.mark.parametrize("killed_at", [3, 11, 25])
def test_a_killed_recovery_resumes_to_the_same_weights(tmp_path, monkeypatch, killed_at):
    model = classifier()
    small, state = sp.prune(model, 0.8, RANDOM), tmp_path / "state"
    expected = Recovery(small, model, inputs()).run(steps=30)
    assert expected.steps == 30

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_learn", killing_at(killed_at))
        with pytest.raises(Killed):
            Recovery(small, model, inputs()).run(steps=30, state=state)
    outcome = Recovery(small, model, inputs()).run(steps=30, state=state)
    assert same(outcome.model, expected.model)
    assert (outcome.before, outcome.after, outcome.steps) == (expected.before, expected.after, expected.steps)
    again = Recovery(small, model, inputs()).run(steps=30, state=state)  # a finished one has nothing left to do
    assert same(again.model, expected.model)
    with pytest.raises(sp.InputError, match="another recovery"):
        Recovery(small, model, inputs(), seed=1).run(steps=30, state=state)


def test_a_complex_parameter_survives_a_kill(tmp_path):
    torch.manual_seed(0)
    model = s5_package().S5(2, 16)
    small, state = sp.prune(model, 0.5), tmp_path / "state"
    expected = Recovery(small, model, inputs()).run(steps=8, state=state)
    assert same(Recovery(small, model, inputs()).run(steps=8, state=state).model, expected.model)


def test_a_seed_decides_and_the_given_models_stay_unchanged(monkeypatch):
    monkeypatch.setattr(module, "PACE", 40)  # few steps for the time, which a busy machine can take as well
    model = classifier()
    small = sp.prune(model, 0.8, RANDOM)
    before, whole = copy.deepcopy(small), copy.deepcopy(model)
    small.train()
    first, second = (sp.recover(small, model, inputs(), minutes=0.2, seed=3) for _ in range(2))
    assert same(first, second)
    assert not same(first, Recovery(small, model, inputs(), seed=4).run(0.2).model)
    assert same(small, before)
    assert same(model, whole)
    assert small.training
    assert first.training


@pytest.mark.parametrize(("length", "size"), [(100, 32), (1024, 32), (2048, 16), (8000, 8), (16_000, 8)])
def test_batches_of_long_sequences_are_smaller(length, size):
    learnt, held_out = batches([torch.zeros(320, length, 1)], seed=0)
    assert {len(batch.x) for batch in learnt} == {len(batch.x) for batch in held_out} == {size}


def padded(count=96, length=64):
    """Sequences of many lengths, with something in the padding that nobody may look at."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, length + 1, (count,), generator=generator)
    return sp.Sequences(torch.randn(count, length, 2, generator=generator), lengths)


def test_sequences_are_batched_by_length_without_their_padding():
    data = padded(256)
    parts = batches([data], seed=0, padded=False)
    cut = [batch for part in parts for batch in part]
    rows = [x[:length] for batch in cut for x, length in zip(*batch, strict=True)]
    expected = [x[:length] for x, length in zip(*data, strict=True)]
    assert sorted(row.flatten().tolist() for row in rows) == sorted(row.flatten().tolist() for row in expected)
    steps, used = sum(batch.x.shape[0] * batch.x.shape[1] for batch in cut), int(data.lengths.sum())
    assert used <= steps < 0.8 * data.x.shape[0] * data.x.shape[1]
    held_out = torch.cat([batch.lengths for batch in parts[1]])
    assert len(held_out) == 26  # of 256, and of all lengths
    assert held_out.min() < 20
    assert held_out.max() > 44
    held = {storage.data_ptr(): storage.nbytes() for storage in (batch.x.untyped_storage() for batch in cut)}
    assert sum(held.values()) == 4 * 2 * steps  # padding is not held either


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("padding", ["cut", "seen"])
def test_padding_is_left_out_where_answers_do_not_depend_on_it(bidirectional, padding):
    torch.manual_seed(0)
    config = Config("s5", 2, 3, width=6, states=(12, 12), bidirectional=bidirectional, padding=padding)
    model, data = Classifier(config).eval(), padded()
    trial = Recovery(sp.prune(model, 0.8), model, [data])
    seen = bidirectional and padding == "seen"
    held = [(sequences, answers) for sequences, answers in trial.held_out]
    held += [(batch, model(*batch)) for batch in trial.batches]
    assert all(batch.x.shape[1] == 64 for batch, _ in held) == seen
    by_content = {tuple(x[0].tolist()): (x, length) for x, length in zip(*data, strict=True)}
    for batch, answers in held:  # the slow twin: each sequence as it came, with its padding
        whole = [by_content[tuple(x[0].tolist())] for x in batch.x]
        as_given = model(torch.stack([x for x, _ in whole]), torch.stack([length for _, length in whole]))
        torch.testing.assert_close(answers, as_given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_lengths", [False, True])
def test_partners_stay_together_and_are_judged_together(with_lengths):
    torch.manual_seed(0)
    config = Config("s5", 2, 3, width=6, states=(12, 12), retrieval=True, pooling="last")
    model, (x, lengths) = Classifier(config).eval(), padded()
    ends = lengths.split(32) if with_lengths else [None] * 3
    data = [sp.Sequences(*of) for of in zip(x.split(32), ends, strict=True)]
    given = [
        (a[0].tolist(), b[0].tolist(), y.tolist())
        for batch in data
        for a, b, y in zip(*batch.x.split(16), model(*batch), strict=True)
    ]
    trial = Recovery(sp.prune(model, 0.8), model, data)
    seen = [(batch, answer_together(model, batch)) for batch in trial.batches] + trial.held_out
    found = [
        (a[0].tolist(), b[0].tolist(), y.tolist())
        for batch, answers in seen
        for a, b, y in zip(batch.x[::2], batch.x[1::2], answers, strict=True)
    ]
    for before, after in zip(sorted(given), sorted(found), strict=True):
        assert before[:2] == after[:2]
        assert before[2] == pytest.approx(after[2], rel=1e-4, abs=1e-5)


def answer_together(model, batch):
    """A slow twin: each pair by itself."""
    pairs = range(0, len(batch.x), 2)
    return torch.cat([model(*batch.rows(slice(first, first + 2))) for first in pairs])


def test_time_is_limited():
    model = classifier()
    outcome = Recovery(sp.prune(model, 0.8), model, inputs()).run(minutes=1e-9, steps=50)
    assert outcome.steps == 1


def test_a_narrow_model_takes_more_steps_in_the_same_minutes():
    """With half of all there are 1 / (0.3 + 0.7 / 2) times as many steps: only the teacher costs what it did."""
    model, data = classifier(), inputs()
    full, half = (
        Recovery(sp.prune(model, 0.5, width=width, data=data), model, data).planned_steps(2) for width in (0, 0.5)
    )
    wide = Recovery(sp.prune(model, 0, width=0.5, data=data), model, data).planned_steps(2)
    assert full == wide == 180 * 2 * 4  # all features, or all states
    assert half == round(full / 0.65)


def test_a_slow_machine_takes_fewer_steps_and_ends_in_time(monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(seconds)))  # a step a second
    rates = []
    monkeypatch.setattr(module, "one_cycle", lambda share: rates.append(share) or 0.1)
    model = classifier()
    outcome = Recovery(sp.prune(model, 0.8), model, inputs(10)).run(minutes=1)
    assert outcome.finished
    assert 55 <= outcome.steps <= 61
    assert outcome.seconds <= 61
    assert rates[-1] > 0.95


@pytest.mark.parametrize("seed", range(6))
def test_a_nearly_undamaged_model_is_accepted(seed):
    torch.manual_seed(seed)
    model = Classifier(Config("s5", 2, 3, width=8, states=(16, 16))).eval()
    small = sp.prune(model, 0.1, data=inputs())
    outcome = Recovery(small, model, inputs()).run(steps=2)
    assert 0 <= outcome.after.damage <= outcome.before.damage


def test_a_model_with_a_single_output_is_no_classifier():
    torch.manual_seed(0)
    model = Classifier(Config("s5", 2, 1, width=8, states=(8, 8), pooling="none")).eval()
    outcome = Recovery(sp.prune(model, 0.8), model, inputs()).run(steps=40)
    assert outcome.before.agreement is None
    assert outcome.after.damage < outcome.before.damage


def test_padding_teaches_nothing():
    model = classifier()
    small = sp.prune(model, 0.8)
    lengths = torch.arange(16) + 20

    def padded(value):
        batches = inputs()
        for x in batches:
            x[torch.arange(40) >= lengths[:, None]] = value
        return [sp.Sequences(x, lengths) for x in batches]

    zeros, tens = (Recovery(small, model, padded(value)).run(steps=10) for value in (0.0, 10.0))
    assert zeros.before == tens.before
    assert same(zeros.model, tens.model)


def test_what_cannot_be_recovered_is_refused():
    model = classifier()
    other = Classifier(Config("s5", 2, 4, width=6, states=(12, 12)))
    with pytest.raises(sp.InputError, match="answers"):
        Recovery(other, model, inputs())
    with pytest.raises(sp.InputError, match="four sequences"):
        Recovery(sp.prune(model, 0.5), model, [torch.zeros(2, 5, 2)])
    with pytest.raises(sp.InputError, match="all, states"):
        Recovery(sp.prune(model, 0.5), model, inputs(), what="some")
    with pytest.raises(sp.InputError, match="minutes"):
        sp.recover(sp.prune(model, 0.5), model, inputs(), minutes=0)
    with pytest.raises(sp.InputError, match="from 1 on"):
        Recovery(sp.prune(model, 0.5), model, inputs()).run(steps=0)
    with pytest.raises(sp.InputError, match="not finite"):
        Recovery(sp.prune(model, 0.5), model, [x * float("nan") for x in inputs()])
    with torch.inference_mode(), pytest.raises(sp.InputError, match=r"outside torch\.inference_mode"):
        sp.recover(sp.prune(model, 0.5), model, inputs())


def test_gradients_are_switched_on_where_they_are_needed():
    model = classifier()
    small = sp.prune(model, 0.5)
    with torch.no_grad():
        inside = Recovery(small, model, inputs()).run(steps=20)
    assert inside.after.damage < inside.before.damage
    assert same(inside.model, Recovery(small, model, inputs()).run(steps=20).model)


def test_the_history_of_a_recovery_is_reproducible(tmp_path):
    model = classifier()
    small = sp.prune(model, 0.7, RANDOM)
    one, two = (Recovery(small, model, inputs()).run(steps=10) for _ in range(2))
    for number, outcome in enumerate((one, two)):
        sp.save(outcome.model, tmp_path / str(number))
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    pruned, recovered = sp.load(tmp_path / "0").history
    assert pruned.startswith("pruned by random at 75%")
    assert recovered == f"recovered: {one.summary}"
    assert "damage repaired in 10 steps" in recovered
    assert small.history == (pruned,)
    tiny = sp.quantize(small, 8)
    assert Recovery(tiny, model, inputs()).run(steps=10).model.history[-1].endswith(", in floats again")
    with pytest.warns(UserWarning, match="Recovery: the model answers as the whole one does; it needs none"):
        same_as_before = sp.recover(model, model, inputs(), minutes=0.01)
    assert same_as_before.history[-1].startswith("recovered: the model answers as the whole one does")
