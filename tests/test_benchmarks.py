import json
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import speed
import ssmprune as sp
import subjects
from ssmprune.models.checkpoint import parameters, stored_bytes
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks import cards
from timing import Samples, peak_memory, time_in_turns
from work import multiply_adds, products

pytestmark = pytest.mark.slow

TINY = {
    "one way": Config("s5", inputs=3, outputs=2, width=6, states=(8, 8)),
    "both ways": Config("s5", inputs=3, outputs=2, width=6, states=(8, 4), bidirectional=True, activation="full_glu"),
    "every step": Config("s5", inputs=3, outputs=2, width=6, states=(8,), pooling="none", activation="gelu"),
    "tokens": Config("s5", inputs=9, outputs=2, width=6, states=(8,), tokens=True, retrieval=True, bidirectional=True),
    "s4d": Config("s4d", inputs=3, outputs=2, width=6, states=(24, 24), activation="full_glu"),
}


def subject_of(config, batch=2, length=40):
    return subjects.MeasuredModel("tiny", "random", subjects.untrained(config), batch, length)


def counted_by_torch(call):
    """Multiply-adds of the matrix products torch runs during a call, those in place as well."""
    in_place = {torch.ops.aten.addmm_: lambda result, a, b, **_: 2 * a[0] * a[1] * b[1]}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        call()
    return counter.get_total_flops() // 2


def test_multiply_adds_by_hand():
    config = Config("s5", inputs=3, outputs=5, width=7, states=(11, 13), bidirectional=True, activation="full_glu")
    assert multiply_adds(config, batch=2, length=10) == {
        "encoder": 20 * 3 * 7,
        "B u": 20 * 7 * 2 * (11 + 13),
        "C x": 20 * 2 * 7 * 2 * (11 + 13),
        "GLU": 20 * 2 * 2 * 7 * 7,
        "decoder": 2 * 7 * 5,
    }


def test_multiply_adds_of_a_convolution_by_hand():
    config = Config("s4d", inputs=1, outputs=2, width=3, states=(6,), bidirectional=True, activation="gelu")
    counts = multiply_adds(config, batch=5, length=16)
    transform = 1.25 * 32 * 5  # of 32 points, the fast length from 31
    assert counts["kernel"] == 6 * (2 * 2 * 16 + 4 * (2 + 2) * 4)
    assert counts["convolution"] == 3 * ((2 * 5 + 1) * transform + 5 * 4 * 17)


@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_the_products_counted_are_those_the_model_runs(config, monkeypatch):
    x = subject_of(config).inputs()
    expected = sum(p.rows * p.inner * p.outer for p in products(config, *x.shape[:2]))
    from products import bare_products

    assert counted_by_torch(bare_products(config, *x.shape[:2])) == expected
    if config.family == "s5":
        model = subjects.untrained(config)
        assert counted_by_torch(lambda: model(x)) == expected == sum(multiply_adds(config, *x.shape[:2]).values())


@pytest.mark.parametrize(
    ("name", "ratio", "ideal"),
    [
        ("text", 0.6, 1.71),
        ("retrieval", 0.5, 1.75),
        ("image", 0.3, 1.26),
        ("pathfinder", 0.3, 1.32),
        ("pathx", 0.3, 1.35),
    ],
)
def test_ideal_ratios_of_the_paper_sizes(name, ratio, ideal):
    size = subjects.found()[f"{name}-s5"]
    full, kept = size.config, [round(n * (1 - ratio)) for n in size.config.states]
    work = [sum(multiply_adds(config, 2, size.length).values()) for config in (full, replace(full, states=(*kept,)))]
    assert work[0] / work[1] == pytest.approx(ideal, abs=0.01)


def test_parameters_and_bytes():
    model = Classifier(Config("s5", inputs=3, outputs=2, width=5, states=(4,), activation="gelu"))
    numbers = 3 * 5 + 5 + (3 * 4 + 2 * 2 * 4 * 5 + 5) + 2 * 5 + 5 * 2 + 2
    assert parameters(model) == numbers
    assert stored_bytes(model) == 4 * (numbers + 2 * 5) + 4  # running statistics, and a mask of four bytes


def test_samples_divide_round_by_round():
    ratios = Samples((2.0, 30.0, 8.0, 5.0)) / Samples((1.0, 10.0, 2.0, 1.0))
    assert ratios.values == (2.0, 3.0, 4.0, 5.0)
    assert ratios.to_dict() == {"median": 3.5, "quartiles": [2.75, 4.25]}
    assert ratios.scaled(2).median == 7


