import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afor.bench.common.errors import ConfigError
from afor.bench.stats.groups import collect_conditions, mean_sd, paired_fold_values
from afor.bench.store.results import RunResult
from afor.bench.study.planned_runs import ExpectedRuns


def run(method="adam", fold=0, repetition=0, accuracy=0.5, **changes):
    given = RunResult(
        study="s", dataset="deap", backbone="eegnet", method=method, fold=fold,
        repetition=repetition, test_subjects=(f"s{fold}",), metrics={"accuracy": accuracy},
        majority_accuracy=0.5, classes=2, test_windows=100,
    )  # fmt: skip
    return replace(given, **changes)


KEY = ("deap", "eegnet", "adam")


def test_a_fold_counts_once_however_many_draws_it_has():
    runs = [run(fold=0, repetition=d, accuracy=a) for d, a in enumerate([0.4, 0.6])]
    runs += [run(fold=1, repetition=d, accuracy=0.9) for d in range(2)]
    condition = collect_conditions(runs)[KEY]
    assert condition.fold_values("accuracy") == {0: 0.5, 1: 0.9}
    mean, sd, n = condition.summary("accuracy")
    assert (mean, n) == (0.7, 2)
    assert sd == pytest.approx(np.std([0.5, 0.9], ddof=1))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_mean_and_sd_are_numpys_with_ddof_1(values):
    mean, sd, n = mean_sd(values)
    assert n == len(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-6)
    assert sd == pytest.approx(np.std(values, ddof=1), abs=1e-6)


def test_one_fold_has_no_spread_and_none_has_no_mean():
    assert math.isnan(mean_sd([0.5])[1])
    assert math.isnan(mean_sd([])[0])


def test_a_cell_knows_what_is_missing():
    conditions = collect_conditions(
        [run()],
        [ExpectedRuns(*KEY, folds=2, repetitions=3), ExpectedRuns("deap", "eegnet", "afor", 2, 3)],
    )
    assert (conditions[KEY].done, conditions[KEY].expected, conditions[KEY].complete) == (
        1,
        6,
        False,
    )
    other = conditions["deap", "eegnet", "afor"]
    assert (other.done, other.complete, other.has("accuracy")) == (0, False, False)


def test_without_expectations_the_fullest_cell_of_the_data_set_is_the_measure():
    runs = [run("adam", f, d) for f in range(3) for d in range(2)] + [run("afor", 0, 0)]
    conditions = collect_conditions(runs)
    assert conditions[KEY].complete
    assert not conditions["deap", "eegnet", "afor"].complete
    assert conditions["deap", "eegnet", "afor"].expected == 6


def test_the_same_run_from_two_stores_counts_once():
    assert collect_conditions([run(key="k"), run(key="k", study="copy")])[KEY].done == 1


def test_two_different_results_for_one_place_are_refused_with_both_studies():
    with pytest.raises(ConfigError, match=r"study 's' and study 'other'.*--study"):
        collect_conditions([run(key="a"), run(key="b", study="other", accuracy=0.6)])


def test_pairs_use_only_the_draws_both_have():
    runs = [run("adam", 0, 0, 0.5), run("adam", 0, 1, 0.9), run("adam", 1, 0, 0.1)]
    runs += [run("afor", 0, 0, 0.6), run("afor", 2, 0, 0.3)]
    conditions = collect_conditions(runs)
    folds, ours, theirs = paired_fold_values(
        conditions["deap", "eegnet", "afor"], conditions[KEY], "accuracy"
    )
    assert (folds, ours.tolist(), theirs.tolist()) == ([0], [0.6], [0.5])


def test_an_unknown_metric_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no metric 'f2'\. It has: accuracy"):
        collect_conditions([run()])[KEY].fold_values("f2")


def test_cells_come_in_the_papers_order():
    runs = [run("mine"), run("afor"), run("adam"), run("afor", dataset="zzz"), run("sophia")]
    order = list(collect_conditions(runs))
    assert [key[2] for key in order] == ["adam", "sophia", "afor", "mine", "afor"]
