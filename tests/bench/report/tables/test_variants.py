import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import to_csv, to_latex, to_markdown
from afor.bench.report.tables.variants import ablation_table, sensitivity_table
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.noise_floor import noise_floor
from afor.bench.stats.simulated import simulate_results

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
    return collect_conditions(*simulate_results(gains, **options))


def rows_of(table):
    return {row.label: row.cells for row in table.rows}


def test_the_ablation_shows_the_change_against_the_whole_and_what_is_noise():
    conditions = simulated(ABLATION)
    table = ablation_table(conditions, ["accuracy"])
    rows = rows_of(table)
    assert list(rows) == [
        "AFOR",
        "AFOR seed 1",
        "AFOR w/o DC",
        "AFOR w/o FC",
        "Noise floor (95 %)",
    ]
    record = next(r for r in table.records if r["variant"] == "afor_no_dc")
    ours, whole = (conditions["bci2a", "eegnet", name] for name in ("afor_no_dc", "afor"))
    drop = ours.summary("accuracy")[0] - whole.summary("accuracy")[0]
    assert record["change"] == pytest.approx(drop)
    assert record["change"] == pytest.approx(-0.05, abs=0.01)
    assert record["p_lower"] == 2**-9
    assert rows["AFOR w/o DC"][0].text.endswith(f"({100 * record['change']:.2f})".replace("-", "−"))
    assert not rows["AFOR w/o DC"][0].inside_noise
    assert rows["AFOR w/o FC"][0].inside_noise
    assert rows["AFOR seed 1"][0].inside_noise


def test_the_noise_floor_stands_below_the_changes_it_judges():
    conditions = simulated(ABLATION, datasets=["bci2a", "deap"])
    table = ablation_table(conditions, ["accuracy"])
    floors = [noise_floor(conditions, d, "eegnet", "accuracy").bound for d in ("deap", "bci2a")]
    assert [c.text for c in table.rows[-1].cells] == [f"±{100 * floor:.2f}" for floor in floors]
    by_place = {(r["dataset"], r["variant"]): r["noise_floor"] for r in table.records}
    assert by_place["deap", "afor_no_dc"] == floors[0]


def test_an_ablation_without_a_control_says_that_the_noise_is_not_known():
    table = ablation_table(simulated({"afor": 0, "afor_no_dc": 0}), ["accuracy"])
    assert [row.label for row in table.rows] == ["AFOR", "AFOR w/o DC"]
    assert "No A/A controls" in table.notes[0]


def test_the_ablation_comes_in_every_form():
    table = ablation_table(simulated(ABLATION), ["accuracy"])
    assert "| AFOR w/o DC |" in to_markdown(table)
    assert "Noise floor" in to_latex(table)
    assert "noise_floor" in to_csv(table).splitlines()[0]
    assert len(to_csv(table).splitlines()) == 1 + 4


def test_an_ablation_without_variants_says_how_to_run_them():
    with pytest.raises(ConfigError, match="afor run ablation"):
        ablation_table(simulated({"adam": 0, "afor": 0}))


def test_the_sensitivity_lists_values_in_order_with_the_default_among_them():
    table = sensitivity_table(simulated(VARIED), ["accuracy"])
    assert [row.label for row in table.rows] == [
        "direction weight w", "0", "1 (default)", "2",
        "warm-up steps", "0", "100 (default)",
        "Noise floor (95 %)",
    ]  # fmt: skip
    zero, default, two = (row.cells[0] for row in table.rows[1:4])
    assert (zero.inside_noise, two.inside_noise) == (False, True)
    assert "(" in zero.text
    assert "(" not in default.text
    record = next(r for r in table.records if (r["setting"], r["value"]) == ("w", 0.0))
    assert record["change"] == pytest.approx(-0.05, abs=0.01)


def test_a_sensitivity_without_varied_settings_says_how_to_run_them():
    with pytest.raises(ConfigError, match="afor run sensitivity"):
        sensitivity_table(simulated({"adam": 0, "afor": 0}))
