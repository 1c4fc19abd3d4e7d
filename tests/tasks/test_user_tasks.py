"""Tasks of the user's own: the walk of docs/extending.md on small files, entry points, and what goes wrong."""

import gzip
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import ssmprune as sp
from ssmprune import tasks
from ssmprune.tasks import cards
from tiny_data import idx

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
(MODULE,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class FashionMnist" in block)
(RHYTHMS,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Rhythm" in block)
(WALK,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SHORTER = {"train": {"--epochs": "12", "--batch": "8"}, "sweep": {"--ratios": "0.3,0.6"}}  # in place of the page's


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the module of the page, and clothes that can be told apart: a bright row for each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tasks.py").write_text(MODULE)
    folder, rng = tmp_path / "data" / "fashion-mnist", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, count in (("train", 400), ("t10k", 60)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        images[np.arange(count), 2 * labels + 4] += 180
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return tmp_path


@pytest.mark.slow
def test_the_walk_leads_from_data_to_a_report(place, ssmprune):
    pytest.importorskip("bokeh")
    told = {}
    for line in WALK.splitlines():
        _, verb, *words = shlex.split(line)
        for option, value in SHORTER.get(verb, {}).items():
            position = words.index(option) if option in words else len(words)
            words[position : position + 2] = [option, value]
        told[verb] = ssmprune(verb, *words, *([] if verb == "sweep" else ["--json"]))
        assert told[verb].returncode == 0, told[verb].stderr
    assert cards.read_card(place / "run" / "best.safetensors")["recipe"] == "general"
    model, small = sp.load("run/best.safetensors"), sp.load("small.safetensors")
    assert (model.config.states, model.config.width, model.config.bidirectional) == ((8, 8), 32, False)
    assert sum(small.config.states) == 8
    seen = json.loads(told["evaluate"].stdout)
    assert (seen["task"], seen["examples"]) == ("fashion", 60)
    assert seen["accuracy"] > 0.5, "ten kinds: it has learnt, and still knows it"
    assert "On 2,000 test examples, or all where there are fewer." in " ".join(told["sweep"].stdout.split())
    assert (place / "report.html").stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("task", ["rhythm", "spelled-rhythm"])
def test_sequences_of_different_lengths_and_two_tasks_in_a_file(task, tmp_path, monkeypatch, ssmprune):
    """The other file of the page, and its lines, without any data folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSMPRUNE_DATA", raising=False)
    Path("rhythms.py").write_text(RHYTHMS)
    listed = ssmprune("list", "--module", "rhythms.py", "--json")
    assert {"rhythm", "spelled-rhythm"} <= set(json.loads(listed.stdout)["tasks"])
    for line in re.findall(r"^    ssmprune (.*rhythms\.py.*)$", PAGE, re.MULTILINE):
        told = ssmprune(*shlex.split(line.replace("spelled-rhythm", task)), "--json")
        assert told.returncode == 0, told.stderr
    seen = json.loads(told.stdout)
    assert (seen["task"], seen["examples"]) == (task, 400)
    assert seen["accuracy"] > 0.8
    assert sum(sp.load("small.safetensors").config.states) < 8


def test_a_module_is_found_by_its_option_alone(place, ssmprune):
    assert ssmprune("list", "--json").stdout.count("fashion") == 0
    listed = ssmprune("list", "--module", "my_tasks.py", "--json")
    assert "fashion" in json.loads(listed.stdout)["tasks"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no task"),
        ("x = 1\nx = undefined\n", r"does not load: NameError: name 'undefined' is not defined \(line 2\)"),
        ("def f(:\n", r"does not load: SyntaxError: .* \(line 1\)"),
        (MODULE.replace('"fashion"', '"smnist"'), "there is one of that name already"),
        (MODULE.replace("inputs = 28", "inputs = 0"), "needs inputs, a whole number above 0; got 0"),
        (MODULE.replace('name = "fashion"', "name = 7"), "needs a name, a string; got 7"),
    ],
)
def test_a_module_without_a_proper_task_is_refused(text, message, place, ssmprune):
    (place / "other.py").write_text(text)
    result = ssmprune("train", "fashion", "--module", "other.py", "--data", "data", "--out", "run")
    assert result.returncode == 2
    assert re.search(message, result.stderr)
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train fashion", r"no task 'fashion'.*--module FILE\.py"),
        ("train fashion --module absent.py", "Cannot read 'absent.py'"),
        ("train fashion --module data", "it is a folder"),
        ("train fashion --module my_tasks.py --states 7", "number is even; got 7"),
        ("train fashion --module my_tasks.py --rate 0", "between 0 and 1; got 0"),
        ("train fashion --module my_tasks.py --rate nan", "between 0 and 1; got nan"),
        ("train fashion --module my_tasks.py --recipe paper", "no recipe 'fashion s5 paper'.*general"),
        ("train fashion --module my_tasks.py --recipe tune", "--from"),
        ("train fashion --module my_tasks.py --batch 1000", "360 training examples do not fill a batch of 1000"),
    ],
)
def test_wrong_lines_are_refused(words, message, place, ssmprune):
    result = ssmprune(*words.split(), "--data", "data", "--out", "run")
    assert result.returncode == 2
    assert re.search(message, result.stderr.replace("\n", " "))


def test_an_entry_point_brings_a_task(place, install):
    install("clothes", "[ssmprune.tasks]\nfashion = my_tasks\n")
    assert tasks.get("fashion").load("test", place / "data").batch([0]).x.shape == (1, 28, 28)
    install("clothes", "[ssmprune.tasks]\nfashion = my_tasks:FashionMnist\n")
    with pytest.raises(sp.InputError, match="is the class FashionMnist itself"):
        tasks.found()
