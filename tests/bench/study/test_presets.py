"""Every preset runs, from files in the real formats to the table or figure it was made for."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import afor.bench
from afor.bench.cli.app import app
from afor.bench.data.datasets import eegmat, physionet_mi
from afor.bench.data.stand_ins import write_edf, write_stand_in
from afor.bench.store.database import open_store
from afor.bench.study.schema import load_study
from recording_files import write_edf_plus

# What each preset is looked at with; a search prints its rates itself.
LOOKS = {
    "paper": [["table", "main"], ["table", "beside-paper"]],
    "paper-original": [["table", "main"], ["table", "beside-paper"]],
    "ablation": [["table", "ablation"], ["figure", "ablation"]],
    "sensitivity": [["table", "sensitivity"], ["figure", "sensitivity"]],
    "controls": [["table", "noise"], ["figure", "noise"]],
    "convergence": [["table", "convergence"], ["figure", "convergence"]],
    "lr-search": [],
}
FEW = ["--epochs", "1", "--set", "protocol.repetitions=1", "--set", "protocol.only_folds=[0]"]
runner = CliRunner()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write three subjects of BCI IV 2a with a handful of trials, and ten nights of ISRUC."""
    folder = tmp_path_factory.mktemp("data")
    write_stand_in("bci2a", folder / "bci2a", ["A01", "A02", "A03"], trials=6)
    write_stand_in("isruc", folder / "isruc", [str(n) for n in range(1, 4)], trials=6)
    return folder


def run(folder, name, *options):
    result = runner.invoke(app, ["run", name, "-j", "1", "--json", *options])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def look(store, *command):
    target = store.with_suffix(".png") if command[0] == "figure" else store.with_suffix(".csv")
    result = runner.invoke(app, [*command, str(store), "--output", str(target)])
    assert result.exit_code == 0, (result.output, result.exception)
    return target


