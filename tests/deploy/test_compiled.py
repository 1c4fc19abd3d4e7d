"""The C engine in Python gives the model's answers, and runs nothing that somebody else could have put there."""

import copy
import os
import pickle
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.deploy import build
from ssmprune.deploy.compiled import compile
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

pytestmark = pytest.mark.slow

SMALL = {"outputs": 4, "width": 6, "states": (5, 3)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def classifier(family="s5", inputs=3, **options):
    torch.manual_seed(0)
    return Classifier(Config(family, inputs=inputs, **SMALL, **options)).eval()


def close(ours, theirs):
    return np.abs(np.asarray(ours) - theirs.numpy()).max() <= 1e-5 * theirs.abs().max()


def forward(model, *arguments):
    with torch.no_grad():
        return model(*arguments)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_and_padding(threads, cache):
    model, x, lengths = classifier(), torch.randn(7, 20, 3), torch.tensor([20, 1, 5, 20, 3, 2, 19])
    fast = compile(model, threads=threads, cache=cache)
    assert close(fast(x), forward(model, x))
    assert close(fast(x, lengths), forward(model, x, lengths))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("s4d", {"bidirectional": True}),
        ("s5", {"bidirectional": True, "pooling": "none"}),
        ("s5", {"pooling": "none"}),
        ("s5", {"tokens": True, "retrieval": True}),
        ("s4d", {"tokens": True, "retrieval": True, "bidirectional": True, "pooling": "last"}),
    ],
)
def test_every_kind_of_model(family, options, cache):
    model = classifier(family, **options)
    x = torch.randint(0, 3, (4, 20)) if model.config.tokens else torch.randn(4, 20, 3)
    lengths = torch.tensor([20, 7, 1, 12])
    fast = compile(model, threads=2, cache=cache)
    assert close(fast(x), forward(model, x))
    ours, theirs = fast(x, lengths), forward(model, x, lengths)
    if model.config.pooling == "none":  # what a model says about padding is nobody's business
        ours, theirs = (y[torch.arange(20) < lengths[:, None]] for y in (ours, theirs))
    assert close(ours, theirs)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_quantised_models(family, bits, cache):
    model, x = sp.quantize(classifier(family), bits), torch.randn(4, 21, 3)
    fast = compile(model, threads=1, cache=cache)
    assert close(fast(x), forward(model, x))
    stream = fast.stream(batch=4)
    assert close([stream(now) for now in x.unbind(1)][-1], forward(model, x))


@pytest.mark.parametrize("options", [{}, {"pooling": "last"}, {"tokens": True, "retrieval": True}])
def test_streams(options, cache):
    model = classifier(**options)
    x = torch.randint(0, 3, (4, 20)) if model.config.tokens else torch.randn(4, 20, 3)
    stream = compile(model, cache=cache).stream(batch=4)
    ours = [stream(now) for now in x.unbind(1)]
    with torch.no_grad():
        assert close(torch.stack(ours, 1), model.stream(x)[0])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(cache):
    """As with workers of a DataLoader: the parent's threads do not survive the fork."""
    fast, x = compile(classifier(), threads=2, cache=cache), np.ones((8, 20, 3), np.float32)
    logits = fast(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        right = np.array_equal(fast(x), logits)
        fast.close()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(fast(x), logits)


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, lambda whole: pickle.loads(pickle.dumps(whole))])
def test_copies_compute_the_same_and_outlive_the_original(twin_of, tmp_path):
    fast, x = compile(classifier(), threads=2, cache=tmp_path), np.ones((2, 9, 3), np.float32)
    twin, logits = twin_of(fast), fast(x)
    fast.close()
    np.testing.assert_array_equal(twin(x), logits)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(sp.InputError, match="is closed"):
        twin_of(fast)


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, lambda whole: pickle.loads(pickle.dumps(whole))])
def test_a_copy_of_a_stream_is_a_branch(twin_of, cache):
    stream, zero, one = compile(classifier(), cache=cache).stream(), np.zeros((1, 3)), np.ones((1, 3))
    stream(one)
    branch = twin_of(stream)
    steps = [stream(zero), stream(one)]
    other = [branch(zero), branch(zero)]
    np.testing.assert_array_equal(steps[0], other[0])
    assert np.abs(steps[1] - other[1]).max() > 0


def test_reprs_show_sizes(cache):
    fast = compile(classifier(), threads=2, cache=cache)
    assert repr(fast) == "Compiled(s5, 3 -> 4, width 6, states (5, 3), threads=2)"
    assert repr(fast.stream(5)) == "Stream(5 at once, s5, 3 -> 4, width 6, states (5, 3))"
    fast.close()
    assert repr(fast).endswith(", closed)")


