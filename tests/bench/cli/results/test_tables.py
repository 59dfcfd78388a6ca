import csv
import io
import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.report.registry import FIGURES, FROM_RESULTS
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.store.files import write_results

GAINS = {
    "adam": 0.0,
    "adam_seed_1": 0.0,
    "mars": 0.01,
    "afor": 0.05,
    "afor_no_dc": 0.0,
    "afor_w_0.5": 0.02,
}
runner = CliRunner()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "r.json"
    write_results(path, *simulate_results(GAINS, datasets=["bci2a", "isruc"], repetitions=2))
    return str(path)


@pytest.fixture(scope="module")
def partial_store(tmp_path_factory):
    results, expected = simulate_results(GAINS, datasets=["bci2a"], repetitions=2)
    path = tmp_path_factory.mktemp("partial") / "r.json"
    write_results(path, [r for r in results if (r.method, r.fold) != ("afor", 3)], expected)
    return str(path)


@pytest.mark.parametrize("name", [name for name in FROM_RESULTS if name != "convergence"])
@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "csv", "json"])
def test_every_table_comes_in_every_form(call, store, name, form):
    asked = ["--json"] if form == "json" else ["--format", form]
    result = call("table", name, store, *asked)
    assert result.stdout.strip()
    assert "\x1b" not in result.stdout
    if form == "json":
        assert json.loads(result.stdout)["rows"]
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert "optimizer" not in rows[0]  # what is compared is a method
    assert "Next: afor" not in result.stdout
    assert "Next: afor figure" in result.stderr


def test_the_suffix_of_the_file_decides_the_form(call, store, tmp_path):
    starts = {"tex": "% needs", "md": "**Results", "csv": "dataset,", "txt": "Results"}
    for suffix, start in starts.items():
        target = tmp_path / "new" / f"main.{suffix}"
        result = call("table", "main", store, "--output", str(target))
        assert result.stdout == f"{target}\n"
        assert target.read_text("utf-8").startswith(start)


def test_the_main_table_marks_verdicts_and_says_what_is_incomplete(call, store, partial_store):
    whole = call("table", "main", store)
    afor = next(line for line in whole.stdout.splitlines() if re.match("AFOR +[0-9]", line))
    assert "↑¹" in afor
    partial = call("table", "main", partial_store)
    afor = next(line for line in partial.stdout.splitlines() if re.match("AFOR +[0-9]", line))
    assert "(16/18)" in afor
    assert "↑" not in afor
    assert "Incomplete: 1 of 6 conditions lack 2 runs" in partial.stderr


def test_stats_print_comparisons_ranks_and_noise(call, store):
    result = call("judge", store, "--metric", "accuracy")
    texts = ["Gain over Adam", "AFOR is better than Adam: Acc", "verdict", "Mean rank"]
    texts += ["How far another seed moves one method", "d_z"]
    for text in texts:
        assert text in result.stdout
    assert result.stdout.index(texts[1]) < result.stdout.index(texts[2])
    tables = json.loads(call("judge", store, "--json").stdout)
    assert [table["table"] for table in tables] == ["comparisons", "pooled", "ranks", "noise"]
    row = next(r for r in tables[0]["rows"] if r["method"] == "afor")
    assert row["verdict"] == "better"
    assert row["margin"] == 0.01


def test_a_margin_can_be_given_and_must_be_a_size(call, refuse, store):
    rows = json.loads(call("judge", store, "--margin", "accuracy=2.5", "--json").stdout)[0]["rows"]
    assert {row["metric"]: row["margin"] for row in rows} == {
        "accuracy": 0.025,
        "weighted_f1": 0.01,
    }
    for pair in ("accuracy", "accuracy=0", "=1", "accuracy=inf", "accuracy=x"):
        assert "expected METRIC=POINTS" in refuse("judge", store, "--margin", pair)


def test_stats_work_while_the_controls_have_not_run_yet(call, tmp_path):
    results, expected = simulate_results(GAINS, datasets=["bci2a"], repetitions=2)
    path = tmp_path / "r.json"
    write_results(path, [r for r in results if r.method != "adam_seed_1"], expected)
    result = call("judge", str(path))
    assert "AFOR is better than Adam" in result.stdout
    assert "another seed" not in result.stdout


def test_another_baseline_and_fewer_optimizers_can_be_chosen(call, store):
    arguments = ["--baseline", "mars", "--method", "afor", "--method", "adam", "--json"]
    rows = json.loads(call("judge", store, *arguments).stdout)[0]["rows"]
    assert {row["method"] for row in rows} == {"afor", "adam"}
    assert {row["family"] for row in rows} == {2}


