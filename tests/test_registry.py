"""Members of a kind are found in installed packages and in files; names, mistakes and clashes are told."""

import json
import re
from pathlib import Path

import pytest
import torch

import ssmprune as sp
from ssmprune import adapters, registry
from ssmprune.methods import criteria, named
from ssmprune.models import S5Layer
from ssmprune.sweeps import approaches, runners
from ssmprune.training import recipes

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SLOWEST,) = (block for block in BLOCKS if "CRITERION = " in block)
(RECIPE,) = (block for block in BLOCKS if "RECIPES = " in block)
(APPROACH,) = (block for block in BLOCKS if "APPROACH = " in block)


@pytest.fixture
def add(tmp_path):
    def write_and_add(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        registry.add_module(path)

    return write_and_add


def test_a_criterion_in_a_file_gets_names_with_every_allocation(add):
    add(SLOWEST)
    assert "slowest" in criteria()
    assert {f"slowest/{name}" for name in ("uniform", "pooled", "layer_adaptive", "layer_share")} <= named().keys()
    assert "slowest/pooled" in approaches.found()
    assert "patient" in named()


def test_a_criterion_in_a_file_prunes_from_the_command_line(tmp_path, monkeypatch, ssmprune):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SLOWEST)
    shipped = Path(sp.__file__).parent / "demo" / "smnist-s5.safetensors"
    for method in ("slowest/layer_adaptive", "patient"):
        result = ssmprune(
            "prune", shipped, "--ratio", "0.5", "--method", method, "--module", "mine.py", "--out", "small.safetensors"
        )
        assert result.returncode == 0, result.stderr
    listed = json.loads(ssmprune("list", "--module", "mine.py", "--json").stdout)
    assert "slowest" in listed["criteria"]


def test_workers_of_a_sweep_run_the_same_files(add, monkeypatch):
    add(SLOWEST)
    files = registry.added_files()
    monkeypatch.setattr(registry, "_files", {})
    assert "patient" not in named()
    runners._Worker(torch.get_num_threads(), files)
    assert "patient" in named()


def test_several_members_stand_in_a_list_or_under_names_of_their_own(add):
    add("CRITERIA = {'no': lambda s, e: s.log_poles.real, 'yes': lambda s, e: s.log_poles.imag}")
    assert {"no/uniform", "yes/pooled"} <= named().keys()


def test_an_installed_package_brings_criteria_and_methods(install):
    install("slow", "[ssmprune.criteria]\nslowest = slow\n[ssmprune.methods]\npatient = slow:METHOD\n", SLOWEST)
    assert "slowest/uniform" in named()
    assert named()["patient"].criterion is criteria()["slowest"]


def test_a_file_brings_an_adapter(add):
    add(
        "import ssmprune as sp\nfrom ssmprune.adapters.ours import S5Adapter\n"
        "class Mine(S5Adapter):\n    name = 'mine'\nADAPTERS = [Mine()]"
    )
    assert "mine" in adapters.found()
    assert sp.read(S5Layer(2, 4)).keys() == {""}


def test_a_file_brings_recipes_and_approaches(add):
    add(RECIPE + APPROACH)
    assert recipes.get("fashion", "s5", "narrow").width == 16
    assert approaches.get("last-8-bit").name == "last-8-bit"


def test_a_recipe_names_its_task_and_family(add):
    add("from ssmprune.training.recipes import GENERAL\nRECIPES = {'narrow': GENERAL['s5']}")
    with pytest.raises(sp.InputError, match=r"named by its task, family and itself.*got 'narrow'"):
        recipes.found()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def hinf(system, evidence): ...\nCRITERION = hinf", "has a criterion 'hinf', and there is one of that name"),
        ("CRITERION = 3", r"A criterion is a function \(system, evidence\) that returns log-scores; .* is of int"),
        ("METHOD = 'last'", r"A method is an object of ssmprune\.Method; .* is of str"),
        ("import ssmprune as sp\nADAPTER = sp.Adapter", "is the class Adapter itself"),
        ("RECIPES = [1]", "A recipe is an object of"),
        ("APPROACH = None", "An approach is an object of a class derived from .*; .* is of NoneType"),
        (
            "from ssmprune.sweeps.approaches import Rebuild\nAPPROACH = Rebuild('last', None)",
            "there is a method 'last' already",
        ),
        ("x = 1", "has no task and nothing else to add"),
        ("x = 1\nx.y", r"does not load: AttributeError: .* \(line 2\)"),
    ],
)
def test_a_file_without_a_proper_member_is_refused(text, message, add):
    with pytest.raises(sp.InputError, match=message):
        add(text)
    assert registry._files == {}


def test_entry_points_are_read_once(monkeypatch):
    adapters.found()
    monkeypatch.setattr(registry, "entry_points", lambda group: pytest.fail("read again"))
    assert "s5" in adapters.found()
