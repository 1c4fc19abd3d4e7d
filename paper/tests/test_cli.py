"""Lines that `ssmprune-paper` refuses: exit code 2, and a message that names what is wrong."""

import pytest

from ssmprune_paper.cli import run
from tiny_results import tiny_results

LINES = [
    ("figure results --out out.png --ratio half", "half"),
    ("figure results --out out.png --kind cake", "cake"),
    ("figure results --out out.png --checkpoint other", "other"),
    ("figure folder --out out.png", "folder"),
    ("figure results --out out.tiffany", ".tiffany"),
    ("figure missing --out out.png --kind scores", "is not at m.safetensors"),
    ("table results --kind cake", "cake"),
    ("table results --format word", "word"),
    ("table folder", "folder"),
    ("table torn", "sweep.json"),
    ("reproduce --models absent --out out --work work --ratios 0.5,x", "x"),
    ("reproduce --models absent --out out --work work --methods last,best", "best"),
    ("reproduce --models absent --out out --work work --data data", "absent"),
    ("reproduce --models folder --out out --work work --data data", "folder"),
    ("reproduce --examples 0", "0"),
    ("table results --kid own", "--kid"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("lines")
    tiny_results(place)
    (place / "folder").mkdir()
    for name in ("torn", "missing"):
        (place / name).mkdir()
        for file in (place / "results").glob("*.json*"):
            (place / name / file.name).write_bytes(file.read_bytes())
    about = place / "torn" / "sweep.json"
    about.write_text(about.read_text()[:-20])
    about = place / "missing" / "sweep.json"
    about.write_text(about.read_text().replace(str(place / "tiny-s5.safetensors"), "m.safetensors"))
    return place


@pytest.mark.parametrize(("line", "named"), LINES)
def test_a_bad_line_is_refused(place, line, named, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert named in err
