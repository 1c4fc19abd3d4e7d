"""Exported models in a real browser: they compute what the checkpoint does, the page streams, nothing is fetched."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

import ssmprune as sp
from chromium import PATIENCE, chromium
from deploy.test_c_contract import inputs_of, random_models, shrunk_models
from ssmprune.deploy.c.source import exact_logits
from ssmprune.deploy.wasm import write_page
from ssmprune.integers.reference import Reference
from ssmprune.integers.whole import whole_of
from ssmprune.tasks import smnist

SHIPPED = Path(sp.__file__).parent / "demo/smnist-s5.safetensors"
STREAM = "model.reset(); for (const x of arguments[0]) model.step(x); return [Array.from(model.logits), model.best]"


@pytest.fixture(scope="module")
def driver():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def images():
    """Packaged test images, pixels (examples, 784, 1) in [0, 1], with their labels."""
    pixels, labels = smnist.read_mnist("test", smnist.SAMPLE)
    return torch.from_numpy(pixels[:100].reshape(-1, 784, 1) / np.float32(255)), labels[:100]


@pytest.fixture
def opened(driver, tmp_path):
    """Write a model's page and open it from the disk; afterwards its console is clean and nothing was asked for."""
    pages = []

    def open_page(model, task=None):
        pages.append(tmp_path / f"page-{len(pages)}.html")
        write_page(model, pages[-1], task)
        driver.get(pages[-1].as_uri())
        wait(driver, "window.model")
        return driver

    yield open_page
    assert not [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    requests = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert requests == {page.as_uri() for page in pages}


def wait(driver, condition):
    return WebDriverWait(driver, PATIENCE, poll_frequency=0.05).until(
        lambda _: driver.execute_script(f"return Boolean({condition})")
    )


def logits_of(model, x):
    """What torch gives after the last step, in double precision: in single it is off by 1e-4 itself."""
    logits = exact_logits(model, x[None].numpy())[0]
    return logits[-1] if model.config.pooling == "none" else logits


def words_of(model, x):
    whole = whole_of(model)
    words = Reference(whole)(whole.units.samples(x[None].numpy()))[0]
    return words[-1] if model.config.pooling == "none" else words


@pytest.mark.parametrize("ratio", [0, 0.8])
def test_an_image_gets_the_logits_of_the_checkpoint(opened, images, ratio):
    x, labels = images
    model = sp.load(SHIPPED)
    model = sp.prune(model, ratio, data=[x]) if ratio else model
    page, compiled = opened(model, "smnist"), sp.compile(model)
    for i in range(3):
        logits, best = page.execute_script(STREAM, x[i].tolist())
        assert np.abs(logits - logits_of(model, x[i])).max() < 1e-4
        assert np.abs(logits - compiled(x[i : i + 1].numpy())[0]).max() < 1e-4
        assert best == labels[i]


def test_an_image_gets_the_words_of_the_reference(opened, images):
    x, labels = images
    model = sp.quantize(sp.load(SHIPPED), data=[x], arithmetic="integer")
    page = opened(model, "smnist")
    for i in range(3):
        words, best = page.execute_script(STREAM, x[i].tolist())
        assert words == words_of(model, x[i]).tolist()
        assert best == labels[i]


def test_all_kinds_of_models_stream(opened):
    """Families, activations, norms, poolings, tokens; in floats, in weights of 4 and 8 bits, in whole numbers."""
    models = random_models() | shrunk_models()
    streaming = [m for m in models.values() if not m.config.bidirectional and not m.config.retrieval]
    assert {model.config.tokens for model in streaming} == {True, False}
    for i, model in enumerate(streaming):
        x = inputs_of(model.config)[0]
        rounded = sp.quantize(model, (4, 8)[i % 2], data=[x])
        for variant in (model, rounded) if i % 2 else (model,):
            logits, _ = opened(variant).execute_script(STREAM, x[0].tolist())
            wanted = logits_of(variant, x[0])
            assert np.abs(logits - wanted).max() < 1e-4 * max(1, np.abs(wanted).max())
        whole = sp.quantize(model, data=[x], arithmetic="integer")
        assert opened(whole).execute_script(STREAM, x[0].tolist())[0] == words_of(whole, x[0]).tolist()


def test_a_drawn_digit_is_read(opened):
    page = opened(sp.load(SHIPPED), "smnist")
    strokes = {1: [(0, -90), (0, 180)], 7: [(-60, -80), (120, 0), (-70, 170)]}  # a point from the centre, then moves
    for digit, (start, *moves) in strokes.items():
        page.find_element("id", "clear").click()
        assert page.find_element("id", "answer").text == "No step yet."
        hand = ActionChains(page).move_to_element_with_offset(page.find_element("id", "pad"), *start).click_and_hold()
        for move in moves:
            hand = hand.move_by_offset(*move)
        hand.release().perform()
        wait(page, "document.body.dataset.streamed === '784'")
        assert page.find_element("id", "answer").text == f"After 784 steps: class {digit}."
        assert page.find_element("css selector", ".best th").text == str(digit)


def test_numbers_are_streamed_and_wrong_ones_told(opened):
    model = next(m for m in random_models().values() if not (m.config.bidirectional or m.config.tokens))
    page, x = opened(model), inputs_of(model.config)[0][0]
    field = page.find_element("id", "numbers")
    field.send_keys(" ".join(map(str, x.ravel().tolist())))
    page.find_element("id", "run").click()
    wait(page, f"document.body.dataset.streamed === '{len(x)}'")
    assert np.abs(page.execute_script("return Array.from(model.logits)") - logits_of(model, x)).max() < 1e-4
    for wrong in ("1 2 three 4", "1"):
        field.clear()
        field.send_keys(wrong)
        page.find_element("id", "run").click()
        wait(page, "document.getElementById('wrong').textContent")
    assert page.find_element("id", "wrong").text == f"Expected {model.config.inputs} numbers for a step, got 1."


def test_other_pages_import_the_module(driver, images, tmp_path):
    """From a server, as a page of one's own would: browsers import no modules from the disk."""
    model = sp.load(SHIPPED)
    write_page(model, tmp_path / "my digits.html", "smnist")
    (tmp_path / "index.html").write_text("<!doctype html><title>mine</title><link rel='icon' href='data:,'>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = """const [steps, done] = arguments;
        import("./my%20digits.js").then(async ({ load }) => {
            const [a, b] = [await load(), await load()]; // two streams, each with a memory of its own
            for (const x of steps) { a.step(x); b.step(0); }
            done([Array.from(a.logits), a.id]);
        }).catch((error) => done(String(error)))"""
    try:
        driver.get(f"http://127.0.0.1:{server.server_port}/index.html")
        logits, name = driver.execute_async_script(script, images[0][0].tolist())
    finally:
        server.shutdown()
        server.server_close()
    assert np.abs(logits - logits_of(model, images[0][0])).max() < 1e-4
    assert name.startswith(f"ssmprune {sp.__version__}, ")
    driver.get_log("browser"), driver.get_log("performance")  # not those of the next test
