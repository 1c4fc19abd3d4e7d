import dataclasses
import json
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune import budgets, tasks
from ssmprune.budgets import certify_model, energy_lost_by_model, search
from ssmprune.cli import deploying
from ssmprune.cli.output import Report, table
from ssmprune.cli.verbs import VERBS, app
from ssmprune.deploy import build
from ssmprune.deploy.compiled import forward
from ssmprune.models.checkpoint import parameters, stored_bytes
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.models.costs import operations
from ssmprune.sweeps import approaches
from ssmprune.tasks import cards
from ssmprune.training import evaluate
from toy import TOY


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("cli") / "model.safetensors"
    sp.save(Classifier(Config("s5", inputs=3, outputs=2, width=6, states=(8, 8))), path)
    return path


def test_a_plan_is_written_and_replayed(ssmprune, checkpoint, tmp_path):
    plan, small, direct = (tmp_path / name for name in ("plan.safetensors", "small.safetensors", "direct.safetensors"))
    planned = ssmprune("prune", checkpoint, "--ratio", 0.5, "--plan", plan, "--json")
    assert json.loads(planned.stdout)["layers"][-1] == {"layer": "total", "states": 32, "kept": 16, "pruned": 0.5}
    assert list(tmp_path.iterdir()) == [plan]
    replayed = ssmprune("prune", checkpoint, "--from-plan", plan, "--out", small)
    assert replayed.returncode == 0
    assert "Operations of a step: " in replayed.stdout
    again = tmp_path / "again.safetensors"
    assert ssmprune("prune", checkpoint, "--ratio", 0.5, "--out", direct, "--plan", again).returncode == 0
    assert again.read_bytes() == plan.read_bytes()
    for name, tensor in sp.load(small).state_dict().items():
        assert torch.equal(tensor, sp.load(direct).state_dict()[name])
    assert sum(sp.load(small).config.states) == 8


def test_calibration_makes_the_surgeon_prune(ssmprune, checkpoint, tmp_path):
    inputs, small = tmp_path / "inputs.npy", tmp_path / "small.safetensors"
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    result = ssmprune("prune", checkpoint, "--ratio", 0.5, "--calibrate", inputs, "--out", small, "--json")
    facts = json.loads(result.stdout)
    assert (facts["method"], facts["sequences"]) == ("surgeon", 4)
    x = torch.from_numpy(np.load(inputs)).float()
    with torch.no_grad():
        full, calibrated = sp.load(checkpoint)(x), sp.load(small)(x)
        plain = sp.prune(sp.load(checkpoint), 0.5)(x)
    assert (calibrated - full).norm() < 0.5 * (plain - full).norm()


