import re

import pytest

from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.tables.main import comparison_table, main_table
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.simulated import simulate_results

GAINS = dict.fromkeys(PAPER_OPTIMIZERS, 0.0) | {"mars": 0.03, "afor": 0.06}


@pytest.fixture(scope="module")
def simulated():
    return simulate_results(
        GAINS | {"adam_again": 0.0}, datasets=["bci2a"], backbones=["eegnet", "acrnn"]
    )


def rows_of(table):
    return {row.label: row.cells for row in table.rows if not row.heading}


def test_the_main_table_marks_best_second_and_significant(simulated):
    table = main_table(collect_conditions(*simulated))
    rows = rows_of(table)
    assert [c.label for c in table.columns] == ["Acc", "wF1"] * 2
    assert all(condition.best and condition.star for condition in rows["AFOR"])
    assert all(condition.second for condition in rows["MARS"])
    assert not any(condition.best or condition.second for condition in rows["Adam"])
    assert not any(condition.star for condition in rows["Adam"])
    assert "Adam again" not in rows


def test_every_printed_mean_and_sd_is_the_cells(simulated):
    conditions = collect_conditions(*simulated)
    table = main_table(conditions)
    for record in table.records:
        mean, sd, _ = conditions[
            record["dataset"], record["backbone"], record["optimizer"]
        ].summary(record["metric"])
        assert (record["mean"], record["sd"]) == (mean, sd)
    printed = [cell.text for row in table.rows for cell in row.cells if "±" in cell.text]
    for record in table.records:
        assert f"{100 * record['mean']:.2f}±{100 * record['sd']:.2f}" in printed
    assert len(table.records) == 7 * 2 * 2


def test_incomplete_cells_show_done_of_expected_and_are_neither_starred_nor_ranked(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.backbone, r.optimizer, r.fold) != ("eegnet", "afor", 8)]
    table = main_table(collect_conditions(lacking, expected))
    afor = rows_of(table)["AFOR"]
    assert [condition.partial for condition in afor] == ["40/45", "40/45", "", ""]
    assert not any(condition.star or condition.best or condition.second for condition in afor[:2])
    assert all(condition.star and condition.best for condition in afor[2:])
    assert all(condition.best for condition in rows_of(table)["MARS"][:2])
    assert any("Incomplete: 1 of 16 conditions lack 5 runs" in note for note in table.notes)


def test_a_cell_without_a_run_is_a_dash_with_its_count(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.backbone, r.optimizer) != ("eegnet", "afor")]
    afor = rows_of(main_table(collect_conditions(lacking, expected)))["AFOR"]
    assert (afor[0].text, afor[0].partial) == ("–", "0/45")


def test_majority_and_chance_stand_below_every_data_set(simulated):
    rows = rows_of(main_table(collect_conditions(*simulated)))
    assert rows["Majority class"][0].text == "30.00±0.00"
    assert rows["Chance (95 %)"][0].text == "26.32"
    assert rows["Chance (95 %)"][1].text == "–"


def test_the_notes_say_how_many_folds_and_the_smallest_p(simulated):
    notes = " ".join(main_table(collect_conditions(*simulated)).notes)
    assert "n = 9 folds, smallest attainable p 0.002, after Holm 0.012." in notes
    assert "Holm over 6 comparisons" in notes
    few = collect_conditions([r for r in simulated[0] if r.fold < 3])
    assert "No star is possible with so few folds." in " ".join(main_table(few).notes)


def test_a_gain_inside_the_noise_is_marked_and_one_without_controls_is_not(simulated):
    results, expected = simulated
    rows = rows_of(main_table(collect_conditions(*simulated)))
    assert any(condition.inside_noise for condition in rows["AdamW"])
    assert not any(condition.inside_noise for condition in rows["AFOR"])
    alone = [r for r in results if r.optimizer != "adam_again"]
    planned = [e for e in expected if e.optimizer != "adam_again"]
    table = main_table(collect_conditions(alone, planned))
    assert not any(cell.inside_noise for row in table.rows for cell in row.cells)
    assert any("No A/A controls" in note for note in table.notes)


def test_the_comparisons_print_what_they_record(simulated):
    table = comparison_table(collect_conditions(*simulated), ["accuracy"])
    records = {(r["backbone"], r["optimizer"]): r for r in table.records}
    assert len(records) == 12
    record = records["eegnet", "afor"]
    row = next(row for row in table.rows if row.label == "AFOR")
    assert row.cells[0].text == f"{100 * record['gain']:+.2f}"
    assert row.cells[3].text == f"{record['p']:.3f}"
    assert re.fullmatch(r"\+\d\.\d\d to \+\d\.\d\d", row.cells[1].text)
