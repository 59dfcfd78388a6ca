import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afor.bench.report.figures.planning import calibration_figure
from afor.bench.stats.design.calibration import calibrate
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.store.files import load_results, write_results

GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "mars": 0.01, "afor": 0.05, "afor_seed_1": 0.05}
PHYSIONET = Path(__file__).parents[4] / "docs" / "results" / "physionet" / "runs.csv"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    runs, expected = simulate_results(GAINS, datasets=["bci2a"], draws=2)
    timed = [replace(run, elapsed_s=30.0) for run in runs]
    path = tmp_path_factory.mktemp("pilot") / "pilot.json"
    write_results(path, timed, expected)
    return str(path)


def test_seconds_of_a_run_survive_a_file(results):
    runs, _ = load_results([Path(results)])
    assert {run.elapsed_s for run in runs} == {30.0}


def test_calibrate_prints_rates_and_draws_p_values(call, results, tmp_path):
    figure = tmp_path / "p.png"
    words = call(
        *("calibrate", results, "-m", "accuracy", "--relabellings", "100", "-o", str(figure))
    ).stdout
    assert "Adam = Adam seed 1 (other seeds)" in words
    assert "false positives" in words
    assert figure.stat().st_size > 1000


def test_calibrate_gives_json(call, results):
    command = ("calibrate", results, "-m", "accuracy", "--relabellings", "100", "--json")
    table = json.loads(call(*command).stdout)
    record = table["rows"][0]
    assert record["false_positives_low"] <= record["false_positives"] <= 0.15
    assert record["copies"] == "adam = adam_seed_1"


def test_calibrate_without_copies_says_what_to_do(refuse, tmp_path):
    path = tmp_path / "r.json"
    write_results(path, *simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"]))
    assert "afor run controls" in refuse("calibrate", str(path))


def test_variance_says_what_it_cannot_tell_apart(call, results):
    words = call("variance", results, "-m", "accuracy").stdout
    afor, mars = (
        next(line for line in words.splitlines() if line.startswith(label))
        for label in ("AFOR − Adam", "MARS − Adam")
    )
    assert "9 × 2 × 2" in afor
    assert "with draw" not in afor
    assert "with draw" in mars  # MARS has no copy: its draws and seeds are one component
    assert "Not estimated: the covariance between folds" in words


def test_variance_gives_json(call, results):
    table = json.loads(call("variance", results, "-m", "accuracy", "--json").stdout)
    components = [r["component"] for r in table["rows"] if r["optimizer"] == "afor"]
    assert components == ["subject × method", "draw × method", "seed × method"]


def test_power_plans_from_a_pilot(call, results, tmp_path):
    figure = tmp_path / "power.png"
    words = call("power", results, "--effect", "2", "-o", str(figure)).stdout
    assert "AFOR − Adam, BCI IV 2a, EEGNet, Acc: power to show a difference of 2 points" in words
    assert "To show equivalence within 1 point with 80 % power, the cheapest design" in words
    assert "of training" in words
    assert figure.stat().st_size > 1000


def test_power_gives_json_without_infinities(call, results):
    content = json.loads(call("power", results, "--json", "--family", "1").stdout)
    assert content["chosen"] == {
        "dataset": "bci2a", "backbone": "eegnet", "metric": "accuracy", "optimizer": "afor",
        "baseline": "adam", "family": 1, "power": 0.8,
    }  # fmt: skip
    difference, equivalence = content["goals"]
    assert difference["margin"] is None
    assert equivalence["effect"] == 0
    cheapest = difference["cheapest"]
    assert cheapest["seconds"] == pytest.approx(
        2 * cheapest["folds"] ** 2 * cheapest["draws"] * 30 / 9
    )
    at_cheapest = [row for row in difference["grid"] if row["folds"] == 100]
    assert all(0 <= row["power"] <= 1 for row in at_cheapest)


def test_power_of_a_pilot_with_one_draw_plans_one_draw(call, tmp_path):
    path = tmp_path / "one.json"
    made = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"], draws=1)
    write_results(path, *made)
    words = call("power", str(path)).stdout
    assert "cannot tell what further draws bring" in words
    assert "2 draws" not in words


def test_the_table_of_power_goes_as_far_as_the_design_that_is_enough(call, results):
    content = json.loads(call("power", results, "--effect", "0.3", "--json").stdout)
    folds = sorted({row["folds"] for row in content["goals"][0]["grid"]})
    design = content["goals"][0]["cheapest"]["folds"]
    assert folds[-2] < max(design, 101) <= folds[-1]


def test_the_wanted_power_is_marked(call, results):
    words = call("power", results, "--effect", "2", "--power", "0.95", "--margin", "accuracy=3")
    table = words.stdout.split("power to show a difference")[1].split("power to show")[0]
    marked = [int(share) for share in re.findall(r"(\d+) % ✓", table)]
    assert min(marked) >= 95
    assert "✓ 95 % or more." in table


def test_titles_of_p_values_stay_inside_the_figure():
    gains = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0, "afor": 0.0, "afor_seed_1": 0.0}
    conditions = collect_conditions(*simulate_results(gains, datasets=["bci2a"]))
    made = calibrate(conditions, ["accuracy"], relabellings=100)
    figure = calibration_figure([replace(one, dataset="physionet_mi") for one in made])
    figure.canvas.draw()
    for axes in figure.axes:
        box = axes.title.get_window_extent()
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--power", "1.5"], "--power 1.5: expected a number between 0.05 and 0.99."),
        (["--effect", "-1"], "--effect -1: expected a difference in points, more than 0."),
        (["--optimizer", "aphor"], "--optimizer cannot be 'aphor'."),
        (["--baseline", "adm"], "--baseline cannot be 'adm'."),
        (["--metric", "accurate"], "--metric cannot be 'accurate'."),
        (["--dataset", "deap"], "No comparison of an optimizer with 'adam' on deap/*"),
        (["--output", "p.doc"], "p.doc: this command writes .pdf, .svg, .png files."),
    ],
)
def test_power_refuses_bad_input_in_one_sentence(refuse, results, arguments, reason):
    assert refuse("power", results, *arguments).startswith(reason)


