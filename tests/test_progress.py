"""The progress bar: what it draws on a terminal, and the few lines that a file or pipe gets instead."""

import pytest

from ssmprune import progress
from ssmprune.progress import Bar


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("COLUMNS", "120")


def test_a_bar_shows_text_counts_and_figures_and_says_lines(terminal, capsys):
    with Bar("Training", 4) as bar:
        bar.show(3, "epoch 1/2", figures="loss 0.5")
        bar.say("half-way")
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("epoch 1/2", "3/4", "loss 0.5", "half-way"):
        assert text in err


def test_a_bar_that_is_not_shown_says_nothing(terminal, capsys):
    with Bar("Training", 4, shown=False) as bar:
        bar.show(3, "epoch 1/2", figures="loss 0.5")
        bar.say("half-way")
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    time = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: time[0])
    return time


def test_a_pipe_gets_plain_lines_and_not_many(clock, capsys):
    with Bar("Evaluating", 1000) as bar:
        for step in range(1000):
            clock[0] = 2.0 * step
            bar.update()
        bar.say("half-way\x1b[31m")
    out, err = capsys.readouterr()
    *lines, said = err.splitlines()
    assert out == ""
    assert len(lines) == 20  # one soon, to say how long it takes, then one for each twentieth but the last
    assert lines[0] == "Evaluating: 6 of 1,000, about 33 minutes left"
    assert lines[1] == "Evaluating: 50 of 1,000, about 32 minutes left"
    assert lines[-1] == "Evaluating: 950 of 1,000, about 2 minutes left"
    assert said == r"half-way\x1b[31m"


def test_a_pipe_hears_of_slow_work_every_ten_minutes_and_of_fast_work_nothing(clock, capsys):
    with Bar(total=100_000) as bar:
        for step in range(1, 41):
            clock[0] = 100.0 * step
            bar.show(step, "smnist-s5, LAST", figures="loss 0.5")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert lines[1] == "smnist-s5, LAST: 7 of 100,000, loss 0.5, about 2778 hours left"
    with Bar("Reading", 1000) as bar:
        for _ in range(1000):
            bar.update()
    assert capsys.readouterr() == ("", "")


def test_the_time_left_is_told_when_a_few_steps_have_shown_it(clock, terminal, capsys):
    """A first step that takes a minute is no reason to speak of hours."""
    with Bar("Recovering", 400) as bar:
        bar.show(0, "Recovering")
        for step in range(1, 4):
            clock[0] = 60.0 + step
            bar.show(step, "Recovering")
            assert bar._bar.tasks[0].fields["left"] == ("" if step < 3 else "about 7 minutes left")
    with Bar("Sweeping", 400) as bar:
        for done in range(300, 305):  # resumed
            clock[0] += 2
            bar.show(done, "Sweeping")
        assert bar._bar.tasks[0].fields["left"] == "about 3 minutes left"


def test_the_time_left_is_at_most_what_is_allowed(clock, terminal, capsys):
    with Bar("Recovering", 400, longest=180) as bar:
        for step in range(6):
            clock[0] = 12.0 * step
            bar.show(step, "Recovering")
        assert bar._bar.tasks[0].fields["left"] == "about 2 minutes left"


def test_a_brief_bar_goes_when_it_is_done(terminal, capsys):
    with Bar("Reading", 3, brief=True) as bar:
        bar.update(3)
    assert "Reading" in capsys.readouterr().err


def test_a_download_is_driven_as_pooch_does(terminal, capsys):
    bar = Bar("archive (2 kB)", in_bytes=True, brief=True)
    bar.total = 2000
    bar.update(1500)
    bar.reset()
    bar.update(2000)
    bar.close()
    err = capsys.readouterr().err
    assert "archive (2 kB)" in err
    assert "2.0/2.0 kB" in err
