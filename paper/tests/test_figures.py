import numpy as np
import pytest

import ssmprune as sp
from ssmprune.methods import GLOBAL_HINF
from ssmprune.report import method_curves
from ssmprune.report.style import STYLES
from ssmprune.sweeps import Results
from ssmprune_paper import figures
from ssmprune_paper.cli import run
from ssmprune_paper.figures import stability
from tiny_results import METHODS, RATIOS, renamed, tiny_results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tiny_results(tmp_path_factory.mktemp("figures"))


def drawn(results, kind, **chosen):
    return figures.draw(kind, results, figures.choose(results, **chosen)).axes


def test_curves_are_means_over_seeds_of_the_sweeps_own_cells(results):
    found = method_curves(results, "tiny-s5")
    assert list(found) == METHODS
    assert found["last"].ratios == [0, *RATIOS]
    np.testing.assert_allclose(found["last"].accuracy, 0.95)
    np.testing.assert_allclose(found["random"].accuracy, [0.95, *(0.95 - 0.5 * np.array(RATIOS))])
    np.testing.assert_allclose(found["random"].deviation, [0, *(0.1 * np.array(RATIOS))])


def test_the_trade_off_has_the_first_six_methods_of_every_checkpoint(results):
    panels = drawn(results, "trade-off")
    assert [panel.get_title().split()[0] for panel in panels] == ["tiny-s5", "tiny-s4d"]
    for panel in panels:
        lines = {line.get_label(): line for line in panel.get_lines()}
        assert list(lines) == ["Surgeon", "LAST", "Global H∞", "Random", "Unstructured random", "unpruned"]
        np.testing.assert_allclose(lines["Surgeon"].get_xdata(), [0, 25, 50, 75])
        np.testing.assert_allclose(lines["Surgeon"].get_ydata(), 95 - 60 * np.array([0, *RATIOS]))
        assert len(panel.collections) == 1  # the band of the only method with two seeds


def test_styles_differ_in_more_than_colour():
    looks = [(look["marker"], look["linestyle"], "markerfacecolor" in look) for look in STYLES]
    assert len(set(looks)) == len(STYLES) == 14


def test_scores_fall_and_the_line_is_what_last_keeps(results):
    hinf, last = drawn(results, "scores", ratio=0.5)
    for panel in (hinf, last):
        *layers, _ = panel.get_lines() if panel is last else [*panel.get_lines(), None]
        assert [len(line.get_ydata()) for line in layers] == [8, 12]
        assert all((np.diff(line.get_ydata()) <= 0).all() for line in layers)
    *layers, cut = last.get_lines()
    scores = np.concatenate([line.get_ydata() for line in layers])
    assert (scores >= cut.get_ydata()[0] * (1 - 1e-12)).sum() == 10


def test_states_per_layer_are_those_of_the_cells(results):
    panels = drawn(results, "states", checkpoint="tiny-s4d")
    assert [panel.get_title() for panel in panels] == ["LAST", "Global H∞", "Random", "Surgeon"]
    kept = np.sum([line.get_ydata() for line in panels[0].get_lines()], axis=0)
    np.testing.assert_array_equal(kept, [40, 30, 20, 10])


def test_poles_are_kept_or_pruned_as_the_plan_says(results):
    systems = sp.read(sp.load(results.checkpoint_file("tiny-s5")))
    plan = sp.make_plan(systems, 0.75, GLOBAL_HINF)
    for panel, layer in zip(drawn(results, "poles", method="global-hinf", ratio=0.75), systems, strict=True):
        pruned, kept = (np.ma.getdata(dots.get_offsets()) for dots in panel.collections)
        poles = systems[layer].poles[plan.keep[layer]]
        np.testing.assert_allclose(sorted(kept @ [1, 1j]), sorted([*poles, *poles.conj()]))
        assert len(pruned) == 2 * (~plan.keep[layer]).sum()


def test_memory_and_frequency_are_those_of_the_poles(results):
    systems = sp.read(sp.load(results.checkpoint_file("tiny-s5")))
    for panel, system in zip(drawn(results, "memory"), systems.values(), strict=True):
        dots = np.concatenate([np.ma.getdata(dots.get_offsets()) for dots in panel.collections])
        memory, frequency = dots[np.argsort(dots[:, 0])].T
        np.testing.assert_allclose(memory, np.sort(np.tile(1 / (1 - np.abs(system.poles)), 2)))
        np.testing.assert_allclose(np.sort(frequency), np.sort(np.angle([*system.poles, *system.poles.conj()]) / np.pi))


def test_the_stability_region_is_where_the_poles_are_inside_the_circle():
    from matplotlib.path import Path

    for a in np.random.default_rng(0).uniform([-2.2, -1.2], [2.2, 1.2], (300, 2)):
        stable = np.abs(np.roots([1, *a])).max() < 1
        assert Path(stability.TRIANGLE).contains_point(a) == stable
        assert Path(stability.DIAMOND).contains_point(a) == (np.abs(a).sum() <= 1)
        assert stable or not Path(stability.DIAMOND).contains_point(a)


@pytest.mark.slow
def test_write_all_draws_every_kind_for_a_checkpoint_of_each_family(results, tmp_path):
    written = figures.write_all(results, tmp_path)
    kinds = [
        f"{kind}-tiny-{family}.png" for kind in ("memory", "poles", "scores", "states") for family in ("s5", "s4d")
    ]
    assert sorted(path.name for path in written) == sorted(["trade-off.png", "stability.png", *kinds])
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_what_the_results_do_not_have_is_an_error(results, tmp_path):
    with pytest.raises(sp.InputError, match="no checkpoint 'other'; they have tiny-s5, tiny-s4d"):
        figures.choose(results, checkpoint="other")
    with pytest.raises(sp.InputError, match="no method 'lamp'; they have last"):
        figures.choose(results, method="lamp")
    with pytest.raises(sp.InputError, match="There is no figure 'pie'; there are memory"):
        drawn(results, "pie")
    with pytest.raises(sp.InputError, match="is missing, so no states of 'unstructured-random'"):
        drawn(results, "poles", method="unstructured-random")
    with pytest.raises(sp.InputError, match="no finished cell yet"):
        figures.choose(Results(tmp_path, results.about))


def test_another_model_in_the_place_of_the_swept_one_is_refused(results, monkeypatch):
    entry = results.about["checkpoints"][0]
    monkeypatch.setitem(entry, "sha256", "0" * 64)
    with pytest.raises(sp.InputError, match="is not the model that was swept"):
        drawn(results, "scores", checkpoint=entry["name"])


@pytest.mark.slow
def test_the_command_draws_a_pdf(results, tmp_path):
    out = tmp_path / "figure.pdf"
    arguments = ["figure", results.folder, "--kind", "poles", "--ratio", 0.25, "--out", out]
    assert run(list(map(str, arguments))) == 0
    assert out.read_bytes().startswith(b"%PDF")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["$\\frac$", "a$b", "{x_1}^"])
def test_figures_take_no_name_for_mathematics(name, tmp_path):
    found = renamed(tiny_results(tmp_path, models=("s5",)), tmp_path / "renamed", name)
    for kind in ("trade-off", "poles", "states"):
        figures.save_figure(figures.draw(kind, found, figures.choose(found)), tmp_path / f"{kind}.png")
