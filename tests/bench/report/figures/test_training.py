import math
from types import SimpleNamespace

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.curves import (
    convergence_figure,
    forgetting_figure,
    loss_curves,
    run_traces,
)
from afor.bench.report.tables.side import convergence_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Curve, Results, TrainingCurves

TRACE = {"conv": {"beta2": [0.99, 0.995], "beta2_sd": [0.0, 0.0], "score": [1.0, 2.0]}}


def trained(losses, *, traced=("afor",), datasets=("bci2a",), **question):
    """Return results whose stores hold these losses by optimizer, and traces of some."""
    made = simulate_results(dict.fromkeys(losses, 0.0), datasets=datasets, repetitions=1)
    results = Results.of(*made, **question)
    by_condition = {
        key: [Curve(np.array(run), np.array(run) + 0.1, 0) for run in losses[key[2]]]
        for key in results.conditions
    }
    history = [SimpleNamespace(train_loss=loss) for loss in (1.0, 0.5)]
    record = SimpleNamespace(history=history, steps=400, traces=TRACE)
    traces = {
        key: [(run, record) for run in condition.runs.values()]
        for key, condition in results.conditions.items()
        if key[2] in traced
    }
    results._training.append(TrainingCurves(by_condition, {}, traces))
    return results


LOSSES = {"afor": [[2.0, 0.5]], "adam": [[1.0, 0.8, 0.6], [3.0, 0.4, 0.2]]}


def test_losses_are_grouped_by_network_and_optimizer_in_the_papers_order():
    curves = loss_curves(trained(LOSSES))
    assert list(curves) == [("bci2a", "eegnet")]
    assert list(curves["bci2a", "eegnet"]) == ["adam", "afor"]
    assert curves["bci2a", "eegnet"]["adam"][1].tolist() == [3.0, 0.4, 0.2]
    assert list(loss_curves(trained(LOSSES, methods=["afor"]))["bci2a", "eegnet"]) == ["afor"]
    axes = convergence_figure(curves).axes
    assert axes[0].get_title(loc="left") == "BCI IV 2a, EEGNet"


def test_losses_are_averaged_over_the_runs_that_reached_the_epoch():
    table = convergence_table(trained(LOSSES))
    labels = [row.label for row in table.rows]
    assert labels == ["BCI IV 2a, EEGNet: epochs 1, 2, 3", "Adam", "AFOR"]
    adam, afor = table.records
    assert (adam["first_mean"], adam["middle_mean"]) == pytest.approx((2.0, 0.6))
    assert adam["last_mean"] == pytest.approx(0.4)
    assert adam["last_sd"] == pytest.approx(math.sqrt(2) * 0.2)
    assert (afor["runs_to_the_end"], afor["runs"]) == (0, 1)
    texts = [cell.text for cell in table.rows[1].cells]
    assert texts == ["2/2", "2.000±1.414", "0.600±0.283", "0.400±0.283"]
    assert [cell.text for cell in table.rows[2].cells] == ["0/1", "2.000", "0.500", "–"]


def test_nothing_trained_is_an_error():
    made = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"])
    with pytest.raises(ConfigError, match="no training loss"):
        convergence_table(Results.of(*made))


def test_traces_come_with_the_loss_of_the_first_run():
    traces, losses, title, warmup = run_traces(trained(LOSSES))
    name = "BCI IV 2a, EEGNet, fold 0, repetition 0"
    assert (len(traces), losses, title) == (9, [1.0, 0.5], name)
    assert warmup == 0.5  # 100 of 400 steps in two epochs
    assert len(forgetting_figure(traces, losses, title, warmup).axes) == 4


def test_an_optimizer_without_traces_is_answered_with_those_that_have_them():
    with pytest.raises(ConfigError, match="Methods with traces: afor"):
        run_traces(trained(LOSSES), "adam")


def test_two_networks_are_not_mixed():
    both = trained(LOSSES, datasets=("bci2a", "deap"))
    with pytest.raises(ConfigError, match="--dataset and --backbone"):
        run_traces(both)
    assert len(run_traces(both.only("deap"))[0]) == 32
