"""The pages: the tutorial runs, figures are those of the results, the reference is complete, links lead somewhere."""

import io
import re
import shlex
import shutil
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune import budgets
from ssmprune.cli import app
from ssmprune.tasks import cards
from ssmprune.tasks.smnist import TASK
from tiny_data import write_mnist

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "paper").rglob("*.md")])


@pytest.mark.slow
def test_the_tutorial_runs(ssmprune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = {}, io.StringIO()
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.DOTALL):
        if language == "python":
            with redirect_stdout(printed):
                exec(block, names)
            continue
        for line in block.splitlines():
            result = ssmprune(*shlex.split(line)[1:])
            assert result.returncode == 0, result.stderr
    whole, small = Path("model.safetensors").stat().st_size, Path("small.safetensors").stat().st_size
    assert small < whole / 2
    assert names["before"] > 0.98
    assert names["after"] > 0.97
    states = {name: [len(system.log_poles) for system in sp.read(names[name]).values()] for name in ("halved", "fifth")}
    assert sum(states["halved"]) == 32
    assert all(count % 4 == 0 for count in states["halved"])
    assert sum(states["fifth"]) == 12  # floor of a fifth of 64
    assert names["error"] < 0.1
    assert names["logits"].argmax() == names["images"].labels[0]
    assert int(names["state"]["steps"]) == 784
    image = torch.from_numpy(names["images"].batch([0]).x)
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(names["logits"]), names["small"](image), atol=1e-3)
    assert sum(len(system.log_poles) for system in sp.read(names["patient"]).values()) == 32
    told = (r"\d+ of 128 states left", "the same outputs: True", r"\[\d+, \d+\] states in its layers", "in C: a 7")
    for text in (r"\S+% before, \S+% after", "last at 50%", r"outputs off by \S+%", *told, "after 784 pixels: a 7"):
        assert re.search(f"^.*{text}$", printed.getvalue(), re.MULTILINE), text
    assert cards.task_of(Path("small.safetensors"), None).name == "smnist"  # the card went along


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run_and_each_prunes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSMPRUNE_DATA", raising=False)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names, sizes = {}, []
    for line in block.splitlines():
        exec(line, names)
        if line.startswith("small ="):
            sizes.append(sum(names["small"].config.states))
    whole = sum(names["model"].config.states)
    assert len(sizes) == 5
    assert max(sizes) < 0.75 * whole
    assert sum(sp.load("small.safetensors").config.states) == sizes[-1]
    assert sum(sp.load("model.safetensors").config.states) == whole
    assert np.load("inputs.npy").shape == (100, 784, 1)


def command_lines(page):
    """Every command line of ours on a page, in blocks and in running text, without comments."""
    text = page.read_text().replace("\\\n", "")
    blocks = re.findall(r"^(?:    )?ssmprune (.+)$", text, re.MULTILINE)
    inline = re.findall(r"`ssmprune (\w+ [^`]*)`", text)
    return [shlex.split(line, comments=True) for line in (*blocks, *inline)]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "tasks.md"], ids=lambda page: page.name
)
def test_command_lines_lack_nothing(page):
    """Each is parsed as the command line parses it; a verb alone, as in `ssmprune sweep`, is only a name."""
    for verb, *words in command_lines(page):
        if words:
            _, bound, _ = app.meta.parse_args([verb, *words], print_error=False, exit_on_error=False)
            app.parse_args(bound.args, print_error=False, exit_on_error=False)


