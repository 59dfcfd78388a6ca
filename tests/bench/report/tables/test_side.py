from dataclasses import replace

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.side import datasets_table, noise_table, ranks_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

GAINS = {"adam": 0.0, "adam_again": 0.0, "afor": 0.0}


@pytest.fixture(scope="module")
def results():
    made = simulate_results(GAINS, datasets=["bci2a"], subject_noise=0.002)
    return Results.of(*made, metrics=["accuracy"])


def rows_of(table):
    return {row.label: row.cells for row in table.rows}


def test_the_noise_table_lists_the_replicates(results):
    row = rows_of(noise_table(results))["BCI IV 2a, EEGNet, Acc"]
    assert row[-1].text == "Adam = Adam again"


def test_a_noise_table_without_controls_says_how_to_run_them():
    made = simulate_results({"adam": 0, "afor": 0}, datasets=["bci2a"])
    with pytest.raises(ConfigError, match="afor run controls"):
        noise_table(Results.of(*made))


def test_the_data_sets_are_counted_once_whatever_the_number_of_optimizers(results):
    row = rows_of(datasets_table(results))["BCI IV 2a"]
    assert [condition.text for condition in row] == ["4", "9", "9", "5", "25,920", "30.00"]


def test_the_noise_table_sets_other_seeds_beside_the_same_seeds():
    gains = {"adam": 0, "adam_again": 0, "adamw": 0, "afor_fixed_0999": 0}
    made = simulate_results(gains, datasets=["bci2a"])
    table = noise_table(Results.of(*made, metrics=["accuracy"]))
    row = rows_of(table)["BCI IV 2a, EEGNet, Acc"]
    assert row[0].text == f"{100 * table.records[0]['spread']:.2f}"
    assert row[2].text == f"{100 * table.records[0]['same_seed_sd']:.2f}"


def test_ranks_have_one_column_and_one_caption_per_metric():
    gains = {"adam": 0.0, "afor": 0.2}
    results, expected = simulate_results(gains, datasets=["bci2a", "deap"])
    worse_f1 = [
        replace(r, metrics=r.metrics | {"weighted_f1": -r.metrics["weighted_f1"]})
        if r.dataset == "deap" else r for r in results
    ]  # fmt: skip
    table = ranks_table(Results.of(worse_f1, expected, metrics=["accuracy", "weighted_f1"]))
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["1.00", "1.50"],
        ["2.00", "1.50"],
    ]
    assert table.notes[0].startswith("Acc: mean rank over 2 tasks, 1 is best; critical")
    assert table.notes[1].startswith("wF1: mean rank over 2 tasks, 1 is best; critical")


def test_ranks_are_listed_best_first():
    gains = {"adam": 0.0, "mars": 0.1, "afor": 0.2}
    table = ranks_table(Results.of(*simulate_results(gains), metrics=["accuracy"]))
    assert [row.label for row in table.rows] == ["AFOR", "MARS", "Adam"]
    assert [row.cells[0].text for row in table.rows] == ["1.00", "2.00", "3.00"]


def test_one_task_has_no_mean_ranks(results):
    with pytest.raises(ConfigError, match="fewer than two tasks are complete here"):
        ranks_table(results)