def test_without_a_compiler_pruning_reports_no_speed(ssmprune, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    words = ("prune", checkpoint, "--ratio", 0.5, "--out", tmp_path / "small.safetensors")
    assert json.loads(ssmprune(*words, "--json").stdout)["steps_per_second"] is None
    shown = ssmprune(*words).stdout
    assert "Operations of a step" in shown
    assert "per second" not in shown


@pytest.mark.parametrize("retrieval", [False, True])
def test_a_model_that_hardly_needs_its_states_is_noted(ssmprune, checkpoint, tmp_path, retrieval):
    """Where the layers' C is next to nothing, what passes by D and around them stays."""
    path, inputs, model = tmp_path / "idle.safetensors", tmp_path / "inputs.npy", sp.load(checkpoint)
    if retrieval:
        model = Classifier(dataclasses.replace(model.config, retrieval=True)).eval()
    np.save(inputs, np.random.default_rng(0).normal(size=(20, 30, 3)))
    for layer in model.layers:
        layer.ssm.C.data *= 1e-3
    sp.save(model, path)
    words = ("--ratio", 0.5, "--calibrate", inputs, "--out", tmp_path / "small.safetensors")
    said = "With a single pair of states in each layer"
    assert said in ssmprune("prune", path, *words).stdout
    assert json.loads(ssmprune("prune", path, *words, "--json").stdout)["kept_by_one_pair"] > 0.95
    for layer in model.layers:
        layer.ssm.C.data *= 1e5
    sp.save(model, path)
    assert said not in ssmprune("prune", path, *words).stdout


@pytest.mark.parametrize(
    "config",
    [
        Config("s5", inputs=3, outputs=2, width=6, states=(8, 8)),
        Config("s4d", inputs=9, outputs=2, width=6, states=(8, 8), tokens=True, retrieval=True, activation="full_glu"),
    ],
    ids=["s5", "s4d of tokens and pairs"],
)
@pytest.mark.parametrize("bits", [None, 8])
def test_inspect_says_what_pruning_can_save(config, bits, ssmprune, tmp_path):
    model = Classifier(config).eval()
    sp.save(model if bits is None else sp.quantize(model, bits), tmp_path / "model.safetensors")
    facts = json.loads(ssmprune("inspect", tmp_path / "model.safetensors", "--json").stdout)
    parts, shares = {row["part"]: row for row in facts["parts"]}, facts["shares"]
    assert list(parts) == ["encoder", "norms", "B", "recurrence", "C", "D", "gates", "head"]
    assert sum(row["bytes"] for row in parts.values()) == stored_bytes(sp.load(tmp_path / "model.safetensors"))
    assert sum(row["operations"] for row in parts.values()) == operations(config)
    assert {name for name, row in parts.items() if row["states"]} == {"B", "recurrence", "C"}
    expected = sum(parts[name]["operations"] for name in ("B", "recurrence", "C")) / operations(config)
    assert shares["states"]["operations"] == pytest.approx(expected)
    shown = " ".join(ssmprune("inspect", tmp_path / "model.safetensors").stdout.split())
    assert f"{expected:.0%} of the operations go with the states (--ratio)" in shown
    assert "Steps remembered: until a state has forgotten two thirds" in shown


def test_without_data_the_surgeon_takes_inputs_for_white_noise(ssmprune, checkpoint, tmp_path):
    plan, small = tmp_path / "plan.safetensors", tmp_path / "small.safetensors"
    shown = ssmprune("prune", checkpoint, "--ratio", 0.5, "--method", "surgeon", "--plan", plan)
    assert "surgeon without data at 50%, C and D re-fitted" in " ".join(shown.stdout.split())
    pruned = ssmprune("prune", checkpoint, "--ratio", 0.5, "--method", "surgeon", "--out", small, "--json")
    assert json.loads(pruned.stdout)["method"] == "surgeon without data"
    expected = sp.shrink(sp.load(checkpoint), sp.Plan.load(plan)).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in sp.load(small).state_dict().items())


def test_a_plan_that_falls_short_says_so(ssmprune, checkpoint, tmp_path):
    command = ("prune", checkpoint, "--ratio", 0.75, "--cap", 0.5, "--plan", tmp_path / "plan.safetensors")
    assert "last at 50% (asked for 75%)" in " ".join(ssmprune(*command).stdout.split())


def test_unstable_states_are_refused_or_kept(ssmprune, tmp_path):
    wild, small = tmp_path / "wild.safetensors", tmp_path / "small.safetensors"
    model = Classifier(Config("s5", inputs=3, outputs=2, width=6, states=(8, 8), pole_form="free"))
    with torch.no_grad():
        model.layers[1].ssm.pole_re[5] = 0.01
    sp.save(model, wild)
    refused = ssmprune("prune", wild, "--ratio", 0.8, "--out", small)
    assert refused.returncode == 2
    assert "Layer 'layers.1.ssm': State 5 has a pole" in refused.stderr
    assert "--unstable keep" in refused.stderr
    assert ssmprune("prune", wild, "--ratio", 0.8, "--unstable", "keep", "--out", small).returncode == 0
    assert sp.read(sp.load(small), unstable="keep")["layers.1.ssm"].unstable_states.any()


