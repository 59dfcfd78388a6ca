import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.results import _cliques, folds_figure, gain_figure, rank_figure
from afor.bench.report.registry import focus
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

NASTY = "<script> $x$ a_b"
GAINS = {"adam": 0.0, "adam_again": 0.0, "mars": 0.01, "afor": 0.03, NASTY: 0.0}


@pytest.fixture(scope="module")
def simulated():
    return simulate_results(GAINS, datasets=["bci2a", "isruc"], repetitions=2)


@pytest.fixture(scope="module")
def results(simulated):
    return Results.of(*simulated)


def gain(results):
    return gain_figure(results.needed_comparisons("accuracy"))


def texts(figure):
    figure.canvas.draw()
    return " | ".join(t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text")))


def test_the_gain_figure_has_a_panel_per_data_set_and_draws_the_gains(results):
    figure = gain(results)
    assert len(figure.axes) == 2
    drawn = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    expected = [
        100 * c.gain for c in results.needed_comparisons("accuracy") if c.dataset == "bci2a"
    ]
    assert sorted(drawn) == pytest.approx(sorted(expected))
    assert "equal within 1 point" in texts(figure)
    box = figure.axes[0].patches[0].get_bbox()
    assert (box.x0, box.x1) == pytest.approx((-1, 1))


def test_a_gain_of_an_incomplete_cell_is_hollow(simulated):
    runs, expected = simulated
    lacking = [r for r in runs if (r.method, r.fold) != ("afor", 0)]
    figure = gain(Results.of(lacking, expected))
    faces = [
        line.get_markerfacecolor()
        for line in figure.axes[0].lines
        if len(line.get_xdata()) == 1
    ]  # fmt: skip
    assert faces.count("white") == 1
    assert "hollow" in texts(figure)


def test_names_are_drawn_as_they_are(results):
    assert "<script> \\$x\\$ a_b" in texts(gain(results))


def test_the_folds_figure_names_subjects_and_counts_wins(results):
    comparison = focus(results)
    assert (comparison.method, comparison.dataset) == ("afor", "bci2a")
    text = texts(folds_figure(comparison))
    assert f"better in {comparison.won_tied_lost[0]} of 9" in text
    assert "s01" in text


def test_the_rank_figure_prints_every_rank(results):
    ranks = results.ranks["accuracy"]
    text = texts(rank_figure(ranks))
    for value in ranks.mean_ranks:
        assert f"{value:.2f}" in text


def test_ranks_of_fewer_than_two_tasks_are_refused(simulated):
    runs, expected = simulated
    lacking = Results.of([r for r in runs if r.fold], expected)
    for few in (lacking, Results.of(*simulated).only("bci2a")):
        with pytest.raises(ConfigError, match="fewer than two tasks"):
            rank_figure(few.ranks["accuracy"])


def test_bars_join_the_widest_spans_only():
    assert _cliques([1.0, 2.0, 3.0, 6.0], 2.5) == [(1.0, 3.0)]
    assert _cliques([1.0, 2.0, 3.0, 4.0], 1.5) == [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert _cliques([1.0, 5.0], 1.0) == []


def test_the_note_of_the_rank_figure_is_not_wider_than_the_figure(results):
    figure = rank_figure(results.ranks["accuracy"])
    figure.canvas.draw()
    assert "\ufffd" not in texts(figure)
    (note,) = [t for t in figure.texts if "mean rank over" in t.get_text()]
    assert note.get_window_extent().x0 >= 0
    assert note.get_window_extent().x1 <= figure.bbox.width
