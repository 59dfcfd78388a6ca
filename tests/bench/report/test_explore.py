import hashlib
import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from afor.bench.report.explore import DIGITS, chart_data, json_for_script, libraries_script
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.guessing import guess_level
from afor.bench.stats.results import Curve, Results, TrainingCurves

LIBRARIES = files("afor.bench.report").joinpath("libraries")
METRICS = ["accuracy", "weighted_f1"]


@pytest.fixture(scope="module")
def simulated():
    gains = {"adam": 0.0, "adam_seed_1": 0.0, "afor": 0.02}
    return simulate_results(gains, datasets=["bci2a", "isruc"], repetitions=2)


@pytest.fixture(scope="module")
def results(simulated):
    return Results.of(*simulated)


@pytest.fixture(scope="module")
def data(results):
    return chart_data(results)


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


def test_every_run_and_every_comparison_is_in_the_charts(data, simulated, results):
    assert len(data["runs"]) == len(simulated[0])
    first = data["runs"][0]
    run = results.conditions["bci2a", "eegnet", "adam"].runs[first[3], first[4]]
    assert first[5] == [round(run.metrics[metric], DIGITS) for metric in METRICS]
    assert data["subjects"]["bci2a"]["3"] == "s04"
    comparisons = results.comparisons
    assert [entry["method"] for entry in data["comparisons"]] == ["afor"] * len(comparisons)
    for entry, comparison in zip(data["comparisons"], comparisons, strict=True):
        assert entry["gain"] == pytest.approx(comparison.gain, abs=1e-6)
        assert entry["lines"][0].startswith(("AFOR is better", "Undecided", "No difference"))


def test_an_interval_without_ends_and_a_missing_metric_are_null():
    results, expected = simulate_results(
        {"adam": 0.0, "afor": 0.02}, datasets=["bci2a"], repetitions=1
    )
    few = [run for run in results if run.fold < 2]
    few[0].metrics["kappa"] = 0.5
    shown = chart_data(Results.of(few, expected, metrics=["accuracy", "kappa"]))
    assert shown["comparisons"][0]["low"] is None
    assert shown["comparisons"][0]["word"] == "incomplete"
    assert shown["runs"][1][5][1] is None
    json.loads(json_for_script(shown))


def test_curves_average_the_runs_that_are_still_training(simulated):
    results = Results.of(*simulated)
    losses = {
        ("isruc", "eegnet", "afor"): [[1.0, 3.0], [2.0]],
        ("isruc", "eegnet", "adam_seed_1"): [[9.0]],
    }
    curves = {
        key: [Curve(np.array(run), np.array(run) + 1, 0) for run in runs]
        for key, runs in losses.items()
    }
    results._training.append(TrainingCurves(curves, {}, {}))
    (curve,) = chart_data(results)["curves"]  # no replicates
    assert (curve["dataset"], curve["method"], curve["runs"]) == ("isruc", "afor", 2)
    assert curve["mean"] == [1.5, 3.0]
    assert curve["low"] == [1.25, 3.0]
    assert curve["validation"] == [2.5, 4.0]
    assert curve["guess"] == pytest.approx(guess_level("nll", results.runs[-1]))


def test_json_cannot_leave_its_script():
    name = "</script><script>alert(1)</script>"
    text = json_for_script({"name": name})
    assert "<" not in text
    assert json.loads(text)["name"] == name