def test_interleaving_calls_everything_in_turns():
    log = []
    times = time_in_turns({name: lambda name=name: log.append(name) for name in "abc"}, rounds=4)
    assert "".join(log) == "abc" + "abccba" * 2
    assert {name: len(time.values) for name, time in times.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(value > 0 for time in times.values() for value in time.values)
    with pytest.raises(sp.InputError, match="0"):
        time_in_turns({}, 0)


def test_peak_memory_sees_what_is_gone_afterwards():
    def allocate(megabytes):
        return lambda: torch.ones(megabytes * 250_000)

    peaks = [peak_memory(allocate(megabytes)) for megabytes in (200, 100, 0)]
    if sys.platform != "linux":
        assert peaks == [None, None, None]
    else:
        assert peaks == pytest.approx([200e6, 100e6, 0], abs=8e6)


@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_bench_is_consistent(config):
    subject = subject_of(config)
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    data = json.loads(json.dumps(speed.bench(subject, ratio=0.5, rounds=2)))
    full, masked, shrunk = (data["variants"][name] for name in ("full", "masked", "shrunk"))
    assert full["states"] == masked["states"] == 2 * shrunk["states"] == sum(config.states)
    assert full["bytes"] == masked["bytes"] > shrunk["bytes"]
    assert full["parameters"] == masked["parameters"] > shrunk["parameters"]
    assert full["multiply_adds_per_step"] / shrunk["multiply_adds_per_step"] == pytest.approx(data["ideal_speed"])
    assert data["ideal_speed"] > 1
    kinds = {"evaluation", "training"} | (set() if config.bidirectional else {"streaming"})
    for variant in (full, masked, shrunk):
        assert variant["seconds"].keys() == variant["speed"].keys() == kinds
        for figure in (*variant["seconds"].values(), *variant["speed"].values()):
            low, high = figure["quartiles"]
            assert 0 < low <= figure["median"] <= high
    assert all(speed["median"] == 1 for speed in full["speed"].values())
    assert all(torch.equal(before[name], tensor) for name, tensor in subject.model.state_dict().items())
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    figures = [row[""] for row in speed.rows(data)]
    assert {f"{kind}, ms" for kind in kinds} < set(figures)


def test_the_peer_is_compared_where_it_is_installed(monkeypatch):
    import peers

    shape = {"layers": 2, "batch": 2, "length": 9, "rounds": 1}
    if peers.s5_pytorch():
        found = peers.compare(4, 3, **shape)
        for kind in ("evaluation", "training", "streaming"):
            seconds, faster = found[kind]["seconds"], found[kind]["ours_is_faster"]
            assert seconds.keys() == {"ours"} | faster.keys()
            ratio = seconds["theirs"]["median"] / seconds["ours"]["median"]
            assert faster["theirs"]["median"] == pytest.approx(ratio)
        assert "streaming" not in peers.compare(4, 3, **shape, bidirectional=True)
    monkeypatch.setattr(peers, "s5_pytorch", lambda: None)
    assert peers.compare(4, 3, **shape) is None


def test_subjects():
    found = subjects.found()
    assert {"smnist-s5", "text-s5", "image-s4d", "pathx-s4d"} <= found.keys()
    full = subjects.subject("smnist-s5")
    assert (full.batch, full.length, full.model.config) == (50, 784, found["smnist-s5"].config)
    cut = subjects.subject("listops-s5", length=10_000)
    assert (cut.batch, cut.length) == (4, 10_000)
    assert subjects.subject("retrieval-s5", batch=3, length=5).inputs().shape == (6, 5)
    with pytest.raises(sp.InputError, match=r"'image-s6'.*image-s5.*image-s4d"):
        subjects.subject("image-s6")
    with pytest.raises(sp.InputError, match="not 0 of 784"):
        subjects.subject("smnist-s5", batch=0)


def test_a_checkpoint_is_measured_at_the_length_its_card_tells(tmp_path):
    file = tmp_path / "model.safetensors"
    sp.save(Classifier(Config("s5", inputs=136, outputs=2, width=4, states=(2,), tokens=True)), file)
    assert subjects.subject(str(file)).length == subjects.UNKNOWN_LENGTH
    cards.write_card(file, {"task": "text", "task_parameters": {"length": 300}})
    assert subjects.subject(str(file)).length == 300


@pytest.fixture
def bench(capsys):
    """Run `python benchmarks/speed.py`, and undo its process-wide switches."""
    threads = torch.get_num_threads()

    def run(*arguments):
        speed.main(list(map(str, arguments)))
        return capsys.readouterr().out

    yield run
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)


def test_command_line(bench, tmp_path):
    path = tmp_path / "model.safetensors"
    sp.save(subjects.untrained(TINY["one way"]), path)
    options = ["--ratio", 0.25, "--batch", 2, "--length", 30, "--rounds", 1, "--threads", 1]
    data = json.loads(bench(path, *options, "--json"))
    assert (data["weights"], data["batch"], data["length"], data["threads"]) == ("trained", 2, 30, 1)
    assert data["variants"]["shrunk"]["states"] == 12
    assert "ideal" in bench("listops-s5", *options)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["smnist"], "smnist-s5"), (["smnist-s5", "--ratio", 2], "2"), (["."], "'.'")],
)
def test_command_line_refuses(bench, arguments, named, capsys):
    with pytest.raises(SystemExit) as leave:
        bench(*arguments, "--length", 4, "--batch", 1)
    out, err = capsys.readouterr()
    assert (leave.value.code, out) == (2, "")
    assert named in err
