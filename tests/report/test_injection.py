"""Names out of files are text and nothing else: no HTML, Markdown, LaTeX, mathematics, no words to a shell."""

import json
import re
import shlex
import shutil
from html.parser import HTMLParser

import pytest

import ssmprune as sp
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.report import Table, markdown
from ssmprune.report.page import collect_data, write
from ssmprune.sweeps.sweeping import _different_names
from ssmprune.tasks.cards import write_card
from ssmprune_paper.table_formats import latex
from tiny_results import renamed, tiny_results

NAMES = [
    "</script><script>alert(1)",
    "<!--<script>",
    "/*SCRIPT*/ /*DATA*/",
    "'; touch owned; '",
    '" onload="x',
    "a|b\n| c |",
    "\x1b[31mred\x1b[2J",
    "[bold]loud[/bold] [/]",
    r"\input{secret} $x^2$ {} ~ \end{tabular}",
    "$\\frac$",
    "line\rError: none",
    "\u202egnp.exe",
    "\ud800",
]
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return tiny_results(tmp_path_factory.mktemp("clean"), models=("s5",))


class Elements(HTMLParser):
    """What a browser's parser makes of a page: elements, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *sorted(dict(attributes))))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text):
        if self.scripts and self.tags[-1][0] == "script":
            self.scripts[-1] += text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_same_elements_whatever_names_hold(name, clean, tmp_path):
    pytest.importorskip("bokeh")
    write(clean, tmp_path / "clean.html")
    write(renamed(clean, tmp_path / "results", name), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    ours, theirs = Elements(text), Elements((tmp_path / "clean.html").read_text())
    assert ours.tags == theirs.tags
    assert ours.scripts[2:] == theirs.scripts[2:]
    data = json.loads(ours.scripts[0])
    assert (data["models"][0]["task"], data["about"]["machine"]) == (name, name)
    assert all("<" not in script for script in ours.scripts[:2])


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_the_same_shape_whatever_names_hold(name):
    table = Table("A title", [{"model": name, "points": 1.0}, {"model": "x", "points": 2.0}], ["A note."])
    head, _, *body = [line for line in markdown(table).splitlines() if line.startswith("|")]
    assert len(body) == 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in [head, *body]} == {3}
    assert "<" not in body[0]
    assert not re.search(r"(?<!\\)[`\[\]]", body[0])
    lines = latex(table).splitlines()
    assert len(lines) == 11
    (row,) = (line for line in lines if line.endswith(r"& 1.00 \\"))
    commands = set(re.findall(r"\\([a-zA-Z]+)", row))
    assert commands <= {"textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater"}
    assert len(re.findall(r"(?<!\\)&", row)) == 1
    assert not re.search(r"(?<!\\)[$#%_^~]", row)
    assert not CONTROL.search(row + "".join(body))


@pytest.mark.parametrize("name", [name for name in NAMES if "/" not in name and "\x00" not in name and name.isascii()])
def test_the_terminal_shows_names_letter_by_letter(name, ssmprune, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    model = folder / f"{name}.safetensors"
    sp.save(Classifier(Config("s5", inputs=3, outputs=2, width=4, states=(4,))), model)
    write_card(model, {"task": name, "task_parameters": {}, "model": "s5"})
    shown = ssmprune("inspect", model)
    pruned = ssmprune("prune", model, "--ratio", 0.5, "--out", folder / "small.safetensors")
    refused = [
        ssmprune("evaluate", model),
        ssmprune("inspect", folder / "absent.safetensors"),
        ssmprune("prune", model, "--ratio", 0.5, "--method", name, "--out", folder / "small.safetensors"),
    ]
    assert (shown.returncode, pruned.returncode) == (0, 0)
    assert [result.returncode for result in refused] == [2, 2, 2]
    for result in refused:
        assert len(result.stderr.splitlines()) == 1
    assert not CONTROL.search("".join(result.stdout + result.stderr for result in (shown, pruned, *refused)))
    if name.startswith("[bold]"):
        assert "[bold]loud[/bold]" in "".join(shown.stdout.split("\n"))


def test_commands_to_copy_are_quoted(clean, tmp_path):
    found = renamed(clean, tmp_path / "results", "x")
    entry = found.about["checkpoints"][0]
    file = tmp_path / "a; touch owned.safetensors"
    shutil.copy(entry["file"], file)
    entry["file"] = str(file)
    point = collect_data(found, tmp_path)["models"][0]["curves"]["last"][1]
    assert shlex.split(point["command"])[2] == str(file)


def test_names_of_checkpoints_never_leave_their_folder(tmp_path):
    files = [tmp_path / "a" / "..safetensors", tmp_path / "b" / "x.safetensors"]
    assert all("/" not in name for name in _different_names(files))