def test_inspect_and_list_print_tables_and_json(ssmprune, checkpoint):
    layers = json.loads(ssmprune("inspect", checkpoint, "--json").stdout)["layers"]
    assert [layer["states"] for layer in layers] == [16, 16]
    assert [layer["stored_states"] for layer in layers] == list(sp.load(checkpoint).config.states)
    assert "A conjugate pair counts as two states" in ssmprune("inspect", checkpoint).stdout
    fastest, slowest = layers[0]["memory_steps"]
    assert slowest >= fastest >= 1
    assert "layers.1.ssm" in ssmprune("inspect", checkpoint).stdout
    listed = " ".join(ssmprune("list").stdout.replace("│", " ").split())
    assert "methods last, surgeon, aire, " in listed
    assert listed.count("/") == 2, "pairs are described, not listed"
    known = json.loads(ssmprune("list", "--json").stdout)
    assert {"last", "lamp", "surgeon", "energy/layer_adaptive"} <= set(known["methods"])
    assert {"h2-optimal", "last-as-released", "aire-as-released"} <= set(known["also in sweeps"])
    assert "balanced" in known["methods"]
    assert {"s4d", "s5"} <= set(known["families"])
    assert {*known["methods"], *known["also in sweeps"]} == set(approaches.found())


def test_help_lists_what_a_newcomer_needs_first(ssmprune):
    shown = ssmprune("--help").stdout
    verbs = re.findall(r"^│ ([a-z]+) ", shown, re.MULTILINE)
    assert verbs == [verb for commands in VERBS.values() for verb in commands]
    assert verbs[:3] == ["demo", "inspect", "prune"]
    assert len(verbs) == 14  # `verify` came with the self-test of C files: a user's compiler must be tried by the user
    assert re.findall(r"^╭─ (.+?) ─", shown, re.MULTILINE) == [*VERBS, "Options of every command"]


def test_prune_shows_the_options_people_need_first(ssmprune):
    shown = ssmprune("prune", "--help").stdout
    first, more = shown.split("─ More options ─")
    options = re.findall(r"^│ (--[a-z-]+)", first, re.MULTILINE)
    assert len(options) == 12
    assert options[:2] == ["--out", "--ratio"]
    assert "--round-to" in more


