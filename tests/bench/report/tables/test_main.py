import json
from dataclasses import replace

import pytest

from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.registry import build_table
from afor.bench.report.tables.comparisons import comparison_table
from afor.bench.report.tables.formats import to_json, to_latex, to_markdown
from afor.bench.report.tables.main import main_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results
from afor.bench.study.roles import Role

GAINS = dict.fromkeys(PAPER_OPTIMIZERS, 0.0) | {"mars": 0.03, "afor": 0.06}


@pytest.fixture(scope="module")
def simulated():
    return simulate_results(
        GAINS | {"adam_again": 0.0}, datasets=["bci2a"], backbones=["eegnet", "acrnn"]
    )


def rows_of(table):
    return {row.label: row.cells for row in table.rows if not row.heading}


def test_the_main_table_marks_best_second_and_verdicts(simulated):
    table = main_table(Results.of(*simulated))
    rows = rows_of(table)
    assert [c.label for c in table.columns] == ["Acc", "wF1"] * 2
    assert all(condition.best for condition in rows["AFOR"])
    assert all(condition.second for condition in rows["MARS"])
    assert not any(condition.best or condition.second for condition in rows["Adam"])
    assert not any(cell.star for row in table.rows for cell in row.cells)  # the paper's alone
    assert all(cell.mark == "↑" for cell in rows["AFOR"])
    assert not any(cell.mark for cell in rows["Adam"])


def test_copies_and_controls_are_listed_below_the_others_without_a_verdict(simulated):
    results, expected = simulated
    marked = [replace(r, role=Role(control=r.method == "sophia")) for r in results]
    marked = [r for r in marked if r.method != "adam_again"]
    planned = [e for e in expected if e.method != "adam_again"]
    table = main_table(Results.of(marked, planned))
    rows = [row for row in table.rows if not row.heading]
    assert [row.label for row in rows[-4:]] == ["AFOR", "Sophia", "Majority class", "Chance level"]
    assert rows[-3].rule
    assert not any(c.mark or c.star or c.best or c.second for c in rows[-3].cells)
    assert "Holm-corrected over 5 comparisons" in table.notes[0]
    assert any(note.startswith("Controls, not compared: Sophia.") for note in table.notes)
    labels = [row.label for row in main_table(Results.of(*simulated)).rows]
    assert labels.index("Adam again") > labels.index("AFOR")


def test_nothing_that_a_study_lists_is_left_out():
    names = ("adam", "adamw", "afor", "afor_calibrated", "adamw_09945", "afor_no_dc", "mine")
    made = simulate_results(dict.fromkeys(names, 0.0), datasets=["bci2a"])
    results = Results.of(*made, metrics=["accuracy"])
    assert len(rows_of(main_table(results))) == len(names) + 2
    compared = comparison_table(results).records
    assert [r["method"] for r in compared] == [
        "adamw", "afor", "afor_no_dc", "adamw_09945", "afor_calibrated", "mine"
    ]  # fmt: skip


def test_every_printed_mean_and_sd_is_the_cells(simulated):
    results = Results.of(*simulated)
    conditions, table = results.conditions, main_table(results)
    for record in table.records:
        mean, sd, _ = conditions[record["dataset"], record["backbone"], record["method"]].summary(
            record["metric"]
        )
        assert (record["mean"], record["sd"]) == (mean, sd)
    printed = [cell.text for row in table.rows for cell in row.cells if "±" in cell.text]
    for record in table.records:
        assert f"{100 * record['mean']:.2f}±{100 * record['sd']:.2f}" in printed
    assert len(table.records) == 8 * 2 * 2


def test_incomplete_cells_show_done_of_expected_without_verdict_and_rank(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.backbone, r.method, r.fold) != ("eegnet", "afor", 8)]
    table = main_table(Results.of(lacking, expected))
    afor = rows_of(table)["AFOR"]
    assert [condition.partial for condition in afor] == ["40/45", "40/45", "", ""]
    assert not any(condition.mark or condition.best or condition.second for condition in afor[:2])
    assert all(condition.mark and condition.best for condition in afor[2:])
    assert all(condition.best for condition in rows_of(table)["MARS"][:2])
    table = build_table("main", Results.of(lacking, expected))
    assert any("Incomplete: 1 of 16 conditions lack 5 runs" in note for note in table.notes)


