"""The commands that read results, on a store of two thousand runs and on one of huge values."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("load")


def test_two_thousand_runs_are_read_compared_and_reported_in_limits(load, tmp_path):
    # Measured on two busy cores: judge 5.3 s, report 8.0 s and 211 MB, page 4.1 MB.
    figures = load.measure_store(tmp_path, 2000)
    assert figures["runs"] == 1960
    assert figures["judge, s"] < 20
    assert figures["report, s"] < 30
    assert figures["report, MB"] < 500
    assert figures["page, MB"] < 6


def test_huge_values_in_a_store_are_read_shown_and_exported(load, tmp_path, monkeypatch):
    make = load.made_up_run

    def huge(*arguments):
        run = make(*arguments)
        test = replace(run.record.test, nll=1e200, brier=-1e308)
        return replace(run, record=replace(run.record, test=test))

    monkeypatch.setattr(load, "made_up_run", huge)
    load.make_store(tmp_path / "huge.db", 200)
    for words, file in (
        ("judge", ""),
        ("judge --metric nll --metric accuracy", ""),
        ("table main --metric nll --metric accuracy", ""),
        ("figure gain", "gain.svg"),
        ("figure convergence", "convergence.svg"),
        ("report", "report.html"),
        ("export", "export.csv"),
    ):
        target = ["--output", str(tmp_path / file)] if file else []
        asked = [*words.split(), str(tmp_path / "huge.db"), *target]
        shown = CliRunner().invoke(app, asked)
        assert shown.exit_code == 0, (words, shown.output)
    assert "1e+200" in (tmp_path / "export.csv").read_text("utf-8")
