import numpy as np
import pytest

from afor.bench.analyses.adaptation.memory import (
    Memory,
    active_step,
    log_means,
    memory_figure,
)
from afor.bench.analyses.step_log import Steps
from afor.bench.report.figures.style import save_figure


@pytest.fixture
def memory():
    """Return a made run of 400 steps whose second layer, of two tensors, is active from 200."""
    rng = np.random.default_rng(0)
    zscore = 0.1 * rng.standard_normal((400, 3))
    zscore[200:, 1:] += 2.0
    values = {
        "zscore": zscore,
        "beta2": 0.99 + 0.009 / (1 + np.exp(-zscore)),
        "score": 0.5 + 0.1 * zscore,
        "score_std": np.full_like(zscore, 0.8),
    }
    names = ("first.weight", "second.weight", "second.bias")
    steps = Steps(names, values, np.linspace(1, 0.2, 400), (0.99, 0.999), 100)
    marks = np.array([1, 10, 100, 400])
    apart = np.array([0.0, 1e-5, 1e-3, 0.2])
    distances = dict.fromkeys(("printed", "calibrated", "inactive", "longest", "nudged"), apart)
    return Memory("made, $tiny$", steps, steps, marks, distances, 0.9945, apart)


def test_means_over_logarithmic_bins_hold_every_step_once() -> None:
    values = np.arange(1.0, 1001.0)[:, None]
    at, means = log_means(values)
    assert at[0] == 1.0
    assert at[-1] < 1000
    np.testing.assert_allclose(means[:, 0], at, rtol=0.15)  # the mean step lies in its bin
    constant = log_means(np.full((37, 2), 0.25))[1]
    assert (constant == 0.25).all()


def test_the_figure_shows_both_forms_and_the_distance(memory, tmp_path) -> None:
    figure = memory_figure(memory)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert "AFOR as printed" in titles
    assert "calibrated statistics" in titles
    texts = [text.get_text() for axis in figure.axes for text in axis.texts]
    texts = [text for text in texts if "active" in text]
    assert texts == [f"half active from step {active_step(memory.printed)}"] * 2
    distance = figure.axes[-1]
    assert len(distance.get_lines()) == 6  # five trainings and the line at a tenth
    assert np.isnan(distance.get_lines()[0].get_ydata()[0]), "no distance has no logarithm"
    save_figure(figure, tmp_path / "memory.pdf")
    assert (tmp_path / "memory.pdf").stat().st_size > 1000
