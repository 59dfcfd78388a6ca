import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import to_csv, to_latex, to_markdown
from afor.bench.report.tables.variants import ablation_table, sensitivity_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

ABLATION = {
    "adam": 0.0,
    "afor": 0.0,
    "afor_seed_1": 0.0,
    "afor_no_dc": -0.05,
    "afor_no_fc": 0.0,
}
VARIED = {
    "afor": 0.0,
    "afor_seed_1": 0.0,
    "afor_w_0.0": -0.05,
    "afor_w_2.0": 0.0,
    "afor_warmup_0": 0.0,
}


def simulated(gains, **options):
    options = {"datasets": ["bci2a"], "subject_noise": 0.002, **options}
    return Results.of(*simulate_results(gains, **options), metrics=["accuracy"])


def rows_of(table):
    return {row.label: row.cells for row in table.rows}


def test_the_ablation_shows_the_change_against_the_whole_with_a_verdict():
    results = simulated(ABLATION)
    table = ablation_table(results)
    rows = rows_of(table)
    assert list(rows) == ["AFOR", "AFOR seed 1", "AFOR w/o DC", "AFOR w/o FC"]
    records = {r["method"]: r for r in table.records}
    record = records["afor_no_dc"]
    ours, whole = (results.conditions["bci2a", "eegnet", name] for name in ("afor_no_dc", "afor"))
    drop = ours.summary("accuracy")[0] - whole.summary("accuracy")[0]
    assert record["gain"] == pytest.approx(drop)
    assert record["gain"] == pytest.approx(-0.05, abs=0.01)
    assert record["p_two_sided"] == 2**-8
    assert record["p_different_holm"] == 2 * 2**-8  # two variants
    assert record["verdict"] == "worse"
    assert record["interval_low"] < drop < record["interval_high"] < 0
    assert rows["AFOR w/o DC"][0].text.endswith(f"({100 * record['gain']:.2f})".replace("-", "−"))
    assert rows["AFOR w/o DC"][0].mark == "↓"
    assert (
        rows["AFOR w/o FC"][0].mark
        == {"equivalent": "≈", "undecided": ""}[records["afor_no_fc"]["verdict"]]
    )


def test_a_copy_is_listed_without_a_verdict_and_outside_the_family():
    table = ablation_table(simulated(ABLATION))
    record = next(r for r in table.records if r["method"] == "afor_seed_1")
    assert record["verdict"] is None
    assert record["p_different_holm"] == record["p_two_sided"]
    assert rows_of(table)["AFOR seed 1"][0].mark == ""
    assert "Holm-corrected over 2 comparisons" in table.notes[0]


def test_the_ablation_comes_in_every_form():
    table = ablation_table(simulated(ABLATION))
    assert "| AFOR w/o DC |" in to_markdown(table)
    assert r"$\downarrow$" in to_latex(table)
    assert "verdict" in to_csv(table).splitlines()[0]
    assert len(to_csv(table).splitlines()) == 1 + 4


def test_an_ablation_without_variants_says_how_to_run_them():
    with pytest.raises(ConfigError, match="afor run ablation"):
        ablation_table(simulated({"adam": 0, "afor": 0}))


def test_the_sensitivity_lists_values_in_order_with_the_default_among_them():
    table = sensitivity_table(simulated(VARIED))
    assert [row.label for row in table.rows] == [
        "direction weight w", "0", "1 (default)", "2",
        "warm-up steps", "0", "100 (default)",
    ]  # fmt: skip
    zero, default, _ = (row.cells[0] for row in table.rows[1:4])
    assert zero.mark == "↓"
    assert default.mark == ""
    assert "(" in zero.text
    assert "(" not in default.text
    record = next(r for r in table.records if (r["setting"], r["value"]) == ("w", 0.0))
    assert record["gain"] == pytest.approx(-0.05, abs=0.01)


def test_a_sensitivity_without_varied_settings_says_how_to_run_them():
    with pytest.raises(ConfigError, match="afor run sensitivity"):
        sensitivity_table(simulated({"adam": 0, "afor": 0}))