@pytest.fixture
def here(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_DATA", str(data))
    monkeypatch.setenv("AFOR_CACHE", str(data / "cache"))
    # For the workers: the package that is tested, also from another folder.
    monkeypatch.setenv("PYTHONPATH", str(Path(afor.bench.__file__).parents[2]))
    return tmp_path


@pytest.mark.usefixtures("train_here")
@pytest.mark.parametrize("preset", LOOKS)
def test_a_preset_of_the_paper_runs_and_shows_what_it_was_made_for(here, preset):
    dataset = "isruc" if preset == "sensitivity" else "bci2a"
    small = [f"datasets.{dataset}.complete=false"]
    small += ["datasets.isruc.folds=3"] if dataset == "isruc" else []
    backbone = load_study(preset).backbones[0].name
    done = run(
        here, preset, "--dataset", dataset, "--backbone", backbone, *FEW,
        *(word for setting in small for word in ("--set", setting)),
    )  # fmt: skip
    study = load_study(preset)
    per_fold = len(study.optimizers) * (len(study.search.grid) if study.search else 1)
    assert (done["study"], done["failed"]) == (f"{preset}-{dataset}-{backbone}", 0)
    assert done["done"] == per_fold
    store = here / done["store"]
    for command in LOOKS[preset]:
        target = look(store, *command)
        assert target.stat().st_size > 200
        if target.suffix == ".csv":
            assert list(csv.DictReader(io.StringIO(target.read_text("utf-8"))))


@pytest.mark.usefixtures("train_here")
def test_the_rates_of_a_search_serve_the_study_that_follows(here):
    whole = ["--dataset", "bci2a", "--backbone", "eegnet", *FEW]
    whole += ["--set", "datasets.bci2a.complete=false"]
    run(here, "lr-search", *whole, "--set", "search.grid=[1e-3, 1e-2]")
    done = run(
        here, "controls", *whole, "--optimizer", "adam", "--lr-from", "lr-search-bci2a-eegnet"
    )
    with open_store(here / done["store"]) as store:
        assert {cell.rate for cell in store.runs()} <= {1e-3, 1e-2}


@pytest.mark.parametrize(
    ("preset", "runs", "windows"),
    [
        ("open", 30, {"imagery": 7200, "eyes": 1800, "arithmetic": 4320}),
        ("open-sleep", 10, {"sleep_edf": 51_200}),
    ],
)
def test_the_study_on_open_data_is_planned_without_the_files(
    tmp_path, monkeypatch, preset, runs, windows
):
    monkeypatch.setenv("AFOR_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    one = ["--backbone", "eegnet_authors", "--optimizer", "adam"]
    answer = runner.invoke(app, ["plan", preset, *one])
    assert answer.exit_code == 0, answer.exception
    assert f"{runs} runs: {runs} open" in answer.stdout
    said = " ".join(answer.stdout.split())  # wrapped where a terminal is taken to be
    for name, count in windows.items():
        assert re.search(rf"\b{name} \d+ subjects, [^;]*; {count} windows", said)


def test_the_preset_open_has_the_settings_of_the_studies_on_open_data():
    preset = load_study("open")
    study = load_study(str(Path(__file__).parents[3] / "studies" / "open" / "rates.toml"))
    assert preset.training == study.training
    assert preset.backbones == study.backbones
    assert preset.protocol == study.protocol.model_copy(update={"only_folds": None})
    eyes, theirs = (next(d for d in s.datasets if d.name == "eyes") for s in (preset, study))
    assert eyes.model_copy(update={"lr": {}}) == theirs


@pytest.mark.usefixtures("train_here")
def test_the_study_on_open_data_trains_from_files_as_they_are_fetched(here, monkeypatch):
    folder = here / "fetched"
    for number in range(3):
        for run_number in (1, 2):
            signal = np.random.default_rng([number, run_number]).normal(0, 20, (64, 61 * 160))
            name = f"S00{number + 1}/S00{number + 1}R0{run_number}.edf"
            path = folder / "physionet_mi" / name
            write_edf_plus(path, physionet_mi.CHANNELS, signal, 160, [(0.0, 61.0, "T0")])
            names = [f"EEG {name}" for name in eegmat.CHANNELS]
            path = folder / "eegmat" / f"Subject0{number}_{run_number}.edf"
            write_edf(path, names, signal[:19].repeat(4, axis=1)[:, : 62 * 500], 500)
    monkeypatch.setenv("AFOR_DATA", str(folder))
    small = [
        "datasets.eyes.subjects=['S001', 'S002', 'S003']", "datasets.eyes.folds=3",
        "datasets.arithmetic.complete=false", "datasets.arithmetic.folds=3",
    ]  # fmt: skip
    done = run(
        here, "open", "--dataset", "eyes", "--dataset", "arithmetic", "--optimizer", "adam",
        "--backbone", "eegnet_authors", "--backbone", "hslt_authors", *FEW,
        *(word for setting in small for word in ("--set", setting)),
    )  # fmt: skip
    assert (done["done"], done["failed"]) == (4, 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("preset", LOOKS)
def test_a_preset_runs_on_all_its_data_sets_and_backbones(here, preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_stand_in("deap", folder / "deap", ["s01", "s02", "s03"])
    study = load_study(preset)
    changes = [f"datasets.{entry.name}.complete=false" for entry in study.datasets]
    names = [entry.name for entry in study.datasets]
    changes += ["datasets.isruc.folds=3"] if "isruc" in names else []
    # Two windows of each trial are enough to see every network train.
    options = ["--set", "datasets.deap.options.stride_samples=3840"] if "deap" in names else []
    options += ["--root", f"deap={folder / 'deap'}"] if "deap" in names else []
    done = run(
        here, preset, *FEW, *options, *(word for c in changes for word in ("--set", c))
    )  # fmt: skip
    cells = len(study.datasets) * len(study.backbones) * len(study.optimizers)
    assert done["done"] == cells * (len(study.search.grid) if study.search else 1)
    for command in LOOKS[preset]:
        assert look(here / done["store"], *command).stat().st_size > 200