@pytest.mark.slow
def test_the_command_lines_of_the_readme_run(ssmprune, tmp_path, monkeypatch):
    """In their order, and on a few images, with which they take seconds."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("bokeh")
    monkeypatch.chdir(tmp_path)
    shipped = Path(sp.__file__).parent / "demo"
    shutil.copy(shipped / "smnist-s5.safetensors", "model.safetensors")
    np.save("inputs.npy", TASK.load("train", shipped).batch(np.arange(10)).x)
    write_mnist(tmp_path / "data", 2400, tests=40)  # a tenth validates: fewer could not show a loss below a point
    monkeypatch.setattr(budgets, "upwards", lambda states: [states // 2])  # a search takes minutes
    monkeypatch.setenv("SSMPRUNE_DATA", str(tmp_path / "data"))
    shorter = {"recover": ["--minutes", "0.05"], "sweep": ["--ratios", "0.5"]}
    lines = [line for line in command_lines(ROOT / "README.md") if len(line) > 1 and line[0] != "demo"]
    for line in lines:
        result = ssmprune(*line, *shorter.get(line[0], []))
        assert result.returncode == 0, (line, result.stderr)
    ran = {line[0] for line in lines}
    assert ran == {
        *("inspect", "prune", "evaluate", "quantize", "recover", "export", "deploy", "verify", "sweep", "report")
    }


def test_the_readme_begins_with_what_a_stranger_wants():
    """What it is for, a picture, two commands, how to install it, Python; terms are explained, and it is short."""
    text = (ROOT / "README.md").read_text()
    first = [
        "\n**",
        "](docs/demo.png)",
        "    make demo",
        "    make test",
        "    pip install '.",
        "```python",
        "**surgeon**",
    ]
    places = [text.index(word) for word in first]
    assert places == sorted(places)
    assert all(f"**{term}**" in text for term in ("LAST", "surgeon", "plan"))
    assert len(text.splitlines()) <= 120


def test_pages_are_run_in_the_environment_that_they_ask_for():
    """`make wheel-test` installs the extras that the pages name, and then runs the pages."""
    pages = (ROOT / "README.md", TUTORIAL)
    asked = [re.search(r"pip install '\.(\[.*?\])'", page.read_text())[1] for page in pages]
    recipe = (ROOT / "Makefile").read_text()
    assert [extras for extras in asked if f'*.whl){extras}"' not in recipe] == []


def test_there_is_one_tagline():
    tagline = sp.__doc__.splitlines()[0]
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    assert about == app.help == tagline
    for page in (ROOT / "README.md", DOCS / "index.md", ROOT / "mkdocs.yml"):
        assert tagline in page.read_text(), page


def test_links_of_the_readme_are_relative():
    """They work in a clone and wherever it is published; only installing torch for a CPU names a host."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((https?:[^)]*)\)", text) == []
    assert re.findall(r"https?://([^/\s]+)", text) == ["download.pytorch.org"]


def test_citations_are_in_the_bibliography():
    """Code and pages cite by keys such as [Smith2023]; a name with a year in round brackets is no key."""
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("paper/src/**/*.py"), *DOCS.glob("*.md")]
    listed = set(re.findall(r"\*\*\[(\w+)\]\*\*", (DOCS / "references.md").read_text()))
    texts = {path: path.read_text() for path in sources if path.name != "references.md"}
    brackets = [inside for text in texts.values() for inside in re.findall(r"\[([A-Z]\w+\d{4}\w?[^\]]*)\]", text)]
    cited = {key for inside in brackets for key in re.findall(r"[A-Z]\w+(?:19|20)\d\d[a-z]?", inside)}
    assert cited
    assert cited <= listed
    assert [path for path, text in texts.items() if re.search(r"et al\.", text)] == []


def rows(path):
    """The rows of the tables on a page, as lists of cells."""
    lines = (line.strip().strip("|") for line in path.read_text().splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_the_figures_of_the_methods_are_those_of_the_results():
    surgeon, curves = (rows(ROOT / "paper" / "results" / "tables" / f"{kind}.md") for kind in ("surgeon", "curves"))
    page = rows(DOCS / "methods.md")
    assert all(row in page for row in surgeon)
    shown = [row for row in page if len(row) == 8 and row[0].partition("-")[2] in ("s5", "s4d")]
    assert len(shown) == 20
    assert all(row in [[*row[:3], *(row[2 + tenths] for tenths in (3, 5, 7, 8, 9))] for row in curves] for row in shown)


def test_public_names_are_few_and_have_examples():
    """The named methods are values; the example of `Method` shows how they are made."""
    assert len(sp.__all__) <= 45
    public = {name: getattr(sp, name) for name in sp.__all__}
    assert [name for name, it in public.items() if not isinstance(it, sp.Method) and ">>>" not in it.__doc__] == []


def test_every_public_name_is_in_the_reference():
    named = set(re.findall(r"^::: ssmprune\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert set(sp.__all__) - named == set(), "docs/api.md needs a line `::: ssmprune.NAME` for each"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []
    raw = "https://raw.githubusercontent.com/ssmprune/ssmprune/main/"
    ours = [link.removeprefix(raw) for link in links if link.startswith(raw)]
    ours += [found[1] for link in links if (found := re.search(r"/ssmprune/ssmprune/(?:blob|tree)/main/(.*)", link))]
    assert [link for link in ours if not (ROOT / link).exists()] == []
