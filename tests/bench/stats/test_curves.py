from types import SimpleNamespace

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.curves import convergence_figure, forgetting_figure
from afor.bench.stats.curves import loss_curves, run_traces
from afor.bench.stats.design.simulated import simulate_results


@pytest.fixture(scope="module")
def records():
    results, _ = simulate_results({"afor": 0, "adam": 0}, datasets=["bci2a"], draws=1)
    trace = {"conv": {"beta2": [0.99, 0.995], "beta2_sd": [0.0, 0.0], "score": [1.0, 2.0]}}
    return [
        (
            run,
            SimpleNamespace(
                history=[SimpleNamespace(train_loss=loss) for loss in (1.0, 0.5 + run.fold)],
                steps=400,
                traces=trace if run.optimizer == "afor" else {},
            ),
        )
        for run in results
    ]


def test_losses_are_grouped_by_network_and_optimizer_in_the_papers_order(records):
    curves = loss_curves(records)
    assert list(curves) == ["BCI IV 2a, EEGNet"]
    assert list(curves["BCI IV 2a, EEGNet"]) == ["adam", "afor"]
    assert curves["BCI IV 2a, EEGNet"]["adam"][2] == [1.0, 2.5]
    assert list(loss_curves(records, ["afor"])["BCI IV 2a, EEGNet"]) == ["afor"]
    assert convergence_figure(curves).axes[0].get_title(loc="left") == "BCI IV 2a, EEGNet"


def test_traces_come_with_the_loss_of_the_first_run(records):
    traces, losses, title, warmup = run_traces(records)
    assert (len(traces), losses, title) == (9, [1.0, 0.5], "BCI IV 2a, EEGNet, fold 0, draw 0")
    assert warmup == 0.5  # 100 of 400 steps in two epochs
    assert len(forgetting_figure(traces, losses, title, warmup).axes) == 4


def test_an_optimizer_without_traces_is_answered_with_those_that_have_them(records):
    with pytest.raises(ConfigError, match="Optimizers with traces: afor"):
        run_traces(records, "adam")


def test_two_networks_are_not_mixed(records):
    other, _ = simulate_results({"afor": 0}, datasets=["deap"], draws=1)
    with pytest.raises(ConfigError, match="--dataset and --backbone"):
        run_traces([*records, (other[0], records[0][1])])
