"""The report in a real browser: what is chosen is shown, plans are linked, nothing comes from elsewhere."""

import json
import shlex

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

import ssmprune as sp
from chromium import Page, chromium
from ssmprune.report.page import write
from tiny_results import METHODS, tiny_results

CHARTS = ["#trade-off", "#states", "#poles"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tiny_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def opened(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(results, path)
    with chromium() as driver:
        yield Page(driver, path)


@pytest.fixture
def page(opened):
    """The page, freshly loaded; afterwards its console must be clean and no request may have left it."""
    yield opened.open()
    console = opened.driver.get_log("browser")
    assert not [entry for entry in console if entry["level"] in ("SEVERE", "WARNING")]
    messages = [json.loads(entry["message"])["message"] for entry in opened.driver.get_log("performance")]
    requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith(opened.path.as_uri()) for url in requests)  # else nothing was watched
    assert not [url for url in requests if not url.startswith((opened.path.as_uri(), "data:", "blob:", "about:"))]


def plan_of(results, method, ratio, model="tiny-s5", seed=0):
    return results.folder / "plans" / model / f"{method}-{ratio}-{seed}.safetensors"


def test_the_slider_moves_everything(page, results):
    page.wait_for("tiny-s5", "last", 0.5, 0)
    before = [page.picture(chart) for chart in CHARTS]
    page.find("#ratio").send_keys(Keys.ARROW_RIGHT)
    page.wait_for("tiny-s5", "last", 0.75, 0)
    assert all(old != page.picture(chart) for old, chart in zip(before, CHARTS, strict=True))
    assert page.text("#ratio-text") == "75 %"
    assert page.text("#kept") == "10"
    assert page.text("#speed") == "1.75×"
    assert page.column("trade-off", "chosen", "ratio") == [0.75]
    keep = sp.Plan.load(plan_of(results, "last", 0.75)).keep
    kept = [2 * int(mask.sum()) for mask in keep.values()]
    assert page.column("states", "layers", "kept") == kept
    assert len(page.column("poles", "kept poles", "x")) == kept[0]
    assert len(page.column("poles", "pruned poles", "x")) == 16 - kept[0]
    assert page.text("#rows tr:last-child") == "total 40 10 75.0 %"


def test_the_slider_goes_from_nothing_to_the_largest_ratio(page):
    slider = page.find("#ratio")
    slider.send_keys(Keys.HOME)
    page.wait_for("tiny-s5", "last", 0, 0)
    assert page.text("#accuracy") == "95.0 %"
    assert page.text("#plan-note") == "Nothing is pruned here."
    assert not page.find("#plan").is_displayed()
    assert page.column("poles", "pruned poles", "x") == []
    slider.send_keys(Keys.END)
    page.wait_for("tiny-s5", "last", 0.75, 0)
    assert slider.get_attribute("aria-valuetext") == "75 %"


def test_the_methods_switch(page):
    before = [page.picture(chart) for chart in CHARTS]
    page.method("Random")
    page.wait_for("tiny-s5", "random", 0.5, 0)
    assert before[0] != page.picture("#trade-off")
    assert before[2] != page.picture("#poles")
    assert page.text("#accuracy") == "70.0 %"
    assert page.text("#accuracy-note") == "25.0 points below the unpruned model, ± 5.0 over 2 seeds"
    assert page.text("#speed") == "–"
    page.method("Unstructured random")
    page.wait_for("tiny-s5", "unstructured-random", 0.5, 0)
    assert page.column("poles", "pruned poles", "x") == []
    assert "does not choose among the states" in page.text("#poles-note")
    assert not page.find("#plan").is_displayed()


def test_arrow_keys_switch_methods(page):
    page.find("#methods input:checked").send_keys(Keys.ARROW_RIGHT)
    page.wait_for("tiny-s5", "surgeon", 0.5, 0)


def test_poles_are_shown_by_their_distance_to_the_circle_and_inside_it(page, results):
    poles = sp.read(sp.load(results.checkpoint_file("tiny-s5")))["layers.0.ssm"].poles
    powers = page.column("poles", "kept poles", "x") + page.column("poles", "pruned poles", "x")
    assert sorted(powers)[::2] == pytest.approx(sorted(np.log10(1 - np.abs(poles))), rel=1e-4)
    before = page.picture("#poles")
    page.choose("#plane", "inside the unit circle")
    page.wait_for("tiny-s5", "last", 0.5, 0, "disc")
    assert before != page.picture("#poles")
    inside = page.column("poles", "kept poles", "x") + page.column("poles", "pruned poles", "x")
    assert all(-1 < x < 1 for x in inside)
    chart = "const chart = charts.poles.roots()[0]; const {start, end} = chart.x_range; "
    scale = "return (end - start) / chart.inner_width / (2.2 / chart.inner_height)"
    assert page.driver.execute_script(chart + scale) == pytest.approx(1, abs=0.02)  # the circle is round


def test_it_opens_on_the_method_that_wins_and_says_what_the_rival_reaches(page):
    assert page.shown == "tiny-s5 last 0.5 0 distance"  # LAST loses nothing in these results
    assert page.text("#rival-note") == "Surgeon here: 65.0 %"
    assert page.text("#method-note").startswith("The paper's: the largest gain of each state")
    page.method("Surgeon")
    page.wait_for("tiny-s5", "surgeon", 0.5, 0)
    assert page.text("#rival-note") == "LAST here: 95.0 %"
    assert page.text("#interval-note") == "95 % interval 49.5 to 77.9 %"  # of 40 examples


def test_curves_have_intervals_and_come_and_go_by_a_click(page):
    def seen(part):
        script = "return charts['trade-off'].get_model_by_name(arguments[0]).visible"
        return [name for name in METHODS if page.driver.execute_script(script, f"{part} {name}")]

    assert sorted(seen("line")) == sorted(seen("interval")) == sorted(METHODS)
    low, middle, high = (page.column("trade-off", "random", name) for name in ("low", "accuracy", "high"))
    assert all(a < b < c for a, b, c in zip(low, middle, high, strict=True))
    before = page.picture("#trade-off")
    page.find("#curves input[value='random']").click()
    page.wait(lambda: "random" not in seen("line"))
    assert "random" not in seen("interval")
    assert before != page.picture("#trade-off")
    page.method("Random")  # what is chosen is seen
    page.wait_for("tiny-s5", "random", 0.5, 0)
    assert "random" in seen("line")


def test_each_method_has_a_description(page):
    page.find("#lines summary").click()
    names = [entry.text for entry in page.driver.find_elements("css selector", "#lines dt")]
    lines = [entry.text for entry in page.driver.find_elements("css selector", "#lines dd")]
    assert len(names) == len(lines) == len(METHODS)
    assert all(lines)


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_usable_at_any_width(page, width, dark):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(dark=dark)
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= width
        for chart in CHARTS:
            box = page.find(chart).rect
            assert box["width"] > 0.4 * width if width == 1280 else box["width"] > 0.8 * width
            assert box["height"] >= 280
            assert (
                page.driver.execute_script(f"return charts['{chart[1:]}'].roots()[0].inner_width") > 0.6 * box["width"]
            )
        for part in page.driver.find_elements("css selector", "select, a, fieldset label, #ratio"):
            if part.is_displayed():
                assert part.rect["x"] >= 0, part.text
                assert part.rect["x"] + part.rect["width"] <= width, part.text
                assert part.rect["height"] >= 20, part.text  # a finger can hit it
        page.method("Surgeon")
        page.wait_for("tiny-s5", "surgeon", 0.5, 0)
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_models_and_layers_switch(page):
    page.choose("#layer", "layers.1.ssm")
    page.wait_for("tiny-s5", "last", 0.5, 1)
    kept, pruned = (len(page.column("poles", f"{side} poles", "x")) for side in ("kept", "pruned"))
    assert (kept, kept + pruned) == (page.column("states", "layers", "kept")[1], 24)
    page.choose("#model", "tiny-s4d")
    page.wait_for("tiny-s4d", "last", 0.5, 0)
    assert page.text("#subtitle").startswith("tiny-s4d on smnist")


def test_the_plan_is_linked_where_it_lies(page, results):
    page.method("Surgeon")
    page.find("#ratio").send_keys(Keys.END)
    page.wait_for("tiny-s5", "surgeon", 0.75, 0)
    path = plan_of(results, "surgeon", 0.75)
    assert page.find("#plan").get_attribute("href") == path.as_uri()
    assert shlex.split(page.text("#command"))[3:] == ["--from-plan", str(path), "--out", "small.safetensors"]


def test_the_address_opens_a_point(page):
    page.open(model="tiny-s4d", method="surgeon", ratio=0.25)
    assert page.shown == "tiny-s4d surgeon 0.25 0 distance"
    assert page.driver.current_url.endswith("#model=tiny-s4d&method=surgeon&ratio=0.25")
    page.open(model="none", method="none", ratio="none")
    assert page.shown == "tiny-s5 last 0.5 0 distance"


def test_light_and_dark_are_both_legible(page):
    def ground_and_ink():
        colours = [page.find("body").value_of_css_property(name) for name in ("background-color", "color")]
        axis = page.driver.execute_script("return charts.poles.roots()[0].below[0].axis_label_text_color")
        return [*map(_lightness, colours), axis]

    ground, ink, axis = ground_and_ink()
    assert ground - ink > 150
    page.open(dark=True)
    dark_ground, dark_ink, dark_axis = ground_and_ink()
    assert dark_ink - dark_ground > 150
    assert axis != dark_axis


def test_every_control_has_a_name_and_can_be_reached(page):
    for selector in ("#model", "#ratio", "#layer", "#plan", *(f"input[value='{name}']" for name in METHODS)):
        assert page.find(selector).accessible_name, selector
    for chart in CHARTS:
        assert page.find(chart).aria_role in ("img", "image")
        assert page.find(chart).accessible_name
    reached = []
    for _ in range(30):
        focused = page.driver.switch_to.active_element
        reached.append(focused.get_attribute("id") or focused.get_attribute("name"))
        focused.send_keys(Keys.TAB)
    assert {"model", "method", "ratio", "layer", "plan"} <= set(reached)


def _lightness(colour):
    red, green, blue = (float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_cards_say_bytes_and_how_to_measure_speed(page):
    assert page.text("h1") == "Pruned models: accuracy, size and speed"
    assert page.driver.title.startswith("Pruned models: accuracy, size and speed")
    parameters = page.driver.execute_script("return point().parameters")
    assert page.text("#size-note").endswith(f"{4 * parameters:,} bytes as floats")
    assert page.text("#speed-note") == "as fast as the unpruned model"
    page.method("Surgeon")
    page.wait_for("tiny-s5", "surgeon", 0.5, 0)
    told = "Sweeps do not time models; the command below prints steps per second, before and after."
    assert page.text("#speed-note") == told


def test_no_tools_crowd_the_legend_of_the_states(page):
    """At 420 pixels the tools did not fit beside it and were cut off."""
    assert page.driver.execute_script("return charts.states.roots()[0].toolbar_location") is None