@pytest.mark.parametrize(("tokens", "step"), [(False, [1.0, 2.0, 3.0]), (True, 2)])
def test_a_single_stream_takes_a_step_without_its_batch(tokens, step, cache):
    fast = compile(classifier(tokens=tokens), cache=cache)
    expected = fast.stream()(np.array([step]))
    for x in (step, np.array(step), torch.tensor(step)):
        logits = fast.stream()(x)
        assert type(logits) is (torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)
        np.testing.assert_array_equal(logits, expected[0])
    with pytest.raises(sp.InputError, match="shape"):
        fast.stream(2)(step)


def test_streams_do_not_share_their_states(cache):
    fast, x = compile(classifier(), cache=cache), np.ones((1, 3), np.float32)
    first, second = fast.stream(), fast.stream()
    first(x)
    np.testing.assert_array_equal(first(x), [second(x), second(x)][1])


def test_arrays_give_arrays_and_tensors_tensors(cache):
    fast, x = compile(classifier(), cache=cache), torch.randn(2, 9, 3)
    assert isinstance(fast(x), torch.Tensor)
    assert isinstance(fast(x.numpy()), np.ndarray)
    assert isinstance(fast(x.double().numpy()[:, ::2]), np.ndarray)  # whatever the type and the layout
    assert isinstance(fast.stream(2)(x[:, 0]), torch.Tensor)


@pytest.mark.parametrize(
    ("options", "x", "lengths", "message"),
    [
        ({}, np.zeros((2, 5, 4)), None, r"shape \(batch, length, 3\), got float64 of shape \(2, 5, 4\)"),
        ({}, np.zeros((2, 5, 3), complex), None, "got complex128"),
        ({}, np.zeros((0, 5, 3)), None, "at least one sequence"),
        ({}, np.zeros((2, 5, 3)), [5], r"lengths of shape \(2,\)"),
        ({}, np.zeros((2, 5, 3)), [5, 6], "lengths from 1 to 5"),
        ({}, np.zeros((2, 5, 3)), [5, 0], "lengths from 1 to 5"),
        ({"tokens": True}, np.zeros((2, 5)), None, "integer tokens"),
        ({"tokens": True}, np.full((2, 5), 3), None, "tokens 0 to 2, got 3 to 3"),
        ({"tokens": True, "retrieval": True}, np.zeros((3, 5), int), None, "even number of documents"),
    ],
)
def test_what_cannot_be_used_is_refused(options, x, lengths, message, cache):
    with pytest.raises(sp.InputError, match=message):
        compile(classifier(**options), cache=cache)(x, lengths)


def test_streams_refuse_what_they_cannot_do(cache):
    with pytest.raises(sp.InputError, match="whole sequence"):
        compile(classifier(bidirectional=True, family="s4d"), cache=cache).stream()
    with pytest.raises(sp.InputError, match="step of 1 sequences, got 2"):
        compile(classifier(), cache=cache).stream()(np.zeros((2, 3)))
    for threads in (0, 1.5, "two"):
        with pytest.raises(sp.InputError, match="at least one thread"):
            compile(classifier(), threads=threads, cache=cache)


