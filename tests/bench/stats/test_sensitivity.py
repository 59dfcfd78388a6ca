import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.variants import sensitivity_table
from afor.bench.stats.comparisons import main_methods
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.results import Results
from afor.bench.stats.sensitivity import sensitivity_of

NAMES = [
    "adam",
    "afor",
    "afor_beta2_min_0.9",
    "afor_beta2_min_0.995",
    "afor_w_0.0",
    "afor_warmup_50",
]


def conditions(**options):
    return collect_conditions(
        *simulate_results(dict.fromkeys(NAMES, 0.0), datasets=["deap"], **options)
    )


def test_entries_are_read_by_name_with_afor_at_the_default():
    found = {setting.label: setting for setting in sensitivity_of(conditions())}
    assert list(found) == ["β₂ min", "direction weight w", "warm-up steps"]
    assert [point[0] for point in found["β₂ min"].points["deap"]] == [0.9, 0.99, 0.995]
    mean, sd, _ = conditions()["deap", "eegnet", "afor"].summary("accuracy")
    assert found["β₂ min"].points["deap"][1] == (0.99, 100 * mean, 100 * sd)
    assert found["warm-up steps"].default == 100


def test_an_unfinished_study_compares_the_folds_that_all_values_have():
    results, expected = simulate_results({"afor": 0, "afor_w_0.5": 0}, datasets=["bci2a"])
    left = [r for r in results if (r.method, r.fold) not in (("afor_w_0.5", 3), ("afor", 4))]
    (setting,) = sensitivity_of(collect_conditions(left, expected))
    whole = [r for r in results if r.fold not in (3, 4)]
    (same,) = sensitivity_of(collect_conditions(whole))
    assert setting.points == same.points
    apart = [r for r in results if (r.method == "afor") == (r.fold < 4)]
    with pytest.raises(ConfigError, match="no fold is finished for every value"):
        sensitivity_of(collect_conditions(apart, expected))


def test_the_margin_of_equivalence_comes_with_it():
    assert {setting.margin for setting in sensitivity_of(conditions())} == {1.0}
    results, expected = simulate_results({"afor": 0, "afor_w_0.5": 0}, datasets=["bci2a"])
    (setting,) = sensitivity_of(collect_conditions(results, expected, {"accuracy": 2.5}))
    assert setting.margin == pytest.approx(2.5)


def test_varied_settings_are_compared_like_all_that_a_study_lists():
    assert main_methods(conditions()) == NAMES


def test_a_store_without_varied_settings_says_how_to_run_them():
    other = collect_conditions(*simulate_results({"adam": 0, "afor": 0}))
    with pytest.raises(ConfigError, match="preset `sensitivity`"):
        sensitivity_of(other)


def test_several_backbones_are_not_mixed():
    with pytest.raises(ConfigError, match="--backbone"):
        sensitivity_of(conditions(backbones=["eegnet", "acrnn"]))


def test_table_and_figure_of_an_unfinished_study_show_the_same_means():
    results, expected = simulate_results({"afor": 0, "afor_w_0.5": 0}, datasets=["bci2a"])
    left = [r for r in results if (r.method, r.fold) not in (("afor_w_0.5", 3), ("afor", 4))]
    unfinished = collect_conditions(left, expected)
    (setting,) = sensitivity_of(unfinished)
    table = sensitivity_table(Results.of(left, expected, metrics=["accuracy"]))
    records = table.records
    drawn = {value: (mean, sd) for value, mean, sd in setting.points["bci2a"]}
    assert {r["value"]: (100 * r["mean"], 100 * r["sd"]) for r in records} == drawn
    (half,) = [r for r in records if r["value"] == 0.5]
    assert 100 * half["change"] == pytest.approx(drawn[0.5][0] - drawn[1.0][0])
