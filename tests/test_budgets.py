"""Budgets hold for the model that is returned, alone and together."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, ttest_1samp

import ssmprune as sp
from calibrated import KINDS, kinds, model
from ssmprune import budgets
from ssmprune.budgets import certify_model, energy_lost_by_model, search
from ssmprune.calibration.record import labelled_batches, right_answers
from ssmprune.models.checkpoint import stored_bytes
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning.certificates import energy_lost_by_plan

pytestmark = pytest.mark.filterwarnings("ignore:max_loss counts right answers on:UserWarning")


def accuracy(batches, net):
    return right_answers(labelled_batches(batches), net).mean()


def returned(net, budget, x, method):
    """What `prune` returns, as a plan whose C and D are those of the returned model, and the work."""
    work = sp.Pruning(net, method, data=[x])
    plan = search([budget], work).plan
    small = sp.prune(net, budget, method, data=[x])
    for name, tensor in work.shrink(plan).state_dict().items():
        assert torch.equal(tensor, small.state_dict()[name])
    return work, plan, small


def energy(work, plan):
    """The largest share of its output's energy that a layer loses on the data, by simulation of every sequence."""
    before, after = work.systems, plan.apply(work.systems)
    inputs = {}
    for path in before:
        work.model.get_submodule(path).register_forward_hook(lambda _, u, y, path=path: inputs.update({path: u[0]}))
    with torch.no_grad():
        work.model(torch.cat([batch.x for batch in work.batches]))
    shares = []
    for path, system in before.items():
        u = inputs[path].numpy()
        y = np.stack([system.simulate(v) for v in u])
        D = plan.D_change.get(path, np.zeros(system.outputs))
        z = np.stack([after[path].simulate(v) + D * v for v in u])
        shares.append(np.square(y - z).sum() / np.square(y).sum())
    return max(shares)


@pytest.mark.filterwarnings("ignore:Nothing was pruned")
@pytest.mark.parametrize("case", [*range(6), *(pytest.param(case, marks=pytest.mark.slow) for case in range(6, 60))])
def test_the_returned_model_keeps_its_budget(case):
    rng = np.random.default_rng(case)
    net = model(*KINDS[case % len(KINDS)])
    length = int(rng.integers(20, 60))
    x = torch.from_numpy(rng.normal(size=(int(rng.integers(4, 14)), length, 2)))
    method = [sp.SURGEON, sp.LAST][int(rng.integers(2))]
    share = float(10 ** rng.uniform(-3, -0.3))
    if case % 3 == 0:
        work, plan, _ = returned(net, sp.max_energy(share), x, method)
        assert energy(work, plan) <= share + 1e-9
    elif case % 3 == 1:
        work, plan, _ = returned(net, sp.max_gain(share), x, method)
        assert all(layer.exact <= (share + 1e-9) * layer.gain for layer in sp.certify(plan, work.systems).values())
    else:
        most = float(rng.uniform(0.6, 1.0)) * budgets.megabytes_of(net)
        _, _, small = returned(net, sp.max_memory(most), x, method)
        assert sum(tensor.nbytes for tensor in small.state_dict().values()) <= 1e6 * most