@pytest.mark.parametrize("words", ["eval", "eval --help", "eval -h", "--json eval --help"])
def test_an_unknown_command_is_refused_with_a_suggestion(words, ssmprune):
    result = ssmprune(*words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert "There is no command 'eval'" in result.stderr
    assert "Did you mean evaluate?" in result.stderr


@pytest.mark.parametrize("words", ["", "prune "])
def test_help_has_a_short_form(words, ssmprune):
    short, long = (ssmprune(*words.split(), flag) for flag in ("-h", "--help"))
    assert short == long
    assert short.returncode == 0
    assert "Usage" in short.stdout


def test_there_are_few_options():
    """A shared option counts for every command that has it; those of every command count once."""
    counts = {}
    for commands in VERBS.values():
        for verb in commands:
            arguments = app[verb].assemble_argument_collection()
            counts[verb] = sum(argument.show and argument.name.startswith("--") for argument in arguments)
    everywhere = [argument for argument in app.meta.assemble_argument_collection() if argument.show]
    print(sum(counts.values()) + len(everywhere), counts)
    assert sum(counts.values()) + len(everywhere) <= 110


@pytest.mark.parametrize("file", ["weights.pt", "flax.msgpack"])
@pytest.mark.parametrize("verb", ["inspect", "prune"])
def test_models_of_other_codes_are_pointed_to_import(file, verb, ssmprune, tmp_path):
    corpus = Path(__file__).parents[1] / "corpus" / file
    words = ["--ratio", 0.5, "--out", tmp_path / "small.safetensors"] if verb == "prune" else []
    refused = ssmprune(verb, corpus, *words)
    assert refused.returncode == 2
    assert f"ssmprune import {corpus} --family FAMILY" in refused.stderr


def test_no_command_is_told_as_such(ssmprune):
    nothing = ssmprune()
    assert nothing.returncode == 2
    assert "A command is missing." in nothing.stderr


def test_the_ending_of_an_export_is_its_format(ssmprune, checkpoint, tmp_path):
    assert ssmprune("export", checkpoint, "--out", tmp_path / "model.c").returncode == 0
    assert "model_step" in (tmp_path / "model.h").read_text()
    digest = sha256(checkpoint.read_bytes()).hexdigest()
    assert f"From: {checkpoint.name} (SHA-256 {digest})." in (tmp_path / "model.h").read_text()
    refused = ssmprune("export", checkpoint, "--out", tmp_path / "other.tflite")
    assert refused.returncode == 2
    assert "The ending of --out says the format, .c, .html, .onnx, .pt2; got 'other.tflite'." in " ".join(
        refused.stderr.split()
    )
    assert not (tmp_path / "other.tflite").exists()


@pytest.mark.parametrize("compiler", [True, False])
def test_an_export_tells_bytes_of_source_from_those_of_the_program(
    ssmprune, checkpoint, tmp_path, monkeypatch, compiler
):
    if not compiler:
        monkeypatch.setattr(build, "find_compiler", lambda: None)
    result = ssmprune("export", checkpoint, "--out", tmp_path / "model.c", "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["source bytes"] == (tmp_path / "model.c").stat().st_size
    assert "bytes" not in facts
    weights = 4 * parameters(sp.load(checkpoint))
    assert weights / 2 < facts["compiled bytes"] < weights + 30_000 if compiler else facts["compiled bytes"] is None
    with forward(sp.load(checkpoint), "torch" if not compiler else "compiled") as fast:
        assert not compiler or facts["state bytes"] == fast.state_bytes
    shown = ssmprune("export", checkpoint, "--out", tmp_path / "model.c").stdout
    assert ("compiled" in shown, "state" in shown) == (compiler, True)  # titles may be wrapped


def test_the_header_says_what_the_task_says_of_its_data(ssmprune, checkpoint, tmp_path):
    shutil.copy(checkpoint, tmp_path / "digits.safetensors")
    cards.write_card(tmp_path / "digits.safetensors", {"task": "smnist"})
    assert ssmprune("export", tmp_path / "digits.safetensors", "--out", tmp_path / "digits.c").returncode == 0
    assert "). Task smnist: 784 pixels in [0, 1], row by row" in (tmp_path / "digits.h").read_text()


@pytest.mark.parametrize("words", [(), ("--ratio", 0.5, "--max-energy", 0.1)])
def test_deploy_refuses_before_it_loads_data(ssmprune, checkpoint, tmp_path, monkeypatch, words):
    monkeypatch.setattr(deploying, "_test_examples", lambda *arguments: pytest.fail("data were loaded"))
    result = ssmprune("deploy", checkpoint, *words, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "Say how far to prune" in result.stderr
    assert "Pruning" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prune", "{model}", "--ratio", "1.5"], "1.5"),
        (["prune", "{model}", "--ratio", "0.5", "--method", "best"], "best"),
        (["prune", "{model}", "--ratio", "0.5", "--exclude", "layers.9"], "layers.9"),
        (["prune", "{model}", "--ratio", "0.5", "--cap", "-1"], "-1"),
        (["prune", "{model}", "--ratio", "0.5", "--round-to", "0"], "0"),
        (["prune", "{model}", "--ratio", "0.5", "--calibrate", "nothing"], "nothing"),
        (["prune", "{model}", "--ratio", "0.5", "--calibrate", "{model}"], "{model}"),
        (["evaluate", "{model}", "--task", "chess"], "chess"),
        (["export", "{model}", "--mode", "batch"], ".safetensors"),
        (["prune", "{folder}/absent.safetensors", "--ratio", "0.5"], "absent.safetensors"),
        (["prune", "{folder}", "--ratio", "0.5"], "{folder}"),
        (["prune", "{model}", "--from-plan", "{model}"], "{model}"),
        (["prune", "{model}", "--from-plan", "{folder}/absent.plan"], "absent.plan"),
        (["prune", "{model}", "--from-plan", "{folder}"], "{folder}"),
    ],
)
def test_bad_input_names_the_value_and_writes_nothing(ssmprune, checkpoint, tmp_path, arguments, named):
    fill = {"model": checkpoint, "folder": tmp_path}
    out = [] if arguments[0] == "evaluate" else ["--out", tmp_path / "out.safetensors"]
    result = ssmprune(*(text.format(**fill) for text in arguments), *out)
    assert result.returncode == 2, result.stderr
    assert named.format(**fill) in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", [True, False])
def test_only_debug_shows_the_traceback(tmp_path, debug):
    command = [
        sys.executable,
        "-m",
        "ssmprune",
        *["--debug"][:debug],
        "inspect",
        tmp_path,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ("Traceback" in result.stderr) is debug
    assert result.returncode == (1 if debug else 2)


def test_a_calibrated_plan_travels_with_its_refit(ssmprune, checkpoint, tmp_path):
    inputs, plan, small, direct = (tmp_path / name for name in ("x.npy", "plan.st", "small.st", "direct.st"))
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    for option, out in (("--plan", plan), ("--out", direct)):
        result = ssmprune("prune", checkpoint, "--ratio", 0.5, "--calibrate", inputs, option, out)
        assert result.returncode == 0, result.stderr
    assert ssmprune("prune", checkpoint, "--from-plan", plan, "--out", small).returncode == 0
    for name, tensor in sp.load(small).state_dict().items():
        assert torch.equal(tensor, sp.load(direct).state_dict()[name])


def test_certificates_are_printed_and_in_the_json(ssmprune, checkpoint, tmp_path, monkeypatch):
    inputs, out = tmp_path / "x.npy", tmp_path / "plan.st"
    np.save(inputs, np.random.default_rng(0).normal(size=(60, 30, 3)))
    plain = json.loads(ssmprune("prune", checkpoint, "-r", 0.5, "--certify", "--plan", out, "--json").stdout)
    found = sp.certify(sp.Plan.load(out), sp.read(sp.load(checkpoint)))
    for layer, one in found.items():
        assert plain["certificates"][layer] == dataclasses.asdict(one)
        assert one.measured is None
        assert 0 < one.exact <= one.bound
    command = ("prune", checkpoint, "-r", 0.5, "--calibrate", inputs, "--certify", "--plan", out)
    refitted = json.loads(ssmprune(*command, "--json").stdout)["certificates"]
    assert all(0 < one["measured"] < 1 and one["paper"] is None for one in refitted.values())
    monkeypatch.setenv("COLUMNS", "80")
    narrow = ssmprune(*command).stdout
    assert "│ layers.0.ssm │" in narrow
    assert "…" not in narrow
    assert "paper" not in narrow.splitlines()[-6]  # a re-fitted plan has none of the paper's figures, so no column
    shown = " ".join(narrow.split())
    assert "hold for every input; the paper's expressions for layer and model do not" in shown


def test_budgets_have_the_same_words_as_in_python(ssmprune, checkpoint, tmp_path, monkeypatch):
    inputs, out = tmp_path / "x.npy", tmp_path / "small.st"
    x = np.random.default_rng(0).normal(size=(4, 30, 3)).astype(np.float32)
    np.save(inputs, x)
    model, batches = sp.load(checkpoint), [torch.from_numpy(x)]
    memory = 0.9 * budgets.megabytes_of(model)
    monkeypatch.setattr(budgets, "milliseconds_of", lambda small, inputs: float(sum(small.config.states)))
    for words, budget, data in (
        (("--max-energy", 0.1), sp.max_energy(0.1), None),
        (("--max-energy", 0.1, "--calibrate", inputs), sp.max_energy(0.1), batches),
        (("--max-gain", 0.3), sp.max_gain(0.3), None),
        (("--max-error", 0.0001, "--calibrate", inputs), sp.max_error(0.0001), batches),
        (("--max-memory", memory), sp.max_memory(memory), None),
        (("--max-latency", 10, "--calibrate", inputs), sp.max_latency(10.0), batches),
    ):
        result = ssmprune("prune", checkpoint, *words, "--out", out)
        assert result.returncode == 0, result.stderr
        expected = sp.prune(model, budget, data=data).config.states
        assert sp.load(out).config.states == expected
        assert 2 < sum(expected) < 16


def test_a_loss_is_counted_on_validation_data(ssmprune, checkpoint, tmp_path, monkeypatch):
    """The toy task has other inputs than the model; what counts is that its validation data and card are used."""
    model = tmp_path / "model.safetensors"
    torch.manual_seed(0)
    sp.save(Classifier(Config("s5", inputs=1, outputs=2, width=6, states=(8, 8))), model)
    monkeypatch.setattr(tasks, "get", lambda name: {"toy": TOY}[name])
    words = ("prune", model, "--max-loss", 15, "--confidence", 0.8, "--out", tmp_path / "small.st", "--json")
    assert "has no card that names a task; name one with --validate" in " ".join(ssmprune(*words).stderr.split())
    cards.write_card(model, {"task": "toy"})
    result = ssmprune(*words)
    facts = json.loads(result.stdout)
    found, (note,) = facts["ratio"], facts["budgets"]
    first, whole, *trials = result.stderr.splitlines()
    assert first.startswith("The whole model and at most 16 pruned ones answer 40 validation examples each")
    assert re.fullmatch(r"The whole model: \S+%", whole)
    assert 0 < len(trials) <= 16
    for number, trial in enumerate(trials, 1):
        assert re.fullmatch(rf"\d+ parameters left: \S+%; at most {16 - number} more to try, about .* seconds", trial)
    assert re.search(r"max_loss 15: came to \S+ points, at most \S+ with 80 % confidence, accuracy \S+% \(", note)
    assert re.search(r"max_loss 15.* accuracy \S+% \(\S+ to \S+ % with 95 % confidence, on 40 examples\) after", note)
    too_few = ssmprune(*words, "--examples", 999)
    assert too_few.returncode == 2
    assert "1000" in too_few.stderr
    split = TOY.load("val")
    everything = split.batch(np.arange(len(split)))
    batches = [(everything.x, everything.y)]
    assert found == search([sp.max_loss(15, batches, 0.8)], sp.Pruning(sp.load(model))).ratio > 0


def test_budgets_combine_and_what_they_came_to_is_printed(ssmprune, checkpoint, tmp_path):
    out, size = tmp_path / "small.st", budgets.megabytes_of(sp.load(checkpoint))
    words = ("prune", checkpoint, "--max-energy", 0.3, "--max-memory", 0.95 * size, "--out", out)
    facts = json.loads(ssmprune(*words, "--json").stdout)
    small = sp.load(out)
    assert facts["bytes"] == [round(1e6 * budgets.megabytes_of(model)) for model in (sp.load(checkpoint), small)]
    assert facts["operations"] == [operations(model.config) for model in (sp.load(checkpoint), small)]
    assert len(facts["steps_per_second"]) == 2
    assert min(facts["steps_per_second"]) > 0
    energy, memory = facts["budgets"]
    assert energy.startswith("max_energy 0.3: came to 0.")
    assert memory.endswith(f"came to {budgets.megabytes_of(small):.3g} MB")
    shown = " ".join(ssmprune(*words).stdout.split())
    assert energy in shown
    assert f"Tensors: {facts['bytes'][0]:,} -> {facts['bytes'][1]:,} bytes" in shown
    assert "Operations of a step: {:,} -> {:,}".format(*facts["operations"]) in shown
    assert "Steps per second in C" in shown
    out.unlink()
    refused = ssmprune("prune", checkpoint, "--max-energy", 1e-9, "--max-memory", 0.7 * size, "--out", out)
    assert refused.returncode == 2
    assert "max_energy and max_memory cannot be kept together" in " ".join(refused.stderr.split())
    assert not out.exists()


def test_a_budget_that_holds_already_says_so(ssmprune, checkpoint, tmp_path):
    result = ssmprune("prune", checkpoint, "--max-memory", 99, "--out", tmp_path / "same.st")
    assert "max_memory 99 holds without pruning: the model has 0.0" in " ".join(result.stdout.split())
    assert sp.load(tmp_path / "same.st").config.states == sp.load(checkpoint).config.states


@pytest.mark.parametrize("words", [(), ("--ratio", 0.5, "--max-energy", 0.1)])
def test_one_word_says_how_far_to_prune(ssmprune, checkpoint, tmp_path, words):
    result = ssmprune("prune", checkpoint, *words, "--plan", tmp_path / "plan.st")
    assert result.returncode == 2
    told = " ".join(result.stderr.split())
    assert "Say how far to prune with --ratio, with --operations, or with one or more of --max-energy" in told


def test_pruning_and_quantising_compose_and_the_file_remembers(ssmprune, checkpoint, tmp_path):
    inputs, small, tiny = (tmp_path / name for name in ("inputs.npy", "small.safetensors", "tiny.safetensors"))
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    assert ssmprune("prune", checkpoint, "--ratio", 0.5, "--out", small).returncode == 0
    result = ssmprune("quantize", small, "--bits", 4, "--calibrate", inputs, "--out", tiny, "--json")
    facts = json.loads(result.stdout)
    assert facts["bytes after"] < facts["bytes before"] == small.stat().st_size
    history = json.loads(ssmprune("inspect", tiny, "--json").stdout)["history"]
    assert history == facts["history"] == ["pruned by last at 50%", "quantised to 4 bits on 4 sequences"]
    assert "quantised to 4 bits" in ssmprune("inspect", tiny).stdout.replace("\n", " ")
    refused = ssmprune("quantize", small, "--bits", 3, "--out", tmp_path / "none.safetensors")
    assert refused.returncode == 2
    assert "8 or 4 bits" in refused.stderr
    assert not (tmp_path / "none.safetensors").exists()


def test_python_and_the_commands_write_the_same_history(ssmprune, checkpoint, tmp_path):
    plan, small, direct = (tmp_path / name for name in ("plan.st", "small.st", "direct.st"))
    assert ssmprune("prune", checkpoint, "--ratio", 0.5, "--out", direct, "--plan", plan).returncode == 0
    assert ssmprune("prune", checkpoint, "--from-plan", plan, "--out", small).returncode == 0
    model = sp.load(checkpoint)
    masked, pruned = sp.mask(model, sp.Plan.load(plan)), sp.prune(model, 0.5)
    assert masked.history == ("masked by last at 50%",)
    assert sp.load(small).history == sp.load(direct).history == pruned.history == ("pruned by last at 50%",)
    assert model.history == ()
    lines = [line.strip() for line in ssmprune("inspect", direct).stdout.splitlines()]
    assert lines[lines.index("pruned by last at 50%") + 1].startswith("A conjugate pair counts as two states")


def test_a_quantised_model_that_is_refitted_is_in_floats_again_and_that_is_said(ssmprune, checkpoint, tmp_path):
    inputs, tiny, small = (tmp_path / name for name in ("inputs.npy", "tiny.st", "small.st"))
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    ssmprune("quantize", checkpoint, "--out", tiny)
    refitted = ssmprune("prune", tiny, "--ratio", 0.25, "--calibrate", inputs, "--out", small)
    assert "weights of 8 bits; they are floats again" in " ".join(refitted.stderr.split())
    assert sp.load(small).history[-1].endswith("in floats again")
    plain = ssmprune("prune", tiny, "--ratio", 0.25, "--out", small)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert sp.load(small).grid.bits == 8
    assert small.stat().st_size < tiny.stat().st_size


def test_a_latency_is_that_of_one_sequence(ssmprune, checkpoint, tmp_path, monkeypatch):
    inputs, seen = tmp_path / "inputs.npy", []
    np.save(inputs, np.random.default_rng(0).normal(size=(4, 30, 3)))
    monkeypatch.setattr(budgets, "milliseconds_of", lambda small, inputs: seen.append(inputs[0].shape) or 1.0)
    ssmprune("prune", checkpoint, "--max-latency", 5, "--calibrate", inputs, "--out", tmp_path / "small.st")
    assert set(seen) == {(1, 30, 3)}


@pytest.mark.slow
def test_recovery_brings_a_pruned_model_nearer(ssmprune, checkpoint, tmp_path):
    inputs, out = tmp_path / "inputs.npy", tmp_path / "small.safetensors"
    np.save(inputs, np.random.default_rng(0).normal(size=(40, 30, 3)))
    command = ("prune", checkpoint, "--ratio", 0.8, "--method", "random", "--calibrate", inputs, "--out", out, "--json")
    facts = json.loads(ssmprune(*command, "--recover", "--minutes", 0.2).stdout)
    assert facts["recovery"]["after"]["damage"] <= facts["recovery"]["before"]["damage"]
    assert sum(sp.load(out).config.states) == facts["layers"][-1]["kept"] / 2 == 2
    plain, better = tmp_path / "plain.safetensors", tmp_path / "better.safetensors"
    ssmprune("prune", checkpoint, "--ratio", 0.8, "--method", "random", "--out", plain)
    recover = ("recover", plain, checkpoint, "--calibrate", inputs, "--minutes", 0.2, "--out", better, "--json")
    facts = json.loads(ssmprune(*recover).stdout)
    assert facts["after"]["damage"] < facts["before"]["damage"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "better.safetensors", "inputs.npy", "plain.safetensors", "small.safetensors"
    ]  # fmt: skip
    same = json.loads(ssmprune("recover", checkpoint, checkpoint, *recover[3:]).stdout)
    assert same["steps"] == 0
    refused = ssmprune("prune", checkpoint, "--ratio", 0.5, "--recover", "--out", out)
    assert "--calibrate" in refused.stderr
    assert refused.returncode == 2


@pytest.mark.slow
def test_budgets_and_certificates_are_those_of_the_recovered_model(ssmprune, checkpoint, tmp_path, monkeypatch):
    inputs, out = tmp_path / "inputs.npy", tmp_path / "small.safetensors"
    np.save(inputs, np.random.default_rng(0).normal(size=(40, 30, 3)))
    words = ("--calibrate", inputs, "--recover", "--minutes", 0.05, "--certify", "--json", "--out", out)
    facts = json.loads(ssmprune("prune", checkpoint, "--max-energy", 0.9, *words).stdout)
    work, small = sp.Pruning(sp.load(checkpoint), data=[torch.from_numpy(np.load(inputs)).float()]), sp.load(out)
    lost = max(energy_lost_by_model(work, small).values())
    assert facts["budgets"] == [f"max_energy 0.9: came to {lost:.3g}"]
    assert facts["certificates"] == {path: dataclasses.asdict(one) for path, one in certify_model(work, small).items()}
    assert "recovered: " in small.history[-1]

    monkeypatch.setattr(budgets, "energy_lost_by_model", lambda work, small: {"layers.0.ssm": 0.95})
    result = ssmprune("prune", checkpoint, "--max-energy", 0.5, *words)
    assert result.returncode == 0, result.stderr
    assert "The model is kept as it was before." in " ".join(result.stderr.split())
    facts, small = json.loads(result.stdout), sp.load(out)
    assert "recovery" not in facts
    assert facts["budgets"] == [f"max_energy 0.5: came to {max(energy_lost_by_model(work, small).values()):.3g}"]
    assert len(small.history) == 1
    assert sum(small.config.states) < 16


@pytest.mark.slow
def test_the_accuracy_that_is_printed_is_that_of_the_recovered_model(ssmprune, tmp_path, monkeypatch):
    model, inputs, out = (tmp_path / name for name in ("model.safetensors", "inputs.npy", "small.safetensors"))
    sp.save(Classifier(Config("s5", inputs=1, outputs=2, width=6, states=(8, 8))), model)
    cards.write_card(model, {"task": "toy"})
    np.save(inputs, np.random.default_rng(0).normal(size=(40, 30, 1)))
    monkeypatch.setattr(tasks, "get", lambda name: {"toy": TOY}[name])
    words = (
        "--max-loss",
        30,
        "--method",
        "random",
        "--calibrate",
        inputs,
        "--recover",
        "--minutes",
        0.05,
        "--out",
        out,
        "--json",
    )
    result = ssmprune("prune", model, *words)
    facts, accuracy = json.loads(result.stdout), evaluate(sp.load(out), TOY.load("val")).accuracy
    assert "recovery" in facts
    assert f" parameters left after recovery: {accuracy:.2%}" in result.stderr
    assert f"accuracy {accuracy:.2%} (" in facts["budgets"][0]


def test_a_table_sets_thousands_apart_and_cuts_nothing_off(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    counts = table("Counts", [{"name": "a_rather_long_name_" * 3, "count": 12345, "whole": True}])
    Report({}, counts).show(as_json=False)
    shown = capsys.readouterr().out
    assert "12,345" in shown
    assert "True" in shown
    assert "…" not in shown
    assert "".join(re.findall(r"^│ (\S+)", shown, re.MULTILINE)) == "a_rather_long_name_" * 3
