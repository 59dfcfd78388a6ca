import hashlib
import json
import tomllib
from importlib.resources import files

import pytest

from afor.bench.report.explore import DIGITS, chart_data, json_for_script, libraries_script
from afor.bench.stats.comparisons import compare_all
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.training.record import Epoch, RunRecord

LIBRARIES = files("afor.bench.report").joinpath("libraries")
METRICS = ["accuracy", "weighted_f1"]


@pytest.fixture(scope="module")
def simulated():
    gains = {"adam": 0.0, "adam_seed_1": 0.0, "afor": 0.02}
    return simulate_results(gains, datasets=["bci2a", "isruc"], draws=2)


@pytest.fixture(scope="module")
def conditions(simulated):
    return collect_conditions(*simulated)


@pytest.fixture(scope="module")
def data(conditions):
    return chart_data(conditions, (), METRICS)


def test_the_libraries_are_the_recorded_ones_and_carry_their_licences():
    script = libraries_script()
    for entry in tomllib.loads(LIBRARIES.joinpath("libraries.toml").read_text("utf-8")).values():
        content = LIBRARIES.joinpath(entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
        assert f"v{entry['version']} ".encode() in content[:80]
        for licence in entry["licences"]:
            text = LIBRARIES.joinpath(licence).read_text("utf-8")
            assert "Copyright" in text
            assert text in script
            assert "*/" not in text  # it would end the comment it stands in
    assert "</script" not in script.lower()
    assert "<!--" not in script


def test_every_run_and_every_comparison_is_in_the_charts(data, simulated, conditions):
    assert len(data["runs"]) == len(simulated[0])
    first = data["runs"][0]
    run = conditions["bci2a", "eegnet", "adam"].runs[first[3], first[4]]
    assert first[5] == [round(run.metrics[metric], DIGITS) for metric in METRICS]
    assert data["subjects"]["bci2a"]["3"] == "s04"
    comparisons = compare_all(conditions, METRICS)
    assert [entry["optimizer"] for entry in data["comparisons"]] == ["afor"] * len(comparisons)
    for entry, comparison in zip(data["comparisons"], comparisons, strict=True):
        assert entry["gain"] == pytest.approx(comparison.gain, abs=1e-6)
        assert entry["sentence"].startswith(("AFOR is better", "Undecided", "No difference"))


def test_an_interval_without_ends_and_a_missing_metric_are_null():
    results, expected = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"], draws=1)
    few = [run for run in results if run.fold < 2]
    shown = chart_data(collect_conditions(few, expected), (), ["accuracy", "kappa"])
    assert shown["comparisons"][0]["low"] is None
    assert shown["comparisons"][0]["word"] == "no verdict yet"
    assert shown["runs"][0][5][1] is None
    json.loads(json_for_script(shown))


def test_curves_average_the_runs_that_are_still_training(simulated, conditions):
    def record(*losses):
        history = tuple(Epoch(loss, 1.0, 0.5, 1.0, 1.0) for loss in losses)
        return RunRecord("done", "", history, 0, None, None, (1, 1), 1, 4, {}, "cpu", 1.0)

    of_afor = [run for run in simulated[0] if run.optimizer == "afor" and run.dataset == "isruc"]
    of_copy = [run for run in simulated[0] if run.optimizer == "adam_seed_1"]
    records = [(of_afor[0], record(1.0, 3.0)), (of_afor[1], record(2.0)), (of_copy[0], record(9.0))]
    (curve,) = chart_data(conditions, records, METRICS)["curves"]  # no copies
    assert (curve["dataset"], curve["optimizer"], curve["runs"]) == ("isruc", "afor", 2)
    assert curve["mean"] == [1.5, 3.0]
    assert curve["low"] == [1.25, 3.0]


def test_json_cannot_leave_its_script():
    name = "</script><script>alert(1)</script>"
    text = json_for_script({"name": name})
    assert "<" not in text
    assert json.loads(text)["name"] == name