def labelled(net, count=30):
    x = torch.randn(count, 40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return [(x, net(x).argmax(-1))]


def test_several_budgets_hold_at_once():
    net = model("s4d")
    size, data = budgets.megabytes_of(net), labelled(net)
    alone = sp.prune(net, sp.max_loss(10, data))
    both = sp.prune(net, [sp.max_loss(10, data), sp.max_memory(size)])
    assert both.config.states == alone.config.states
    x, y = data[0]
    with torch.no_grad():
        assert (both(x).argmax(-1) == y).double().mean() >= 0.9
    smaller, most = sp.prune(net, [sp.max_energy(0.5), sp.max_gain(0.2)]), 0.9 * size
    work = sp.Pruning(net)
    ratios = [search([budget], work).ratio for budget in (sp.max_energy(0.5), sp.max_gain(0.2))]
    assert sum(smaller.config.states) == sum(work.shrink(work.plan(min(ratios))).config.states)
    fast = sp.prune(net, [sp.max_memory(most), sp.max_latency(60_000, x)])
    assert budgets.megabytes_of(fast) <= most
    with pytest.raises(sp.InputError, match="max_energy and max_memory cannot be kept together: as far as max_energy"):
        sp.prune(net, [sp.max_energy(1e-9), sp.max_memory(most)])
    with pytest.raises(sp.InputError, match=r"Several budgets are a list.*one of them is 0\.5"):
        sp.prune(net, [sp.max_memory(most), 0.5])


def test_a_loss_says_what_was_reached_on_how_many_examples():
    net = model("s5")
    work = sp.Pruning(net)
    found = search([sp.max_loss(10, labelled(net))], work)
    reached = accuracy(labelled(net), work.shrink(work.plan(found.ratio)))
    assert reached >= 0.9
    (note,) = found.notes
    low, high = (100 * end for end in budgets.wilson_interval(reached, 30))
    sure = f"({low:.1f} to {high:.1f} % with 95 % confidence, on 30 examples)"
    assert note.endswith(f"accuracy {reached:.2%} {sure} after 100.00%")


def test_labels_may_come_with_padded_sequences():
    net = model("s5", bidirectional=True)
    ((x, _),) = labelled(net)
    padded = sp.Sequences(x, torch.full((30,), 20))
    with torch.no_grad():
        y = net(*padded).argmax(-1)
    assert accuracy([(padded, y)], net) == 1


@pytest.mark.parametrize("data", [[], [torch.zeros(3, 4, 2)], [sp.Sequences(torch.zeros(3, 4, 2), torch.ones(3))]])
def test_a_loss_needs_labels(data):
    with pytest.raises(sp.InputError, match="max_loss counts right answers"):
        sp.max_loss(1, data)


def test_the_interval_is_wilsons():
    assert [round(100 * end, 1) for end in budgets.wilson_interval(1.0, 10)] == [72.2, 100.0]


def test_energy_is_measured_after_the_refit(monkeypatch):
    """The re-fit in sequence costs energy that the plan before it does not know of."""
    net = model("s5")
    x = torch.randn(60, 40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    work = sp.Pruning(net, data=[x])
    plan = search([sp.max_energy(0.05)], work).plan
    assert max(energy_lost_by_plan(plan, work.systems, work.moments).values()) <= 0.05 + 1e-9


@kinds
@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize("method", [sp.LAST, sp.SURGEON])
def test_what_a_model_loses_is_what_its_plan_loses(family, bidirectional, delay, with_data, method):
    """The states of both models side by side give what the plan gives, which knows that they are the same."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 30, 2)))
    work = sp.Pruning(model(family, bidirectional, delay), method, data=[x] if with_data else None)
    plan = work.plan(0.5)
    small = work.shrink(plan)
    lost, certificates = (
        energy_lost_by_plan(plan, work.systems, work.moments),
        sp.certify(plan, work.systems, work.moments),
    )
    found, seen = energy_lost_by_model(work, small), certify_model(work, small)
    assert max(lost.values()) > 0
    for path in work.systems:
        assert np.isclose(found[path], lost[path], rtol=1e-6, atol=1e-9)
        assert np.isclose(seen[path].exact, certificates[path].exact, rtol=1e-5)
        assert seen[path].gain == certificates[path].gain
        assert seen[path].bound >= seen[path].exact * (1 - 1e-6)
        if with_data:
            assert np.isclose(seen[path].measured, certificates[path].measured, rtol=1e-4, atol=1e-6)
        else:
            assert seen[path].measured is None


def rounded(bits):
    return lambda small, batches: sp.quantize(small, bits, data=batches, sequences=None)


@pytest.mark.parametrize("bits", [8, 4])
def test_bytes_are_those_of_the_file(bits, tmp_path):
    small = rounded(bits)(model("s5"), None)
    sp.save(small, tmp_path / "small.safetensors")
    header = int.from_bytes((tmp_path / "small.safetensors").read_bytes()[:8], "little")
    assert stored_bytes(small) == (tmp_path / "small.safetensors").stat().st_size - 8 - header


def test_a_budget_of_memory_counts_what_rounding_saves():
    net = model("s5").float()
    at_eight_bits = budgets.megabytes_of(sp.quantize(net, 8))
    work = sp.Pruning(net)
    unpruned = search([sp.max_memory(1.01 * at_eight_bits)], work, rounded(8))
    assert unpruned.ratio == 0
    assert "holds without pruning" in unpruned.notes[0]
    found = search([sp.max_memory(0.9 * at_eight_bits)], work, rounded(8))
    assert 0 < found.ratio < search([sp.max_memory(0.9 * at_eight_bits + 1e-9)], work).ratio
    assert budgets.megabytes_of(found.model) <= 0.9 * at_eight_bits


@pytest.mark.parametrize("width", [0, "auto"])
def test_a_budget_of_memory_counts_what_a_re_fit_takes_off_the_grid(width):
    net = sp.quantize(model("s5").float(), 8)
    data = [x.float() for x, _ in labelled(model("s5"))]
    limit = 0.99 * budgets.megabytes_of(net)
    found = search([sp.max_memory(limit)], sp.Pruning(net, data=data, width=width))
    assert budgets.megabytes_of(found.model) == found.values[next(iter(found.values))] <= limit


def test_budgets_of_energy_gain_and_loss_count_what_rounding_costs():
    net = model("s5").float()
    data = [(x.float(), labels) for x, labels in labelled(model("s5"))]
    work = sp.Pruning(net)
    for budget in (sp.max_energy(0.2), sp.max_gain(0.3), sp.max_loss(10, data)):
        found = search([budget], work, rounded(4))
        value = budget.measure(found.model, work)
        assert 0 <= value <= budget.limit
        assert value == found.values[budget]
        if budget.name != "max_loss":  # which counts few answers
            assert value > budget.measure_plan(found.plan, work) >= 0
    with pytest.raises(sp.InputError, match="max_energy 1e-09 cannot be kept: without any pruning"):
        search([sp.max_energy(1e-9)], work, rounded(4))


def test_a_model_that_breaks_a_budget_after_all_is_found_out():
    net = model("s5")
    work = sp.Pruning(net)
    found = search([sp.max_energy(0.7), sp.max_memory(1)], work)
    assert found.ratio > 0
    other = work.shrink(found.plan)
    assert found.remeasure(other).broken == []
    assert found.remeasure(other).notes == found.notes
    with torch.no_grad():
        other.layers[0].ssm.pole_re += 3.0
    (broken,) = found.remeasure(other).broken
    assert broken.startswith("max_energy 0.7: came to ")
    assert float(broken.split("came to ")[1]) > 0.7


def answered(pooling="mean"):
    """A classifier in training mode, inputs, and what it answers to them in evaluation mode."""
    torch.manual_seed(0)
    net = Classifier(Config("s5", 2, 3, width=8, states=(8, 8), pooling=pooling)).eval()
    x = torch.randn(20, 30, 2)
    with torch.no_grad():
        return net.train(), x, net.eval()(x).argmax(-1)


def test_answers_at_every_step_are_counted_without_padding():
    net, x, labels = answered("none")
    assert accuracy([(x, labels)], net) == 1.0
    lengths = torch.arange(11, 31)
    padding = torch.arange(30) >= lengths[:, None]
    wrong = torch.where(padding, 2 - labels, labels)
    assert accuracy([(sp.Sequences(x, lengths), wrong)], net) == 1.0
    wrong[0, 0] = (wrong[0, 0] + 1) % 3
    assert accuracy([(sp.Sequences(x, lengths), wrong)], net) == pytest.approx(1 - 1 / int(lengths.sum()))


def test_labels_that_do_not_go_with_the_answers_are_refused():
    net, x, labels = answered()
    with pytest.raises(sp.InputError, match=r"labels of shape \(20, 1\) do not go with answers of shape \(20,\)"):
        accuracy([(x, labels[:, None])], net)


def test_validation_data_may_be_arrays_of_any_precision_and_batches_empty():
    net, x, labels = answered()
    for given in (x.numpy(), x.double(), x.double().numpy()):
        assert accuracy([(given, labels.numpy()), (given[:0], labels[:0])], net) == 1.0


def test_measuring_leaves_every_part_of_a_model_in_its_mode():
    net, x, labels = answered()
    net.train()
    net.layers[0].eval()
    modes = [module.training for module in net.modules()]
    sp.prune(net, [sp.max_loss(50, [(x, labels)]), sp.max_latency(1e6, x)])
    assert [module.training for module in net.modules()] == modes


def test_budgets_that_are_all_kept_are_all_noted():
    found = search([sp.max_energy(0.1), sp.max_gain(0.2), sp.max_memory(1), sp.max_gain(0.3)], sp.Pruning(model("s5")))
    assert [(budget.name, budget.limit) for budget in found.values] == [
        ("max_energy", 0.1),
        ("max_gain", 0.2),
        ("max_memory", 1),
        ("max_gain", 0.3),
    ]
    assert found.broken == []


def test_a_budget_of_ones_own_is_a_subclass():
    class MostStates(sp.Budget):
        name, unit, grows_with_ratio = "most_states", "states", False

        def measure(self, model, pruning):
            return sum(model.config.states)

    assert sum(sp.prune(model("s5"), MostStates(7)).config.states) == 7
    with pytest.raises(sp.InputError, match="cannot reach 1 states: without its states the model has 2"):
        sp.prune(model("s5"), MostStates(1))


def test_of_several_budgets_those_that_allow_pruning_say_so():
    work = sp.Pruning(sp.S5Layer(2, 10))
    goals = [sp.max_energy(0.0), sp.max_gain(100.0)]
    for order in (goals, goals[::-1]):
        notes = search(order, work).notes
        assert sorted(notes) == ["max_energy 0 allows no pruning", "max_gain 100 by itself allows more"]


def test_an_error_is_that_of_the_answers_to_held_out_inputs():
    net = model("s5")
    x = torch.randn(50, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = search([sp.max_error(0.01)], sp.Pruning(net, data=[x]))
    (value,) = found.values.values()
    held_out = torch.arange(50) // 2 % 5 == 4
    with torch.no_grad():
        wanted, given = net(x[held_out]), found.model(x[held_out])
    assert value == pytest.approx(float((given - wanted).square().sum() / wanted.square().sum()))
    assert 0 < value <= 0.01
    assert found.notes == [f"max_error 0.01: came to {value:.3g} of the answers' energy on 10 held-out sequences"]
    assert found.plan.sequences == 40
    changed = torch.where(held_out[:, None, None], 0, x)  # what is held out has no say in the pruning
    assert sp.Pruning(net, data=[changed[~held_out]]).plan(found.ratio).C.keys() == found.plan.C.keys()
    for path, C in sp.Pruning(net, data=[changed[~held_out]]).plan(found.ratio).C.items():
        assert np.array_equal(C, found.plan.C[path])


def test_an_error_may_have_inputs_of_its_own_and_no_calibration_data():
    net, x = model("s4d"), torch.randn(6, 30, 2, dtype=torch.float64)
    for data in (None, [torch.randn(8, 30, 2, dtype=torch.float64)]):
        small = sp.prune(net, sp.max_error(0.02, [x]), data=data)
        with torch.no_grad():
            assert (small(x) - net(x)).square().sum() <= 0.02 * net(x).square().sum()
    assert sum(small.config.states) < sum(net.config.states)


class Sensor(torch.nn.Module):
    """A model that does not classify, whose answer is one of several tensors, at each step."""

    def __init__(self, answers=lambda y: (y, "more")):
        super().__init__()
        self.ssm, self.answers = sp.S5Layer(2, 12), answers

    def forward(self, x):
        return self.answers(self.ssm(x))


@pytest.mark.filterwarnings("ignore:Nothing was pruned")
def test_an_error_needs_no_classes_but_a_tensor():
    torch.manual_seed(0)
    x = torch.randn(12, 30, 2)
    net = Sensor()
    small = sp.prune(net, sp.max_error(0.05), data=[x])
    assert len(small.ssm.pole_re) < 12
    held_out = x[torch.arange(12) // 2 % 2 == 1]
    with torch.no_grad():
        wanted, given = net(held_out)[0], small(held_out)[0]
    assert (given - wanted).square().sum() <= 0.05 * wanted.square().sum()
    with pytest.raises(sp.InputError, match="max_error compares answers that are tensors; Sensor gives others"):
        sp.prune(Sensor(lambda y: "nothing"), sp.max_error(0.05, [x]))
    for data in (None, [x[:1]]):
        with pytest.raises(sp.InputError, match="give at least two sequences as data"):
            sp.prune(net, sp.max_error(0.05), data=data)
    silent = Sensor(lambda y: 0 * y)
    assert len(sp.prune(silent, sp.max_error(0, [x])).ssm.pole_re) == 1
    with pytest.raises(sp.InputError, match="share of the energy of a model's answers, from 0; got -1"):
        sp.max_error(-1)


def test_a_loss_has_a_bound_and_says_on_what_it_rests():
    net, work = model("s5"), sp.Pruning(model("s5"))
    data = labelled(net, 300)
    budget = sp.max_loss(5, data)
    found = search([budget], work)
    (value,) = found.values.values()
    right, (note,) = partial(right_answers, data), found.notes
    measured = 100 * (right(net).mean() - right(found.model).mean())
    assert 0 <= measured < value <= 5
    assert value == 100 * budgets.loss_bound(right(net), right(found.model), 0.9)
    assert note.startswith(f"max_loss 5: came to {measured:.3g} points, at most {value:.3g} with 90 % confidence, acc")
    surer = search([sp.max_loss(5, data, confidence=0.999)], work)
    only_measured = search([sp.max_loss(5, data, confidence=None)], work)
    assert surer.ratio <= found.ratio <= only_measured.ratio
    assert "confidence, accuracy" not in only_measured.notes[0]


def test_what_bounds_a_loss_says_when_it_cannot():
    net, work = model("s5"), sp.Pruning(model("s5"))
    alone = partial(accuracy, labelled(net, 300))
    (note,) = search([sp.max_loss(5, alone)], work).notes
    assert note.endswith("; as measured: an accuracy alone, without single answers, allows no bound")
    with pytest.warns(UserWarning, match=r"30 examples cannot show a loss below 7.39 points, so give more"):
        sp.prune(net, sp.max_loss(5, labelled(net)))
    with pytest.raises(sp.InputError, match="Losses are of the same examples"):
        search([sp.max_loss(5, lambda small: np.ones(sum(small.config.states)))], work)
    for confidence in (0.2, 1, "high"):
        with pytest.raises(sp.InputError, match=r"confidence is from 0\.5 to below 1"):
            sp.max_loss(1, alone, confidence)


def test_steps_of_a_sequence_are_no_examples_of_their_own():
    """Their answers depend on each other, so a bound counts sequences; it is then Student's."""
    net, x, labels = answered("none")
    lengths = torch.arange(11, 31)
    wrong = torch.where(torch.arange(30) < torch.arange(20)[:, None] % 7, (labels + 1) % 3, labels)
    for batch, steps in (((x, wrong), torch.full((20,), 30)), ((sp.Sequences(x, lengths), wrong), lengths)):
        right = right_answers([batch], net)
        assert np.allclose(right, (steps - torch.arange(20) % 7) / steps.double().mean())
        assert right.mean() == pytest.approx(accuracy([batch], net))
    before = np.ones(20)
    bound = budgets.loss_bound(before, right, 0.9)
    assert bound == pytest.approx(ttest_1samp(before - right, 0, alternative="less").confidence_interval(0.9).high)
    assert budgets.loss_bound(np.ones(1), np.full(1, 0.5), 0.9) == np.inf


def covered(b_rate, c_rate, n, confidence):
    """How often the bound is above the loss, exactly: a sum over all counts that occur."""
    b, c = (np.arange(*binom.interval(1 - 1e-9, n, rate) + np.array([0, 1])) for rate in (b_rate, c_rate))
    hits = total = 0.0
    for right_before in b.astype(int):
        weights = binom.pmf(right_before, n, b_rate) * binom.pmf(c, n - right_before, c_rate / (1 - b_rate))
        for right_after, weight in zip(c.astype(int), weights, strict=True):
            before, after = np.zeros(n), np.zeros(n)
            before[:right_before] = after[n - right_after :] = 1
            hits += weight * (budgets.loss_bound(before, after, confidence) >= b_rate - c_rate)
            total += weight
    return hits / total


FEW = [(rates, 30) for rates in ((0.01, 0), (0.1, 0.05), (0.2, 0.1))]  # with many examples these have too many counts


@pytest.mark.parametrize("confidence", [0.8, 0.9])
@pytest.mark.parametrize(
    ("rates", "n"), [*FEW, *((rates, 200) for rates in ((0.003, 0), (0.02, 0.01), (0.05, 0.001), (0.03, 0.03)))]
)
def test_the_bound_is_above_the_loss_as_often_as_it_says(rates, n, confidence):
    assert covered(*rates, n, confidence) >= confidence


class Simulated:
    """Models that answer at random, whose loss is known at each ratio: a point at the knee, and rising there, or flat.

    With shared luck an example that is lost at a ratio is lost at all larger ratios; else each model has luck anew.
    """

    def __init__(self, seed, shared, flat, n=2000):
        self.rng, self.shared, self.flat, self.n = np.random.default_rng(seed), shared, flat, n
        self.whole, self.luck = self.rng.random(n) < 0.9, self.rng.random((2, n))
        self.knee = self.rng.uniform(0.1, 0.9)
        self.pruning = SimpleNamespace(model=0.0, states=100)

    def lost(self, ratio):
        return 1.001 * (ratio > 0) if self.flat else (ratio / self.knee) ** 2

    def right(self, ratio):
        """Two in a hundred answers change for the better, so many and the loss for the worse."""
        if not ratio:
            return self.whole
        luck = self.luck if self.shared else self.rng.random((2, self.n))
        worse = 0.02 * ratio + self.lost(ratio) / 100
        return np.where(self.whole, luck[0] > worse / 0.9, luck[1] < 0.02 * ratio / 0.1)

    def found(self, confidence):
        budget = sp.max_loss(1, self.right, confidence)
        trials = SimpleNamespace(
            pruning=self.pruning,
            kept=lambda _, ratio: budget.allows(budget.measure(ratio, self.pruning)),
            costs_unpruned=False,
        )
        return budgets._largest([budget], trials)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_of_many_searches_at_most_one_in_ten_finds_a_model_that_loses_too_much(shared, flat):
    """Flat is the worst case: each of many ratios loses slightly too much and may be lucky."""
    searches = [Simulated(seed, shared, flat) for seed in range(300)]

    def find(confidence):
        """The mean ratio, and how many of the found models lose too much."""
        found = [(search, search.found(confidence)) for search in searches]
        return np.mean([ratio for _, ratio in found]), sum(search.lost(ratio) > 1 for search, ratio in found)

    ratio, too_much = find(0.9)
    print(f"{ratio:.2f} pruned, {too_much} of {len(searches)} lose too much; by the measured loss {find(None)[1]}")
    assert binomtest(too_much, len(searches), 0.1, alternative="greater").pvalue > 0.01
    assert flat or ratio > 0.25  # knees are at 0.5 on average
    assert find(None)[1] > 0.4 * len(searches)  # the measured loss keeps no promise


def recovered_chain(ratio, states=(8, 8), **options):
    """What a chain of recoveries that change nothing returns after a search that ended at `ratio`."""
    torch.manual_seed(0)
    net = Classifier(Config("s5", 2, 3, width=6, states=states)).eval()
    work = sp.Pruning(net, data=[torch.randn(40, 20, 2)], **options)
    budget = sp.max_loss(1, lambda small: 0.9)
    start = budgets.Found(ratio, work.plan(ratio), {budget: 0.0}, work)
    learnt = []
    return [*start.recoveries(lambda small: learnt.append(small) or small)], learnt


def test_what_is_pruned_after_a_recovery_alone_is_said_to_be_pruned():
    chain, _ = recovered_chain(0.0, width="auto")
    parameters = [sum(p.numel() for p in found.model.parameters()) for found in chain]
    assert parameters == sorted(set(parameters), reverse=True)
    assert len(parameters) == 1 + len(budgets.STRIDES)
    assert "allows no pruning" in chain[0].notes[0]
    assert all("came to" in found.notes[0] for found in chain[1:])


@pytest.mark.parametrize(
    ("ratio", "options", "states"),
    [
        (1.0, {}, [(1, 1)]),
        (0.5, {"limits": sp.Limits(round_to=8)}, [(8, 4), (4, 4)]),  # of pairs of states
        (0.25, {"limits": sp.Limits(["layers.0.ssm"], round_to=8)}, [(8, 8), (8, 4)]),
    ],
)
def test_recoveries_end_where_nothing_more_can_go(ratio, options, states):
    chain, learnt = recovered_chain(ratio, **options)
    assert [found.model.config.states for found in chain] == states
    assert len(learnt) == len(states)
