import numpy as np
import pytest

from afor.bench.report.figures.curves import (
    convergence_figure,
    forgetting_figure,
    runs_ended_early,
    sensitivity_figure,
)
from afor.bench.report.tables.variants import sensitivity_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results


def test_a_curve_is_the_mean_of_the_runs_that_reached_the_epoch():
    figure = convergence_figure(
        {("deap", ""): {"adam": [[1.0, 0.5, 0.25], [3.0, 1.5]], "afor": [[1.0]]}}
    )
    line = figure.axes[0].lines[0]
    assert line.get_ydata().tolist() == [2.0, 1.0, 0.25]
    assert line.get_xdata().tolist() == [1, 2, 3]


def varied(gains, **options):
    """Return the table of a sensitivity from simulated results, with the conditions behind it."""
    results = Results.of(*simulate_results(gains, **options), metrics=["accuracy"])
    return sensitivity_table(results), results.conditions


def test_a_setting_is_a_row_and_a_task_a_column_all_of_one_span():
    gains = {"afor": 0.0, "afor_w_0.0": -0.1, "afor_w_2.0": 0.0, "afor_warmup_50": 0.0}
    table, conditions = varied(gains, datasets=["deap", "isruc"])
    figure = sensitivity_figure(table)
    assert len(figure.axes) == 4
    spans = [np.ptp(axis.get_ylim()) for axis in figure.axes]
    assert spans == pytest.approx([spans[0]] * 4)
    assert spans[0] > 5
    names = [axis.get_ylabel().splitlines()[0] for axis in figure.axes]
    assert names == ["DEAP", "ISRUC"] * 2
    drawn = figure.axes[0].lines[0].get_ydata()
    means = [
        100 * conditions["deap", "eegnet", name].summary("accuracy")[0]
        for name in ("afor_w_0.0", "afor", "afor_w_2.0")
    ]
    assert list(drawn) == pytest.approx(means)


def test_several_backbones_are_named_and_not_mixed():
    table, _ = varied(
        {"afor": 0, "afor_w_0.5": 0}, datasets=["deap"], backbones=["eegnet", "acrnn"]
    )
    names = [axis.get_ylabel().splitlines()[0] for axis in sensitivity_figure(table).axes]
    assert names == ["DEAP, EEGNet", "DEAP, ACRNN"]


def test_the_default_is_marked_and_its_margin_is_a_band():
    table, conditions = varied({"afor": 0.0, "afor_w_0.5": 0.0}, datasets=["deap"])
    axis = sensitivity_figure(table).axes[0]
    assert any(list(line.get_xdata()) == [1, 1] for line in axis.lines)  # the dashed line
    box = axis.patches[0].get_bbox()
    mean = 100 * conditions["deap", "eegnet", "afor"].summary("accuracy")[0]
    assert (box.y0, box.y1) == pytest.approx((mean - 1, mean + 1))


def test_the_figure_says_how_many_runs_ended_early():
    whole = {("deap", ""): {"adam": [[1.0, 0.5], [1.0, 0.4]], "afor": [[1.0, 0.5]]}}
    assert runs_ended_early(whole) == 0
    cut = {
        ("deap", ""): {"adam": [[1.0, 0.5], [1.0]], "afor": [[1.0]]},
        ("isruc", ""): {"adam": [[1.0]]},
    }
    assert runs_ended_early(cut) == 2
    note = convergence_figure(cut).legends[0].get_title().get_text()
    assert "2 runs ended early" in note
    note = convergence_figure(whole).legends[0].get_title().get_text()
    assert "mean of 1–2 runs" in note
    assert "early" not in note


def test_losses_stand_on_a_logarithmic_axis_when_they_span_a_lot():
    scales = [
        convergence_figure({("deap", ""): {"adam": [[1.0, last]]}}).axes[0].get_yscale()
        for last in (0.5, 0.01, 0.0)
    ]
    assert scales == ["linear", "log", "linear"]


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
