import base64
import json
import re
import sys
import zlib
from dataclasses import replace

import numpy as np
import pytest

import ssmprune as sp
from ssmprune.cli import main
from ssmprune.report.page import write
from ssmprune.report.page.data import LINES, collect_data
from ssmprune.report.page.plan_files import Cut
from ssmprune.report.significance import interval
from ssmprune.sweeps import approaches
from ssmprune.sweeps.store import Results
from tiny_results import METHODS, tiny_results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tiny_results(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(results, path)
    return path.read_text()


def unpacked(data, number):
    piece = data["pieces"][number]
    if isinstance(piece, str):
        return zlib.decompress(base64.b64decode(piece))
    count, bits = piece
    content = np.frombuffer(zlib.decompress(base64.b64decode(bits)), np.uint8)
    return np.unpackbits(content, count=count).tobytes()


def test_every_plan_comes_out_of_the_page_as_it_is_on_the_disk(results):
    data = collect_data(results, 10**9)
    seen = 0
    for model in data["models"]:
        for points in model["curves"].values():
            for point in points:
                if "plan" in point:
                    file = results.folder / "plans" / model["name"] / point["file"]
                    assert b"".join(unpacked(data, number) for number in point["plan"]) == file.read_bytes()
                    seen += 1
    assert seen == 2 * 4 * 3


def test_the_page_knows_which_states_stay(results):
    data = collect_data(results, 10**9)
    for model in data["models"]:
        systems = sp.read(sp.load(model["file"]))
        for layer, system in zip(model["layers"], systems.values(), strict=True):
            np.testing.assert_array_equal(
                np.frombuffer(base64.b64decode(layer["decay"]), "<f4"), system.log_poles.real.astype("f4")
            )
        for method in ("last", "global-hinf"):
            for point in model["curves"][method][1:]:
                plan = sp.make_plan(systems, point["ratio"], {"last": sp.LAST}.get(method, sp.GLOBAL_HINF))
                keep = [np.frombuffer(unpacked(data, number), bool) for number in point["keep"]]
                np.testing.assert_array_equal(np.concatenate(keep), np.concatenate(list(plan.keep.values())))
                assert point["states"] == [2 * part.sum() for part in keep]


def test_plans_that_do_not_fit_come_with_the_command_that_makes_them(results):
    whole = collect_data(results, 10**9)
    curves = [curve for model in whole["models"] for curve in model["curves"].values()]
    for point in (point for curve in curves for point in curve):
        point.pop("plan", None)  # what is known before plans are put in
    sizes = [len(piece) if isinstance(piece, str) else len(json.dumps(piece)) for piece in whole["pieces"]]
    needed = len(json.dumps(whole["models"])) + sum(sizes)
    data = collect_data(results, needed - 1)
    points = [
        (method, point) for model in data["models"] for method, curve in model["curves"].items() for point in curve
    ]
    [(method, point)] = [(method, point) for method, point in points if "file" in point and "plan" not in point]
    assert (method, point["ratio"]) == ("surgeon", 0.25)  # the largest
    assert point["keep"]
    assert "ssmprune sweep " in point["command"]
    assert " --methods surgeon --ratios 0.25 --seeds 0 --examples 40 " in point["command"]


def test_a_cut_file_joins_again(results):
    for path in (results.folder / "plans").rglob("*.safetensors"):
        cut = Cut.read(path)
        assert b"".join(cut.pieces) == path.read_bytes()
        plan = sp.Plan.load(path)
        assert {layer: cut.pieces[place] for layer, place in cut.keep.items()} == {
            layer: keep.tobytes() for layer, keep in plan.keep.items()
        }


def test_the_page_refers_to_nothing_outside_itself(page):
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=(?!\"data:)", page)
    assert "default-src 'none'" in page
    assert "/*" + "DATA*/" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    names = [method["name"] for method in data["methods"]]
    assert names == ["last", "surgeon", "global-hinf", "random", "unstructured-random"]
    assert sorted(names) == sorted(METHODS)
    assert all(method["line"] for method in data["methods"])
    assert data["first"] == 5
    assert len(page) < 2_000_000


def test_every_approach_of_a_sweep_is_explained():
    assert set(LINES) == set(approaches.default())


def test_the_page_opens_on_what_is_best_on_all_models_that_have_it(results):
    def better(cell):
        return replace(cell, accuracy=0.99) if (cell.method, cell.checkpoint) in best else cell

    best = {("surgeon", "tiny-s5"), ("surgeon", "tiny-s4d")}
    changed = replace(results, cells=[better(cell) for cell in results.cells])
    names = [method["name"] for method in collect_data(changed, 10**9)["methods"]]
    assert names[:2] == ["surgeon", "last"]


def test_points_have_wilsons_interval(results):
    for model in collect_data(results, 10**9)["models"]:
        for point in (point for curve in model["curves"].values() for point in curve):
            assert point["interval"] == pytest.approx(interval(point["accuracy"], 40), abs=1e-5)


def test_a_sweep_without_pruned_models_is_refused(results):
    full = [cell for cell in results.cells if cell.method == "full"]
    with pytest.raises(sp.InputError, match="no pruned model yet"):
        collect_data(Results(results.folder, results.about, full), 10**9)


def test_the_command_says_what_it_wrote(results, tmp_path, monkeypatch, capsys):
    out = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["ssmprune", "report", str(results.folder), "--out", str(out), "--json"])
    with pytest.raises(SystemExit) as leave:
        main()
    assert not leave.value.code
    said = json.loads(capsys.readouterr().out)
    assert said == {"page": str(out), "bytes": out.stat().st_size, "plans": 24, "left out": 0}
