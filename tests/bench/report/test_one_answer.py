"""Every view of the same results gives the same numbers, whatever is missing and in any order."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.notebook.results import StudyResults
from afor.bench.report.explore import DIGITS, chart_data
from afor.bench.report.page import render_report
from afor.bench.report.registry import FIGURES, FROM_RESULTS, build_table, draw_figure, focus
from afor.bench.stats import results as results_module
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.labels import metric_style
from afor.bench.stats.results import Results
from afor.bench.store.files import write_results

METHODS = ["adam", "mars", "afor", "adam_seed_1", "afor_no_dc", "afor_w_0.5", "adamw"]


def random_study(seed, folder):
    """Write a study with holes into one to three files, in any order; return it and its files."""
    rng = np.random.default_rng(seed)
    methods = ["adam", "afor", *rng.permutation(METHODS[1:])[: rng.integers(1, 6)]]
    gains = {name: float(rng.choice([0.0, 0.01, 0.05])) for name in dict.fromkeys(methods)}
    datasets = list(rng.permutation(["bci2a", "isruc"])[: rng.integers(1, 3)])
    backbones = ["eegnet", "acrnn"][: rng.integers(1, 3)]
    runs, expected = simulate_results(
        gains,
        datasets=datasets,
        backbones=backbones,
        repetitions=int(rng.integers(1, 4)),
        seed=seed,
    )
    rounded = [  # few windows, so that folds tie
        replace(run, metrics={name: round(240 * v) / 240 for name, v in run.metrics.items()})
        for run in runs
    ]
    with_nll = rng.random() < 0.5
    if with_nll:
        rounded = [
            replace(r, metrics={**r.metrics, "nll": 1.5 - r.metrics["accuracy"]}) for r in rounded
        ]
    if seed % 3 == 2:  # networks that guess: nobody may call one of them better or equal
        rounded = [replace(r, majority_accuracy=0.99) for r in rounded]
    lost = rng.choice([0.0, 0.05, 0.3])
    kept = [run for run in rounded if rng.random() >= lost]
    kept = [
        replace(run, metrics={"weighted_f1": run.metrics["weighted_f1"]})
        if run.method == "mars" and seed % 4 == 0
        else run
        for run in kept
    ]
    parts = int(rng.integers(1, 4))
    paths = []
    for part in range(parts):
        rows = [run for i, run in enumerate(kept) if i % parts == part]
        paths.append(folder / f"{seed}-{part}.json")
        write_results(paths[-1], [rows[i] for i in rng.permutation(len(rows))], expected)
    return Results.of(kept, expected), paths


def key_of(record):
    return tuple(record[name] for name in ("dataset", "backbone", "method", "metric"))


def same(one, other):
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("seed", range(10))
def test_every_view_gives_the_same_numbers(seed, tmp_path):
    whole, paths = random_study(seed, tmp_path)
    opened = Results.open(paths)
    expected = {(c.dataset, c.backbone, c.method, c.metric): c for c in whole.needed_comparisons()}

    # the statistics, also by the command line
    words = ["judge", *map(str, rev_or_not(paths, seed)), "--json"]
    printed = json.loads(CliRunner().invoke(app, words).stdout)[0]["rows"]
    rows = build_table("comparisons", opened).records
    assert {key_of(r) for r in rows} == {key_of(r) for r in printed} == set(expected)
    for row, shown in zip(sorted(rows, key=key_of), sorted(printed, key=key_of), strict=True):
        c = expected[key_of(row)]
        wins = (row["wins"], row["ties"], row["losses"])
        assert (row["gain"], row["interval_low"], wins) == (c.gain, c.interval[0], c.won_tied_lost)
        assert row["verdict"] == (c.decision and c.decision.value)
        assert (shown["gain"], shown["p_two_sided"]) == (row["gain"], row["p_two_sided"])
        lines = [row[line] for line in ("what", "sure", "then")]
        assert [shown[line] for line in ("what", "sure", "then")] == lines
        blind = not (row["above_guessing"] or row["baseline_above_guessing"])
        assert (row["verdict"] == "no verdict") == (blind and c.complete)
        assert ("neither network is better than guessing" in row["what"]) == (
            row["verdict"] == "no verdict"
        )
        if row["verdict"] == "no verdict":
            assert (row["folds_needed_low"], shown["folds_needed_low"]) == (None, None)
            assert not re.search("equal|better than Adam|worse|settle", " ".join(lines))

    # every other table that these results hold, and the notebook's
    for name in FROM_RESULTS:
        try:
            table = build_table(name, opened)
        except ConfigError:  # the results do not hold what it shows
            continue
        again = StudyResults(whole).table(name).content
        assert len(table.records) == len(again.records)
        for one, other in zip(table.records, again.records, strict=True):
            assert all(same(one[field], other[field]) for field in one), name
        for row in table.records if name == "main" else ():
            c = expected.get(key_of(row))
            assert row["gain"] == (c.gain if c and row["method"] in opened.methods else None)
            if c:
                assert row["verdict"] == (c.decision and c.decision.value)
                assert row["above_guessing"] == (c.learned and c.learned.above)
        for row in table.records if name == "beside-paper" else ():
            (gain,) = [c.gain for k, c in expected.items() if k == key_of(row)] or [None]
            if gain is not None:
                assert row["ours_gain_over_adam"] == pytest.approx(100 * gain, abs=1e-12)
        if name == "sensitivity":
            for metric in opened.metrics:
                assert sensitivity_numbers(table, metric) == figure_numbers(opened, metric)

    # the figures
    metric = opened.metrics[0]
    drawn = draw_figure("gain", opened)
    if len({b for _, b in opened.tasks}) == 1:
        shown = [
            line.get_xdata()[0]
            for axis in drawn.axes
            for line in axis.lines
            if len(line.get_xdata()) == 1
        ]
        gains = [100 * c.gain for k, c in expected.items() if k[3] == metric]
        assert sorted(shown) == pytest.approx(sorted(gains), abs=1e-9)
    comparison = focus(opened)
    title = draw_figure("folds", opened).axes[0].get_title(loc="right")
    c = expected[comparison.dataset, comparison.backbone, comparison.method, metric]
    mean, won = re.findall(r"mean gain ([+−]\d+\.\d\d); better in (\d+) of", title)[0]
    assert int(won) == c.won_tied_lost[0]
    assert float(mean.replace("−", "-")) == pytest.approx(100 * c.gain, abs=0.0051)
    assert set(FIGURES) >= {"gain", "folds", "ranks", "noise"}

    # the plan of another study: refused from networks that guess
    for c in [c for c in expected.values() if c.complete and c.metric == metric][:1]:
        named = ["--method", c.method, "--dataset", c.dataset, "--backbone", c.backbone]
        planned = CliRunner().invoke(app, ["power", *map(str, paths), *named, "--json"])
        assert (planned.exit_code != 0) == (c.is_blind or c.noise is None), planned.output

    # the report's embedded data, and what its chart of pairs makes of the runs
    data = chart_data(opened)
    for entry in data["comparisons"]:
        c = expected[tuple(entry[k] for k in ("dataset", "backbone", "method", "metric"))]
        assert entry["gain"] == round(c.gain, DIGITS)
        assert pairs_by_the_chart(data, entry) == c.won_tied_lost
    in_lines = {tuple(answer["lines"]) for answer in data["comparisons"]}
    assert in_lines == {tuple(filter(None, (r["what"], r["sure"], r["then"]))) for r in rows}
    page = render_report(opened)
    for value in (f"{100 * c.gain:+.2f}".replace("-", "−") for c in expected.values()
                  if c.metric != "nll"):  # fmt: skip
        assert value in page

    # an export that is read again
    export = tmp_path / "export.csv"
    write_results(export, whole.runs, ())
    exported = Results.open([export]).comparisons
    complete = {k: c.gain for k, c in expected.items()}
    for c in exported:
        assert c.gain == complete[c.dataset, c.backbone, c.method, c.metric]


def rev_or_not(paths, seed):
    return paths[::-1] if seed % 2 else paths


def sensitivity_numbers(table, metric):
    scale = metric_style(metric).scale
    return sorted(round(scale * r["mean"], 9) for r in table.records if r["metric"] == metric)


def figure_numbers(results, metric):
    figure = draw_figure("sensitivity", results.by(metric))
    return sorted(round(float(y), 9) for axis in figure.axes for y in axis.lines[0].get_ydata())


def pairs_by_the_chart(data, entry):
    """Count folds won, tied and lost as the page's script does."""
    position = [m["name"] for m in data["metrics"]].index(entry["metric"])
    sign = data["metrics"][position]["sign"]
    folds: dict[int, list[tuple[float, float]]] = {}
    values = {}
    for d, b, o, fold, repetition, numbers in data["runs"]:
        names = (data["datasets"][d]["name"], data["backbones"][b]["name"])
        if names == (entry["dataset"], entry["backbone"]) and numbers[position] is not None:
            values[data["methods"][o]["name"], fold, repetition] = numbers[position]
    for (name, fold, repetition), value in values.items():
        other = values.get((data["baseline"], fold, repetition))
        if name == entry["method"] and other is not None:
            folds.setdefault(fold, []).append((value, other))
    gains = [
        sign * (np.mean([a for a, _ in pairs]) - np.mean([b for _, b in pairs]))
        for pairs in folds.values()
    ]
    won = sum(g >= data["tie"] for g in gains)
    lost = sum(-g >= data["tie"] for g in gains)
    return won, len(gains) - won - lost, lost


