import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afor.bench.stats.design.simulated import simulate_results
from afor.bench.store.files import load_results, write_results

GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "mars": 0.01, "afor": 0.05, "afor_seed_1": 0.05}
PHYSIONET = Path(__file__).parents[4] / "docs" / "results" / "physionet" / "runs.csv"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    runs, expected = simulate_results(GAINS, datasets=["bci2a"], repetitions=2)
    timed = [replace(run, elapsed_s=30.0) for run in runs]
    path = tmp_path_factory.mktemp("pilot") / "pilot.json"
    write_results(path, timed, expected)
    return str(path)


def test_seconds_of_a_run_survive_a_file(results):
    runs, _ = load_results([Path(results)])
    assert {run.elapsed_s for run in runs} == {30.0}


def test_power_says_where_the_noise_comes_from(call, results):
    words = call("power", results).stdout
    assert "SD, subjects" in words
    (afor,) = [
        row
        for row in json.loads(call("power", results, "--json").stdout)["comparisons"]
        if row["method"] == "afor"
    ]
    whole = afor["subject_sd"] ** 2 + afor["repetition_sd"] ** 2 / 2
    assert afor["sd"] == pytest.approx(math.sqrt(whole))


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
        "dataset": "bci2a", "backbone": "eegnet", "metric": "accuracy", "method": "afor",
        "baseline": "adam", "family": 1, "power": 0.8,
    }  # fmt: skip
    difference, equivalence = content["goals"]
    assert difference["margin"] is None
    assert equivalence["effect"] == 0
    cheapest = difference["cheapest"]
    assert cheapest["seconds"] == pytest.approx(
        2 * cheapest["folds"] ** 2 * cheapest["repetitions"] * 30 / 9
    )
    at_cheapest = [row for row in difference["grid"] if row["folds"] == 100]
    assert all(0 <= row["power"] <= 1 for row in at_cheapest)


def test_power_of_a_pilot_with_one_draw_plans_one_draw(call, tmp_path):
    path = tmp_path / "one.json"
    made = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"], repetitions=1)
    write_results(path, *made)
    words = call("power", str(path)).stdout
    assert "cannot tell what further ones bring" in words
    assert "2 repetitions" not in words


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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--power", "1.5"], "--power 1.5: expected a number between 0.05 and 0.99."),
        (["--effect", "-1"], "--effect -1: expected a difference in points, more than 0."),
        (["--method", "aphor"], "--method cannot be 'aphor'."),
        (["--baseline", "adm"], "--baseline cannot be 'adm'."),
        (["--metric", "accurate"], "No run has the metric 'accurate'. Did you mean 'accuracy'?"),
        (["--dataset", "deap"], "No result for deap/*. Here: bci2a/eegnet."),
        (["--output", "p.doc"], "p.doc: this command writes .json, .pdf, .svg, .png files."),
    ],
)
def test_power_refuses_bad_input_in_one_sentence(refuse, results, arguments, reason):
    assert refuse("power", results, *arguments).startswith(reason)


def test_plan_says_what_a_study_can_decide(call, refuse, results, tmp_path, small_study):
    file = tmp_path / "new.toml"
    options = {"n_subjects": 8, "channels": ["C3", "C4"]}
    file.write_text(small_study(optimizers=["adam", "afor"], options=options))
    base = ("plan", str(file))
    words = call(*base, "--pilot", results).stdout
    assert (
        "synthetic × eegnet, afor − adam, noise of bci2a × eegnet: 8 folds × 1 repetition show"
        in words
    )
    content = json.loads(call(*base, "--pilot", results, "--json").stdout)
    assert len(content["decides"]) == 1
    assert "decides" not in json.loads(call(*base, "--json").stdout)
    few = call(*base, "--pilot", results, "--set", "protocol.only_folds=[0, 1, 2]").stdout
    assert "3 folds are too few to show a difference" in few
    file.write_text(small_study(optimizers=["radam"], options=options))
    assert "It holds adam" in refuse(*base, "--pilot", results)


@pytest.mark.skipif(not PHYSIONET.exists(), reason="the repository's results are not here")
def test_the_physionet_study_is_assessed(call):
    content = json.loads(call("power", str(PHYSIONET), "--json", "--family", "1").stdout)
    afor = next(r for r in content["comparisons"] if r["method"] == "afor")
    assert afor["minimum_effect"] == pytest.approx(0.0168, abs=0.0005)
