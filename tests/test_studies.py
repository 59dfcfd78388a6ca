"""The studies of this repository, and that the tables of their pages follow from their runs."""

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.study.schema import load_study

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").rglob("*.toml"))
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_of_the_repository_is_valid(path) -> None:
    assert load_study(str(path)).optimizers


def test_the_search_for_the_rate_is_on_the_data_of_the_study() -> None:
    search = load_study(str(ROOT / "studies" / "physionet" / "lr-search.toml"))
    study, matched = load_study("physionet"), ROOT / "studies" / "physionet" / "matched.toml"
    ours = study.datasets[0]
    assert search.datasets[0].options == ours.options
    assert search.datasets[0].subjects == ours.subjects
    assert load_study(str(matched)).datasets[0].options == ours.options
    assert load_study(str(matched)).training == study.training


@pytest.mark.parametrize(
    ("choose", "judge"),
    [
        ("awake/choose", "awake/judge"),
        ("bursts/choose-clean", "bursts/judge-clean"),
        ("bursts/choose-bursts", "bursts/judge-bursts"),
        ("stream/choose", "stream/judge"),
        ("adaptation/choose", "adaptation/judge"),
    ],
)
def test_rates_are_chosen_in_the_same_training_on_other_people(choose, judge) -> None:
    chosen, judged = (
        load_study(str(ROOT / "studies" / f"{name}.toml")) for name in (choose, judge)
    )
    assert judged.lr_from == chosen.name
    assert chosen.search is not None
    assert [entry.name for entry in chosen.optimizers] == [e.name for e in judged.optimizers]
    same_length = {"max_epochs": judged.training.max_epochs}
    assert chosen.training.model_copy(update=same_length) == judged.training
    ours, theirs = chosen.datasets[0], judged.datasets[0]
    assert ours.options == theirs.options
    assert ours.subjects == [f"S{i:03d}" for i in range(1, 31)]
    assert theirs.subjects == [f"S{i:03d}" for i in range(31, 61)]


@pytest.mark.parametrize(("table", "page"), [("main", "main"), ("comparisons", "gains")])
def test_the_tables_on_physionet_follow_from_the_runs_beside_them(table, page) -> None:
    """The rows of the optimizers; the export has no majority class."""
    runs = RESULTS / "physionet" / "runs.csv"
    arguments = ["table", table, str(runs), "--study", "physionet", "-f", "markdown"]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0, printed.output
    written = (RESULTS / "physionet" / f"{page}.md").read_text("utf-8").splitlines()
    names = ("| Adam", "| AdamW", "| RAdam", "| AdamP", "| Sophia", "| MARS", "| AFOR")
    rows = [line for line in written if line.startswith(names)]
    assert len(rows) >= 6
    assert set(rows) <= set(printed.stdout.splitlines())


def test_the_slope_over_shift_is_that_of_a_line() -> None:
    spec = importlib.util.spec_from_file_location("figure", ROOT / "studies/shift/figure.py")
    assert spec is not None
    assert spec.loader is not None
    figure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figure)

    class Cell:
        def __init__(self, values):
            self.values = values

        def fold_values(self, metric):  # noqa: ARG002  as a cell of the tables
            return dict(enumerate(self.values))

    cells = {}
    for shift in (0.0, 0.5, 1.0, 2.0):
        cells[f"shift_{shift:g}", "eegnet", "adamw"] = Cell([0.5, 0.7])
        cells[f"shift_{shift:g}", "eegnet", "afor"] = Cell([0.5 + 0.02 * shift, 0.8 - 0.01 * shift])
    assert figure.slopes(cells, "afor") == pytest.approx([2.0, -1.0])


def test_the_page_on_shift_shows_the_slopes_that_were_found() -> None:
    trend = json.loads((RESULTS / "shift" / "gains.json").read_text())["trend"]
    page = (RESULTS / "shift.md").read_text("utf-8")
    for found in trend.values():
        assert f"{found['slope']:+.2f}" in page