CURVES = ("convergence", "learning", "forgetting")


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in CURVES])
def test_figures_of_results_are_written_in_all_forms(call, store, tmp_path, name):
    targets = [tmp_path / f"{name}.{suffix}" for suffix in ("pdf", "svg", "png")]
    result = call("figure", name, store, *(part for t in targets for part in ("-o", str(t))))
    assert result.stdout.split() == [str(t) for t in targets]
    assert all(t.stat().st_size > 1000 for t in targets)


def test_mistakes_are_answered_with_what_is_accepted(call, refuse, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Did you mean 'ranks'" in refuse("table", "rank", store)
    wrong = call("table", "main", store, "-f", "word", code=2)
    assert "'word' is not one of 'terminal', 'markdown', 'latex', 'csv'" in wrong.output
    assert "at least one study" in refuse("table", "main")
    assert "does not exist" in refuse("judge", str(tmp_path / "no.db"), error=StoreError)
    assert ".pdf, .svg, .png" in refuse("figure", "gain", store, "-o", "x.gif")
    assert "cannot be read" in refuse("table", "cost", str(tmp_path))
    assert "No run has the metric 'f2'" in refuse("figure", "folds", store, "-m", "f2")
    wrong = refuse("judge", store, "--metric", "accurac_y")
    assert wrong.startswith("No run has the metric 'accurac_y'. Did you mean 'accuracy'?")


def test_a_table_of_curves_needs_a_store(refuse, store):
    assert "Name the results" in refuse("table", "convergence")
    assert "holds results only" in refuse("table", "convergence", store)


def test_the_table_and_the_line_above_it_count_missing_runs_alike(tmp_path):
    results, expected = simulate_results(
        {**GAINS, "adam_seed_1": 0.0}, datasets=["bci2a"], repetitions=2
    )
    lacking = [r for r in results if (r.method, r.fold) not in {("afor", 3), ("adam_seed_1", 3)}]
    write_results(tmp_path / "r.json", lacking, expected)
    shown = runner.invoke(app, ["table", "main", str(tmp_path / "r.json")])
    sentence = f"Incomplete: 2 of {len(expected)} conditions lack 4 runs."
    assert sentence in shown.stderr
    assert sentence in " ".join(shown.stdout.split())


@pytest.mark.parametrize("words", [["table", "main"], ["figure", "gain"], ["report"]])
def test_an_output_that_cannot_be_written_gives_a_sentence(store, tmp_path, words):
    (tmp_path / "file").touch()
    for target in (tmp_path / "file" / "out.pdf", tmp_path):
        shown = runner.invoke(app, [*words, str(store), "--output", str(target)])
        assert isinstance(shown.exception, ConfigError)


def test_huge_values_are_shown_without_a_crash(call, tmp_path):
    results, expected = simulate_results(GAINS, datasets=["bci2a"], repetitions=2)
    for size in (1e90, 1e200, 1e308):
        huge = [replace(r, metrics={**r.metrics, "nll": size * (1 + r.fold)}) for r in results]
        path = tmp_path / f"{size}.json"
        write_results(path, [replace(r, majority_accuracy=size) for r in huge], expected)
        shown = call("judge", path).stdout
        assert "AFOR is better than Adam" in shown
        assert max(map(len, shown.splitlines())) <= 160
        call("table", "main", path, "-m", "nll", "-m", "accuracy")
        call("report", path, "--output", tmp_path / "report.html", "--static")
        for name in ("gain", "folds"):
            call("figure", name, path, "--output", tmp_path / f"{name}.svg")


def test_ranks_are_by_the_metrics_of_the_other_tables(call, tmp_path):
    results, expected = simulate_results(GAINS, datasets=["bci2a", "isruc"], repetitions=2)
    path = tmp_path / "r.json"
    write_results(path, [replace(r, metrics={**r.metrics, "nll": 1.0}) for r in results], expected)
    tables = json.loads(call("judge", path, "--json").stdout)
    compared = dict.fromkeys(row["metric"] for row in tables[0]["rows"])
    assert list(dict.fromkeys(row["metric"] for row in tables[1]["rows"])) == list(compared)
    assert len(compared) == 3


def test_the_next_command_asks_the_same_question(call, store, tmp_path):
    asked = "--baseline mars --study simulated --metric accuracy --method afor"
    asked += " --margin accuracy=2"
    words = asked.split()
    assert f"Next: afor table main {store} {asked}\n" in call("judge", store, *words).stderr
    target = tmp_path / "gain.pdf"
    after = call("table", "main", store, *words).stderr
    assert f"Next: afor figure gain {store} {asked} --output gain.pdf\n" in after
    drawn = call("figure", "gain", store, *words, "--output", target)
    assert "Next" not in drawn.stderr  # a report shows all optimizers
    drawn = call("figure", "gain", store, *words[:6], "--output", target)
    assert f"Next: afor report {store} --baseline mars --study simulated" in drawn.stderr