def test_plan_says_what_a_study_can_decide(call, refuse, results, tmp_path, small_study):
    file = tmp_path / "new.toml"
    options = {"n_subjects": 8, "channels": ["C3", "C4"]}
    file.write_text(small_study(optimizers=["adam", "afor"], options=options))
    base = ("plan", str(file), "--cache-dir", str(tmp_path / "cache"))
    words = call(*base, "--pilot", results).stdout
    assert "synthetic × eegnet, afor − adam, noise of bci2a × eegnet: 8 folds × 1 draws" in words
    content = json.loads(call(*base, "--pilot", results, "--json").stdout)
    assert len(content["decides"]) == 1
    assert "decides" not in json.loads(call(*base, "--json").stdout)
    few = call(*base, "--pilot", results, "--set", "protocol.only_folds=[0, 1, 2]").stdout
    assert "3 folds are too few to show a difference" in few
    assert "It holds adam" in refuse(*base, "--pilot", results, "--baseline", "sgd")


@pytest.mark.skipif(not PHYSIONET.exists(), reason="the repository's results are not here")
def test_the_physionet_study_is_calibrated_and_assessed(call):
    command = ("calibrate", str(PHYSIONET), "-m", "accuracy", "--relabellings", "100", "--json")
    records = json.loads(call(*command).stdout)["rows"]
    assert [r["copies"] for r in records][:2] == ["adam = adam_seed_1", "afor = afor_seed_1"]
    assert all(r["false_positives_low"] <= 0.05 for r in records)
    content = json.loads(call("power", str(PHYSIONET), "--json", "--family", "1").stdout)
    afor = next(r for r in content["comparisons"] if r["optimizer"] == "afor")
    assert afor["smallest_effect"] == pytest.approx(0.0164, abs=0.0005)
    assert afor["seconds"] > 10