def test_a_cell_without_a_run_is_a_dash_with_its_count(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.backbone, r.method) != ("eegnet", "afor")]
    afor = rows_of(main_table(Results.of(lacking, expected)))["AFOR"]
    assert (afor[0].text, afor[0].partial) == ("–", "0/45")


def test_majority_and_chance_stand_below_every_data_set(simulated):
    rows = rows_of(main_table(Results.of(*simulated)))
    assert rows["Majority class"][0].text == "30.00±0.00"
    assert rows["Chance level"][0].text == "30.00 (majority class)"  # 25 920 guesses: 25.44
    assert rows["Chance level"][1].text == "25.42 (guessing)"


def test_the_chance_level_is_the_larger_one_and_named(simulated):
    results = [replace(r, majority_accuracy=0.25) for r in simulated[0]]
    rows = rows_of(main_table(Results.of(results)))
    assert rows["Chance level"][0].text == "25.44 (25920 guesses)"


def test_the_notes_say_how_many_folds_and_the_smallest_p(simulated):
    notes = " ".join(main_table(Results.of(*simulated)).notes)
    assert "n = 9 folds, smallest attainable two-sided p 0.004, after Holm 0.023." in notes
    assert "Holm-corrected over 6 comparisons" in notes
    few = Results.of([r for r in simulated[0] if r.fold < 3])
    assert "So few folds cannot show a difference." in " ".join(main_table(few).notes)


def test_the_verdict_comes_first_in_every_form(simulated):
    results = Results.of(*simulated, metrics=["accuracy"])
    for table in (main_table(results), comparison_table(results)):
        over, *tasks = table.lead
        assert over[0].startswith(
            "Over 2 tasks on 1 data set. AFOR is better than Adam: mean Acc of AFOR is"
        )
        assert tasks[0][0].startswith("BCI IV 2a, EEGNet, 9 folds. AFOR is better than Adam: Acc")
        assert len(tasks) == 2  # backbones
        text = to_markdown(table)
        assert text.index("AFOR is better than Adam") < text.index("| Adam")
        assert "AFOR is better than Adam" in to_latex(table)
        assert json.loads(to_json(table))["lead"] == [list(lines) for lines in table.lead]


def test_equivalence_needs_a_margin_and_the_study_may_state_it():
    made = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["deap"], seed=2)
    verdicts = {
        margin: comparison_table(
            Results.of(*made, margins={"accuracy": margin}, metrics=["accuracy"])
        ).records[0]["verdict"]
        for margin in (0.1, 1.0)
    }
    assert verdicts == {0.1: "undecided", 1.0: "equivalent"}
    (row,) = (r for r in comparison_table(Results.of(*made, metrics=["accuracy"])).rows if r.cells)
    assert row.cells[0].text == "equal ±1"


def test_the_comparisons_print_what_they_record(simulated):
    table = comparison_table(Results.of(*simulated, metrics=["accuracy"]))
    records = {(r["backbone"], r["method"]): r for r in table.records}
    assert len(records) == 12
    record = records["eegnet", "afor"]
    row = next(row for row in table.rows if row.label == "AFOR")
    assert row.cells[0].text == record["verdict"] == "better"
    assert row.cells[1].text == f"{100 * record['gain']:+.2f}"
    low, high = 100 * record["interval_low"], 100 * record["interval_high"]
    assert row.cells[2].text == f"{low:+.2f} to {high:+.2f}"
    assert row.cells[3].text == f"{record['p_two_sided']:.3f}"
    assert row.cells[4].text == f"{record['p_different_holm']:.3f}"
    assert record["what"].startswith("AFOR is better than Adam")