def test_a_report_reads_the_trainings_and_makes_each_comparison_once(tmp_path, monkeypatch):
    runs, expected = simulate_results(
        {"adam": 0.0, "adamw": 0.0, "afor": 0.02}, datasets=["bci2a"], backbones=["eegnet", "acrnn"]
    )
    compared, read = [], []
    make, read_training = results_module.compare, Results._read_training
    monkeypatch.setattr(
        results_module, "compare", lambda *a, **k: compared.append((a[1:], str(k))) or make(*a, **k)
    )
    monkeypatch.setattr(
        Results, "_read_training", lambda self: read.append(1) or read_training(self)
    )
    render_report(Results.of(runs, expected))
    assert len(read) == 1
    assert compared
    assert len(compared) == len(set(compared))


def test_results_of_other_conditions_make_comparisons_of_their_own():
    runs, expected = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"])
    results = Results.of(runs, expected)
    fewer = Results.of([run for run in runs if run.fold < 7], expected)
    assert results.comparisons[0].folds == 9
    other = replace(results, conditions=fewer.conditions)
    assert other.comparisons[0].folds == 7
    assert (
        results.only(dataset="bci2a").against("adam", ["afor"], "bci2a", "eegnet", "accuracy")[0]
        is results.comparisons[0]
    )
