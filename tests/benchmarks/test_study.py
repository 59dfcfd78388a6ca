"""The benchmark of a whole study: what it compares, and how it extrapolates."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from afor.bench.execution.sources import open_sources
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("study")


def test_start_up_is_told_from_folds_and_all_folds_are_extrapolated(study, monkeypatch, tmp_path):
    commands = []
    seconds = iter([5.0 + 8.0, 10.0 + 80.0, 5.0 + 5 * 8.0, 10.0 + 2 * 80.0])

    def measure(command, _):
        commands.append(command)
        return next(seconds), 1.0

    monkeypatch.setattr(study, "measure", measure)
    rows = study.contest(tmp_path, "")
    assert [("--moabb" in command) for command in commands] == [False, True, False, True]
    ours, theirs = rows["afor run"], rows["MOABB + skorch + torch"]
    assert (ours["start_s"], ours["run_s"], ours["study_s"]) == pytest.approx((5.0, 2.0, 165.0))
    assert (theirs["start_s"], theirs["run_s"]) == pytest.approx((10.0, 20.0))
    assert theirs["runs_per_hour"] == pytest.approx(3600 * 80 / 1610)


@pytest.mark.parametrize("root", ["", "recordings"])
def test_the_study_has_the_folds_that_the_page_says(study, root, tmp_path):
    parsed = parse_study(study.study_text(root, 3))
    assert parsed.training.max_epochs == study.EPOCHS == parsed.training.patience
    if root:
        assert len(parsed.datasets[0].subjects) == study.FOLDS
        return
    sources = open_sources(parsed, tmp_path)
    plan = make_plan(parsed, sources)
    assert len(plan.runs) == 3 * len(study.OPTIMIZERS)
    split = plan.runs[0].spec["split"]
    sizes = [len(split[side]) for side in ("train", "validation", "test")]
    assert sizes == [15, study.VALIDATION_SUBJECTS, 1]
    source = sources["people"]
    assert (source.gather([0]).shape, source.n_classes) == ((1, 19, 160), 2)
    assert source.count_windows(source.subjects[:1]) == 120
