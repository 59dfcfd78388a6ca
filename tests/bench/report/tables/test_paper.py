import pytest

from afor.bench.analyses.landscape.views import landscape_table
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.paper import beside_paper_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.paper_numbers import published_results
from afor.bench.stats.results import Results


def rows_of(table):
    return {row.label: row.cells for row in table.rows if not row.heading}


def test_ours_stands_beside_the_paper_with_difference_and_both_spreads():
    made = simulate_results({"adam": 0, "afor": 0.02, "mine": 0})
    results = Results.of(*made, metrics=["accuracy"])
    conditions, table = results.conditions, beside_paper_table(results)
    record = next(r for r in table.records if (r["dataset"], r["method"]) == ("deap", "afor"))
    paper = published_results()["deap", "eegnet", "afor", "accuracy"]
    ours = conditions["deap", "eegnet", "afor"].summary("accuracy")
    assert (record["paper_mean"], record["paper_sd"]) == (paper.mean, paper.sd)
    assert record["ours_sd"] == pytest.approx(100 * ours[1])
    assert record["difference"] == pytest.approx(100 * ours[0] - paper.mean)
    assert record["paper_gain_over_adam"] == pytest.approx(2.04)
    assert "mine" not in {r["method"] for r in table.records}
    assert len([row for row in table.rows if row.heading]) == 3


def test_the_table_says_which_networks_its_numbers_come_from():
    simulated = simulate_results(
        {"adam": 0, "afor": 0.02}, backbones=("eegnet", "eegnet_authors", "acrnn_authors")
    )
    table = beside_paper_table(Results.of(*simulated, metrics=["accuracy"]))
    families = {r["backbone"]: (r["network"], r["paper_mean"]) for r in table.records}
    assert families["eegnet"][0] == "original"
    assert families["eegnet_authors"][0] == families["acrnn_authors"][0] == "authors"
    assert families["eegnet"][1] == families["eegnet_authors"][1]
    released, original = table.notes[-2:]
    assert released.startswith("ours: EEGNet (authors), ACRNN (authors): the networks that the")
    assert original.startswith("ours: EEGNet: by the network's own publication")


def test_a_store_without_the_papers_cells_says_so():
    results = Results.of(*simulate_results({"mine": 0, "yours": 0}), metrics=["accuracy"])
    with pytest.raises(ConfigError, match="No condition here is also in the paper"):
        beside_paper_table(results)


def test_a_landscape_of_ours_stands_below_the_papers_with_what_the_plane_keeps(bowl):
    table = landscape_table(bowl)
    assert [row.label for row in table.rows if row.heading] == ["paper", "ours"]
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows[3:]}
    assert rows["minimum projected loss"] == ["2.000", "1.000"]
    assert rows["minimum true loss"] == ["2.500", "1.500"]
    assert rows["path in the plane (%)"] == ["0.120", "0.230"]
    assert rows["path length, all dimensions"] == ["40.000", "40.000"]
    assert "deap, eegnet, fold 1, repetition 2; random directions" in table.notes[0]


def test_our_gain_is_the_paired_one_also_of_an_unfinished_study():
    results, expected = simulate_results({"adam": 0, "afor": 0.02}, datasets=["deap"])
    left = [r for r in results if r.method == "adam" or r.fold < 16]
    results = Results.of(left, expected, metrics=["accuracy"])
    (comparison,) = results.comparisons
    table = beside_paper_table(results)
    record = table.records[1]
    assert record["ours_gain_over_adam"] == 100 * comparison.gain
    assert table.notes[1].startswith("DEAP: 32 of the paper's 32 subjects, 5 of 5 repetitions")


def test_stars_are_those_of_the_papers_test():
    made = simulate_results({"adam": 0, "mars": 0.0, "afor": 0.03}, datasets=["deap"])
    results = Results.of(*made, metrics=["accuracy"])
    stars = {r["method"]: r["ours_star"] for r in beside_paper_table(results).records}
    assert stars == {c.method: c.significant for c in results.comparisons} | {"adam": False}
    assert stars["afor"]
