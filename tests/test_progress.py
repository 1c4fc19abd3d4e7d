"""The progress bar: what it writes where somebody watches, and that it is silent elsewhere."""

import pytest

from ssmprune.progress import Bar, track


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("COLUMNS", "120")


def test_a_bar_shows_text_counts_and_figures_and_says_lines(terminal, capsys):
    with Bar("Training", 4) as bar:
        bar.show(3, "epoch 1/2", "loss 0.5")
        bar.say("half-way")
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("epoch 1/2", "3/4", "loss 0.5", "half-way"):
        assert text in err


def test_a_bar_that_is_not_shown_says_nothing(terminal, capsys):
    with Bar("Training", 4, shown=False) as bar:
        bar.show(3, "epoch 1/2", "loss 0.5")
        bar.say("half-way")
    assert capsys.readouterr() == ("", "")


def test_a_brief_bar_shows_on_a_terminal_only(terminal, capsys, monkeypatch):
    assert list(track(range(3), 3, "Reading")) == [0, 1, 2]
    assert "Reading" in capsys.readouterr().err
    monkeypatch.delenv("FORCE_COLOR")
    assert list(track(range(3), 3, "Reading")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_download_is_driven_as_pooch_does(terminal, capsys):
    bar = Bar("archive (2 kB)", unit="bytes", brief=True)
    bar.total = 2000
    bar.update(1500)
    bar.reset()
    bar.update(2000)
    bar.close()
    err = capsys.readouterr().err
    assert "archive (2 kB)" in err
    assert "2.0/2.0 kB" in err
