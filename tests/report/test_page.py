import base64
import json
import re
import shlex
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

import ssmprune as sp
from ssmprune.budgets import wilson_interval
from ssmprune.cli import main
from ssmprune.methods import GLOBAL_HINF
from ssmprune.report.page import collect_data, write
from ssmprune.sweeps import approaches
from ssmprune.sweeps.store import Results
from tiny_results import METHODS, tiny_results, with_cells


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tiny_results(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(results, path)
    return path.read_text()


def keep_of(point, states):
    """The masks of a point, layer by layer."""
    packed = [np.frombuffer(base64.b64decode(text), np.uint8) for text in point["keep"]]
    return [np.unpackbits(bits, count=n).astype(bool) for bits, n in zip(packed, states, strict=True)]


def test_the_page_links_to_every_plan_and_says_how_to_replay_it(results):
    data = collect_data(results, results.folder.parent)
    seen = 0
    for model in data["models"]:
        for points in model["curves"].values():
            for point in (point for point in points if "plan" in point):
                path = results.folder.parent / point["plan"]
                assert sp.Plan.load(path).ratio == point["ratio"]
                words = ["ssmprune", "prune", results.entry(model["name"])["file"], "--from-plan", str(path)]
                assert shlex.split(point["command"]) == [*words, "--out", "small.safetensors"]
                seen += 1
    assert seen == 2 * 4 * 3


def test_without_plans_the_page_takes_masks_and_links_to_nothing(results, tmp_path):
    planned = [cell for cell in results.cells if results.plan_path(cell).is_file()]
    masks = {(cell.checkpoint, cell.method, cell.ratio, cell.seed): results.plan(cell).keep for cell in planned}
    bare = Results(tmp_path, results.about, results.outcomes)
    wanted, found = collect_data(results, results.folder), collect_data(bare, tmp_path, masks)
    for model in wanted["models"]:
        for points in model["curves"].values():
            for point in points:
                for name in ("plan", "command"):
                    point.pop(name, None)
    assert found == wanted
    assert not any("keep" in p for m in collect_data(bare, tmp_path)["models"] for c in m["curves"].values() for p in c)


def test_the_page_knows_which_states_stay(results):
    for model in collect_data(results, results.folder)["models"]:
        systems = sp.read(sp.load(results.checkpoint_file(model["name"])))
        for layer, system in zip(model["layers"], systems.values(), strict=True):
            np.testing.assert_array_equal(
                np.frombuffer(base64.b64decode(layer["decay"]), "<f4"), system.log_poles.real.astype("f4")
            )
        for method in ("last", "global-hinf"):
            for point in model["curves"][method][1:]:
                plan = sp.make_plan(systems, point["ratio"], {"last": sp.LAST}.get(method, GLOBAL_HINF))
                keep = keep_of(point, [system.n for system in systems.values()])
                np.testing.assert_array_equal(np.concatenate(keep), np.concatenate(list(plan.keep.values())))
                assert point["states"] == [2 * part.sum() for part in keep]


def test_new_states_are_not_shown_among_the_old_ones(results, tmp_path):
    """The page has the poles of the unpruned model; a plan that makes others is linked, and marks none of those."""
    shutil.copytree(results.folder, tmp_path / "results")
    for path in (tmp_path / "results" / "plans").rglob("last-*.safetensors"):
        old = sp.Plan.load(path)
        found = sp.read(sp.load(results.checkpoint_file(path.parent.name)))
        sp.make_plan(found, old.ratio, sp.BALANCED).save(path)
    content = collect_data(type(results).read(tmp_path / "results"), tmp_path)
    points = [point for model in content["models"] for point in model["curves"]["last"][1:]]
    assert points
    assert all("plan" in point and "keep" not in point for point in points)


def test_the_page_refers_to_nothing_outside_itself(page):
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=(?!\"data:)", page)
    assert "default-src 'none'" in page
    assert "/*" + "DATA*/" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    names = [method["name"] for method in data["methods"]]
    assert names == ["last", "surgeon", "global-hinf", "random", "unstructured-random"]
    assert sorted(names) == sorted(METHODS)
    assert all(method["description"] for method in data["methods"])
    assert data["first"] == 5
    assert len(page) < 2_000_000


def test_every_approach_of_a_sweep_is_explained():
    assert all(approaches.get(name).description for name in approaches.default())


def test_the_page_opens_on_the_best_method(results):
    def better(cell):
        return replace(cell, accuracy=0.99) if (cell.method, cell.checkpoint) in best else cell

    best = {("surgeon", "tiny-s5"), ("surgeon", "tiny-s4d")}
    changed = with_cells(results, [better(cell) for cell in results.cells])
    names = [method["name"] for method in collect_data(changed, results.folder)["methods"]]
    assert names[:2] == ["surgeon", "last"]


def test_points_have_wilsons_interval(results):
    for model in collect_data(results, results.folder)["models"]:
        for point in (point for curve in model["curves"].values() for point in curve):
            assert point["interval"] == pytest.approx(wilson_interval(point["accuracy"], 40), abs=1e-5)


def test_a_sweep_without_pruned_models_is_refused(results):
    full = {key: cell for key, cell in results.by_key.items() if cell.method == "full"}
    with pytest.raises(sp.InputError, match="no pruned model yet"):
        collect_data(Results(results.folder, results.about, full), results.folder)


def test_the_command_reports_bytes_and_plans(results, tmp_path, monkeypatch, capsys):
    out = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["ssmprune", "report", str(results.folder), "--out", str(out), "--json"])
    with pytest.raises(SystemExit) as leave:
        main()
    assert not leave.value.code
    said = json.loads(capsys.readouterr().out)
    assert said == {"out": str(out), "bytes": out.stat().st_size, "plans": 24}
