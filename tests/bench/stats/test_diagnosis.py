"""What training and validation curves say in words, and what a study says that learned nothing."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from afor.bench import compare
from afor.bench.report.page import render_report
from afor.bench.report.registry import draw_figure
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.diagnosis import diagnose
from afor.bench.stats.results import Curve, Results, TrainingCurves

KEY = ("bci2a", "eegnet", "afor")
GUESS = math.log(4)


def said(train, validation, *, best=5, max_epochs=20, diverged=0):
    runs, expected = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"], repetitions=1)
    protocol = {**runs[0].protocol, "max_epochs": str(max_epochs)}
    results = Results.of([replace(run, protocol=protocol) for run in runs], expected)
    curve = Curve(np.array(train), np.array(validation), best)
    results._training.append(TrainingCurves({KEY: [curve] * 3}, {KEY: diverged}, {}))
    return diagnose(results)


def falling(low, epochs=20, start=GUESS):
    return np.linspace(start, low, epochs)


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        ((falling(GUESS - 0.01), falling(GUESS)), "never left ln 4 = 1.386"),
        ((falling(0.4), falling(GUESS + 0.2)), "falls to 0.400 and the validation loss does not"),
    ],
)
def test_a_clear_fault_is_named(curves, words):
    (sentence,) = said(*curves)
    assert sentence.startswith("BCI IV 2a, EEGNet, AFOR: ")
    assert words in sentence


def test_a_training_that_stopped_while_improving_and_runs_that_diverged_are_counted():
    (sentence,) = said(falling(0.4), falling(0.5), best=19)
    assert "3 of 3 runs were best in the last epochs" in sentence
    assert said(falling(0.4), falling(0.5), best=19, max_epochs=40) == []  # it ended by itself
    (sentence,) = said(falling(0.4), falling(0.5), diverged=2)
    assert "2 of 5 runs diverged; lower the learning rate" in sentence


def test_a_sound_training_is_not_commented():
    assert said(falling(0.4), falling(0.6), best=12) == []


def trials(people=6, number=16, rate=64):
    """Return people whose classes differ by a rhythm on one channel."""
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], people * number // 2)
    data = rng.normal(0, 10, (people * number, 3, rate))
    data[labels == 1, 1] += 30 * np.sin(2 * np.pi * 10 * np.arange(rate) / rate)
    return data, labels, np.repeat([f"p{i}" for i in range(people)], number)


@pytest.mark.usefixtures("train_here")
def test_a_task_trained_too_shortly_has_advice_and_trained_well_a_verdict(tmp_path):
    paths = {"store": tmp_path / "x.db", "cache_dir": tmp_path / "cache"}
    options = {"rate_hz": 64, "batch_size": 16, "progress": False, **paths}
    short = compare(*trials(), max_epochs=1, lr=1e-5, **options)
    assert "No verdict: neither network is better than guessing (50.0 % of 2 classes)." in (
        short.verdict()
    )
    page = re.sub(r"\s+", " ", render_report(short.results))
    first_screen = page[: page.index("<nav")]
    assert "No verdict" in first_screen
    assert "a linear model gets 100.0 %, this network" in first_screen
    assert "raise the learning rate or the number of epochs" in first_screen
    assert "would settle" not in page
    assert any("never left ln 2" in sentence for sentence in short.diagnosis())
    assert "never left ln 2" in first_screen

    well = compare(*trials(), max_epochs=30, patience=30, lr=1e-2, **options)
    assert not re.search("No verdict|guessing", well.verdict())
    assert well.results.comparisons[0].learned.above
    assert "a linear model gets" not in " ".join(well.table().content.notes)
    # the level of guessing is a line of the static figure, the validation loss another
    axis = draw_figure("learning", well.results).axes[0]
    assert any(np.allclose(line.get_ydata(), math.log(2)) for line in axis.lines)
    assert len(axis.lines) == 2 * 2 + 1

    # on data that share no condition with the paper nothing of the paper appears
    page = render_report(well.results)
    for words in ("Beside the paper", "deap", "--method", "Mean rank", "the paper"):
        assert words not in page.split("<script")[0], words
    assert "notebook</h1>" in page
    assert "adamw, afor on notebook." in page
