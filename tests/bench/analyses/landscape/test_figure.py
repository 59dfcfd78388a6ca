from dataclasses import replace

import numpy as np
import pytest

from afor.bench.analyses.landscape.views import contour_levels, landscape_figure, tick_digits
from afor.bench.report.figures.style import BLACK, VERMILION, save_figure


def test_the_paths_are_drawn_where_they_are_with_the_center_on_top(bowl):
    axis = landscape_figure(bowl).axes[0]
    labelled = [line for line in axis.lines if "path" in str(line.get_label())]
    adam, afor, start = labelled
    assert afor.get_xdata().tolist() == [1.5, 0.5, 0.0]
    assert adam.get_ydata().tolist() == [1.5, 1.0, 0.0]
    assert (adam.get_color(), afor.get_color()) == (BLACK, VERMILION)
    assert axis.lines.index(afor) > axis.lines.index(adam)
    assert start.get_xdata()[0] == 1.5
    stars = [line for line in axis.lines if line.get_marker() == "*" and len(line.get_xdata())]
    assert [(s.get_xdata()[0], s.get_ydata()[0]) for s in stars] == [(1.0, 0.0), (0.0, 0.0)]
    assert axis.get_xlim() == axis.get_ylim() == (-2.0, 2.0)


def test_the_legend_says_what_the_plane_keeps(bowl):
    texts = [text.get_text() for text in landscape_figure(bowl).legends[0].get_texts()]
    assert texts[0] == "Adam: 0.12 % of its path lies in the plane"
    assert texts[1] == "AFOR: 0.23 % of its path lies in the plane"


@pytest.mark.parametrize("directions", ["random", "filter", "pca"])
@pytest.mark.parametrize("kind", ["usual", "flat", "holes", "nothing", "steep"])
def test_every_landscape_can_be_drawn(bowl, directions, kind, tmp_path):
    nan = float("nan")
    loss = {
        "usual": bowl.loss,
        "flat": [[1.25] * 5] * 5,
        "holes": [[nan] * 5, *bowl.loss[1:]],
        "nothing": [[nan] * 5] * 5,
        "steep": [[10.0 ** (i + j) for i in range(5)] for j in range(5)],
    }[kind]
    target = tmp_path / "landscape.svg"
    save_figure(landscape_figure(replace(bowl, directions=directions, loss=loss)), target)
    assert target.stat().st_size > 5000


def test_levels_rise_from_the_lowest_to_the_highest_loss():
    for losses in (np.linspace(1.23, 1.24, 9), np.geomspace(0.1, 1e6, 99), np.full(4, 2.0)):
        levels = contour_levels(losses)
        assert (np.diff(levels) > 0).all()
        assert levels[0] <= losses.min()
        assert levels[-1] >= losses.max()


def test_ticks_that_differ_are_written_apart():
    assert tick_digits(np.array([1.0, 2.0])) == 2
    assert tick_digits(np.array([1.23141, 1.23142])) == 5
