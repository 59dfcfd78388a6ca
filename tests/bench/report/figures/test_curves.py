import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.curves import (
    convergence_figure,
    forgetting_figure,
    runs_ended_early,
    sensitivity_figure,
)
from afor.bench.stats.sensitivity import Sensitivity


def test_a_curve_is_the_mean_of_the_runs_that_reached_the_epoch():
    figure = convergence_figure({"deap": {"adam": [[1.0, 0.5, 0.25], [3.0, 1.5]], "afor": [[1.0]]}})
    line = figure.axes[0].lines[0]
    assert line.get_ydata().tolist() == [2.0, 1.0, 0.25]
    assert line.get_xdata().tolist() == [1, 2, 3]


def test_two_data_sets_get_two_axes_of_the_same_span():
    points = {
        "deap": [(0.9, 61.0, 7.0), (0.99, 63.0, 7.0)],
        "isruc": [(0.9, 66.0, 3), (0.99, 66.5, 3)],
    }
    figure = sensitivity_figure([Sensitivity("β₂ min", 0.99, points)])
    spans = [np.ptp(axis.get_ylim()) for axis in figure.axes]
    assert len(spans) == 2
    assert spans[0] == pytest.approx(spans[1])
    heights = [
        axis.transAxes.inverted().transform(axis.transData.transform((0, points[name][0][1])))[1]
        for axis, name in zip(figure.axes, points, strict=True)
    ]
    assert heights[0] > 0.5 > heights[1]  # on halves of their own they cannot cross


def test_the_default_is_marked_and_its_margin_is_a_band():
    points = {"deap": [(0.5, 61.0, 7.0), (1.0, 63.0, 7.0)]}
    axis = sensitivity_figure([Sensitivity("w", 1.0, points, 0.5)]).axes[0]
    assert any(list(line.get_xdata()) == [1, 1] for line in axis.lines)  # the dashed line
    box = axis.patches[0].get_bbox()
    assert (box.y0, box.y1) == pytest.approx((62.5, 63.5))


def test_all_panels_span_as_many_points():
    few = {"deap": [(0.5, 61.0, 7.0), (1.0, 61.1, 7.0)]}
    many = {"deap": [(0, 51.0, 7.0), (100, 61.1, 7.0)]}
    figure = sensitivity_figure([Sensitivity("w", 1.0, few), Sensitivity("warm-up", 100, many)])
    spans = [np.ptp(axis.get_ylim()) for axis in figure.axes]
    assert spans[0] == pytest.approx(spans[1])
    assert spans[0] > 10


def test_the_figure_says_how_many_runs_ended_early():
    whole = {"deap": {"adam": [[1.0, 0.5], [1.0, 0.4]], "afor": [[1.0, 0.5]]}}
    assert runs_ended_early(whole) == 0
    cut = {"deap": {"adam": [[1.0, 0.5], [1.0]], "afor": [[1.0]]}, "isruc": {"adam": [[1.0]]}}
    assert runs_ended_early(cut) == 2
    note = convergence_figure(cut).legends[0].get_title().get_text()
    assert "2 runs ended early" in note
    note = convergence_figure(whole).legends[0].get_title().get_text()
    assert "mean of 1–2 runs" in note
    assert "early" not in note


def test_losses_stand_on_a_logarithmic_axis_when_they_span_a_lot():
    scales = [
        convergence_figure({"deap": {"adam": [[1.0, last]]}}).axes[0].get_yscale()
        for last in (0.5, 0.01, 0.0)
    ]
    assert scales == ["linear", "log", "linear"]


def test_one_or_three_data_sets_share_an_axis():
    for names in (["deap"], ["deap", "bci2a", "isruc"]):
        points = {name: [(1.0, 60.0, 1.0), (2.0, 61.0, 1.0)] for name in names}
        assert len(sensitivity_figure([Sensitivity("w", 1.0, points)]).axes) == 1


def test_forgetting_spans_the_whole_range_and_calls_no_warm_up_an_end():
    beta2 = [0.9945, 0.99451, 0.99449, 0.9945]  # a movement of 0.2 % of the range
    trace = {"conv": {"beta2": beta2, "beta2_sd": [0.0] * 4, "score": [1.0] * 4}}
    figure = forgetting_figure([trace], warmup_epochs=2.0)
    for axis in figure.axes:
        low, high = axis.get_ylim()
        assert low < 0.99
        assert high > 0.999
    assert figure.axes[2].get_title(loc="left") == "c  the last quarter of the epochs"
    assert len(figure.axes[2].patches) == 1
    within = forgetting_figure([trace], warmup_epochs=4.0).axes[2]
    assert "lies within the warm-up" in within.get_title(loc="left")
    wide = {"conv": {"beta2": [0.92], "beta2_sd": [0.0], "score": [1.0]}}
    assert forgetting_figure([wide]).axes[0].get_ylim()[0] < 0.92


def test_the_boxes_show_the_last_quarter():
    trace = {
        "conv": {"beta2": [0.999] * 6 + [0.99, 0.991], "beta2_sd": [0.0] * 8, "score": range(8)}
    }
    figure = forgetting_figure([trace], [1.0] * 8)
    box = figure.axes[2].patches[0].get_path().vertices[:, 1]
    assert box.max() < 0.992


@pytest.mark.parametrize("draw", [convergence_figure, sensitivity_figure, forgetting_figure])
def test_nothing_to_draw_is_an_error(draw):
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw({})
