"""The commands that read results, on a store of two thousand runs."""

import importlib
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_two_thousand_runs_are_read_compared_and_reported_in_limits(monkeypatch, tmp_path):
    # Measured on two busy cores: judge 5.3 s, report 8.0 s and 211 MB, page 4.1 MB.
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    load = importlib.import_module("load")
    figures = load.measure_store(tmp_path, 2000)
    assert figures["runs"] == 1960
    assert figures["judge, s"] < 20
    assert figures["report, s"] < 30
    assert figures["report, MB"] < 500
    assert figures["page, MB"] < 6