@pytest.mark.parametrize("batch", [0, -1, 1.5, "a", None])
def test_a_stream_has_a_whole_number_of_sequences(batch, cache):
    with pytest.raises(sp.InputError, match=f"at least one sequence.* not {batch!r}"):
        compile(classifier(), cache=cache).stream(batch)
    assert compile(classifier(), cache=cache).stream(np.int64(2))(np.zeros((2, 3))).shape == (2, 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_after_its_end_a_model_refuses_to_be_called(threads, tmp_path):
    fast = compile(classifier(), threads=threads, cache=tmp_path)
    stream = fast.stream()
    fast.close()
    fast.close()
    calls = [lambda: stream(np.zeros((1, 3))), lambda: fast(np.zeros((1, 5, 3))), fast.stream, lambda: fast.state_bytes]
    for call in calls:
        with pytest.raises(sp.InputError, match="is closed"):
            call()


def test_bfloat16_is_read(cache):
    model, x = classifier(), torch.randn(2, 9, 3).bfloat16()
    assert close(compile(model, cache=cache)(x), forward(model, x.float()))


def test_what_is_not_a_number_is_not_hidden(cache):
    x = np.zeros((2, 9, 3))
    x[0, 4, 1] = np.nan
    logits = compile(classifier(), cache=cache)(x)
    assert np.isnan(logits[0]).all()
    assert np.isfinite(logits[1]).all()


def test_the_same_model_is_built_once(tmp_path, monkeypatch):
    compile(classifier(), cache=tmp_path)
    built = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    compile(classifier(), cache=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == built
    monkeypatch.setattr(build, "instruction_set", lambda: "another one")
    compile(classifier(), cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_two_processes_may_build_the_same(tmp_path):
    code = f"""
import numpy as np, torch
from ssmprune.deploy.compiled import compile
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

torch.manual_seed(0)
model = Classifier(Config("s5", inputs=3, **{SMALL!r})).eval()
print(compile(model, cache={str(tmp_path)!r})(np.ones((1, 4, 3))).tolist())
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {process.communicate()[0] for process in processes}
    assert len(outputs) == 1
    assert outputs != {""}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("unsafe", [".", "inner", "inner/cache"])
def test_a_folder_that_others_can_write_is_refused(unsafe, tmp_path):
    cache = tmp_path / "inner" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / unsafe).chmod(0o777)
    with pytest.raises(sp.InputError, match="can be written by others"):
        compile(classifier(), cache=cache)
    assert not any(cache.iterdir())


def test_folders_are_private_whatever_the_umask_is(tmp_path):
    before = os.umask(0o002)
    try:
        compile(classifier(), cache=tmp_path / "new" / "and" / "deep")
    finally:
        os.umask(before)
    made = [tmp_path / "new", tmp_path / "new" / "and", tmp_path / "new" / "and" / "deep"]
    assert [place.stat().st_mode & 0o777 for place in made] == [0o700] * 3


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_library_that_was_cut_short_is_built_again(share, tmp_path):
    model, x = classifier(), torch.randn(2, 9, 3)
    compile(model, cache=tmp_path).close()
    (library,) = tmp_path.iterdir()
    content = library.read_bytes()
    library.unlink()  # one that was loaded must not change
    library.write_bytes(content[: int(share * len(content))])
    library.chmod(0o700)
    assert close(compile(model, cache=tmp_path)(x), forward(model, x))
    assert library.stat().st_size == len(content)


def test_a_library_of_noise_is_built_again(tmp_path):
    model, x = classifier(), torch.randn(2, 9, 3)
    compile(model, cache=tmp_path).close()
    (library,) = tmp_path.iterdir()
    size = library.stat().st_size
    library.unlink()
    library.write_bytes(bytes(size))
    library.chmod(0o700)
    assert close(compile(model, cache=tmp_path)(x), forward(model, x))


def test_what_no_machine_can_load_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "FLAGS", ("-std=c99", "-c"))  # an object file, not a library
    monkeypatch.setattr(build, "NATIVE", {})
    with pytest.raises(sp.InputError, match="compiled model cannot be loaded"):
        compile(classifier(), cache=tmp_path)


def test_a_library_that_others_can_write_is_not_loaded(tmp_path):
    compile(classifier(), cache=tmp_path)
    (library,) = tmp_path.iterdir()
    library.chmod(0o777)
    with pytest.raises(sp.InputError, match="can be written by others"):
        compile(classifier(), cache=tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 12345, 12345)
    with pytest.raises(sp.InputError, match="can be written by others"):
        compile(classifier(), cache=cache)


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(sp.InputError, match=r"needs a C compiler: install gcc or clang, or `pip install"):
        compile(classifier(), cache=tmp_path)


def test_ziglang_takes_the_place_of_a_missing_compiler(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setattr(build, "find_spec", lambda name: object())
    assert build.compiler() == [sys.executable, "-m", "ziglang", "cc"]


@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
def test_what_ziglang_compiles_gives_the_models_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: [sys.executable, "-m", "ziglang", "cc"])
    model, x = classifier(), torch.randn(3, 20, 3)
    assert close(compile(model, cache=tmp_path)(x), forward(model, x))


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(build, "compiler", lambda: [str(broken)])
    with pytest.raises(sp.InputError, match="could not compile the model:\nno room"):
        compile(classifier(), cache=tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("content", [b"", b"\x7fELF not a program", b"#!/no/such/shell\n"])
def test_a_compiler_that_is_no_program_is_told(content, tmp_path, monkeypatch):
    broken = tmp_path / "cc"
    broken.write_bytes(content)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sp.InputError, match=f"{broken} cannot be run: "):
        compile(classifier(), cache=tmp_path / "cache")


def test_libraries_are_kept_in_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.default_folder() == tmp_path / "ssmprune" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert build.default_folder() == Path.home() / ".cache" / "ssmprune" / "compiled"


def test_other_modules_are_refused_by_name():
    with pytest.raises(sp.InputError, match="`compile` takes ssmprune's own classifiers; this is Linear"):
        sp.compile(torch.nn.Linear(2, 2))
