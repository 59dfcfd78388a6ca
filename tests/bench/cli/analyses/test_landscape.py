import json

import pytest

from afor.bench.analyses.landscape.record import content_of
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.store.files import write_results


@pytest.fixture
def small(trained_paths, monkeypatch):
    monkeypatch.setenv("AFOR_CACHE", str(trained_paths.cache))
    return [trained_paths.file, "--grid", 3, "--windows", 16, "-j", 1]


def test_one_command_trains_measures_and_draws(call, small, tmp_path):
    data, picture = (tmp_path / name for name in ("l.json", "l.png"))
    result = call("analyse", "landscape", *small, "-o", data, "-o", picture)
    assert "paths: synthetic, eegnet, fold 0, repetition 0; random directions" in result.stdout
    assert "16 of" in result.stdout
    assert f"{data}\n{picture}\n" in result.stderr
    assert "training: adam\ntraining: afor\n" in result.stderr
    assert f"Next: afor figure landscape {data}" in result.stderr
    assert picture.stat().st_size > 5000
    content = json.loads(data.read_text())
    assert list(content["paths"]) == ["adam", "afor"]

    again = call("analyse", "landscape", *small, "--directions", "pca", "--json")
    redrawn = json.loads(again.stdout)
    assert redrawn["directions"] == "pca"
    # Trained again, the paths are the same.
    assert redrawn["paths"]["afor"]["true_loss"] == content["paths"]["afor"]["true_loss"]
    call("figure", "landscape", data, "-o", tmp_path / "again.pdf")
    assert "path in the plane" in call("table", "landscape", data).stdout


def test_optimizers_of_other_seeds_are_refused(refuse, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = ["--method", "adam_seed_1", "--method", "afor"]
    assert "same weights" in refuse("analyse", "landscape", *small, *chosen)


def test_mistakes_are_told_before_the_work(call, refuse, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = "afor.bench.cli.analyses.record_trajectory"
    monkeypatch.setattr(work, lambda *_: pytest.fail("trained before the mistake was told"))
    assert "writes .json, .md, .tex, .csv, .txt, .pdf, .svg, .png files" in refuse(
        "analyse", "landscape", *small, "-o", "x.gif"
    )
    assert 'Did you mean "afor"' in refuse("analyse", "landscape", *small, "--method", "afro")
    assert "no fold 9" in refuse("analyse", "landscape", *small, "--fold", 9)
    assert "a grid of 2 x 2" in refuse("analyse", "landscape", *small, "--grid", 2)
    assert "above 0" in refuse("analyse", "landscape", *small, "--span", 0)
    wrong = call("analyse", "landscape", *small, "--directions", "hessian", code=2)
    assert "'hessian' is not one of 'random', 'filter', 'pca'" in wrong.output
    wrong = call("analyse", "landscape", *small, "--batch-norm", "train", code=2)
    assert "'train' is not one of 'fixed', 'recomputed'" in wrong.output
    assert "at least 2" in refuse("analyse", "landscape", *small, "--windows", 1)
    twice = ["--method", "afor", "--method", "afor"]
    assert "each of them once" in refuse("analyse", "landscape", *small, *twice)
    assert "`afor analyse landscape`" in refuse("figure", "landscape")
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    assert "does not hold a landscape" in refuse("figure", "landscape", bad)


def test_the_report_takes_a_landscape_in(call, refuse, bowl, tmp_path):
    results, data, page = (tmp_path / name for name in ("r.json", "l.json", "report.html"))
    write_results(results, *simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"]))
    data.write_text(json.dumps(content_of(bowl)))
    call("report", results, "-o", page, "--landscape", data)
    html = page.read_text()
    assert 'href="#landscape"' in html
    assert "minimum true loss" in html
    assert "keeps 0.12 % to 0.23 % of the squared" in html
    call("report", results, "-o", page)
    assert "landscape" not in page.read_text().lower()
    data.write_text(data.read_text()[:-20])
    assert "cannot be read as JSON" in refuse("report", results, "-o", page, "--landscape", data)
