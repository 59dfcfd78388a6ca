"""The pages for maintainers name modules and functions that exist."""

import importlib
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import scipy.stats  # noqa: F401  imported before calls are recorded
import torch

from afor import AFOR
from afor.bench.cli.entry import main
from afor.bench.cli.studies.run import run
from afor.bench.cli.studies.selection import StudyOptions
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Ended
from afor.bench.models.dataset_shapes import PHYSIONET_MI
from afor.bench.report.registry import build_table
from afor.bench.stats.results import Results
from afor.bench.store.database import open_or_create
from afor.bench.store.spool import read_spool, write_spool
from afor.bench.training.execute import execute
from recording_files import write_edf_plus

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/explanation/design.md", "CONTRIBUTING.md")


def named_in(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    return sorted(set(re.findall(r"`(afor(?:\.\w+)+)`", text)))


@pytest.mark.parametrize("name", named_in(PAGES[0]))
def test_every_name_of_the_design_page_exists(name):
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            named = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            named = getattr(named, attribute)
        return
    pytest.fail(f"there is no module {parts[0]}")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text()
    names = re.findall(r"`((?:src|tests|docs|tools|benchmarks)/[\w./-]+\.(?:py|md|toml|c))`", text)
    missing = [name for name in names if "NAME" not in name and not (ROOT / name).is_file()]
    assert missing == []


def sub_packages() -> list[str]:
    """Return the sub-packages that the design page lists, as paths in `src/afor/bench`."""
    text = (ROOT / PAGES[0]).read_text()
    listed = text.partition("has sub-packages:\n\n")[2].partition("\n\n")[0]
    package, found = "", []
    for line in listed.splitlines():
        package = line[4:17].strip() or package
        found.append(f"{package}/{line[17:].split()[0]}")
    return found


def test_the_design_page_lists_the_sub_packages():
    bench = ROOT / "src" / "afor" / "bench"
    there = {str(init.parent.relative_to(bench)) for init in bench.glob("*/*/__init__.py")}
    assert set(sub_packages()) == there


STUDY = """
name = "walk"
backbones = ["eegnet"]
optimizers = ["adam", "afor"]
training = {{ max_epochs = 1, batch_size = 4 }}
protocol = {{ repetitions = 1 }}

[[datasets]]
name = "physionet_mi"
root = "{root}"
options = {{ trial_s = 1.0, channels = ["C3", "Cz", "C4"] }}
"""
OTHER_PROCESS = "afor.bench.execution.engines.worker.main"


def train_here(_, jobs, sources, spool):
    """Do what the workers do, in this process."""
    for job in jobs:
        path = write_spool(spool, job.key, execute(job.key, job.spec, sources[job.dataset]))
        yield Ended(job.key, read_spool(path), path)


def names_of_walk(heading: str) -> list[str]:
    """Return the functions that a walk of the design page names, in its order."""
    walk = (ROOT / PAGES[0]).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    names = re.findall(r"`(afor(?:\.\w+){2,})`", walk)
    assert len(names) > 5
    return [name for name in names if name not in (OTHER_PROCESS, "afor.bench.cli.app")]


def check_walk(names: list[str], walk: Callable[[], object]) -> None:
    """Take a walk and check that the functions are first called in the order of the page."""
    first_calls: dict[str, int] = {}

    def record(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("afor"):
            name = f"{module}.{frame.f_code.co_qualname}".removesuffix(".__init__")
            first_calls.setdefault(name, len(first_calls))

    sys.setprofile(record)
    try:
        walk()
    finally:
        sys.setprofile(None)
    assert [name for name in names if name not in first_calls] == []
    for earlier, later in pairwise(names):
        assert first_calls[earlier] < first_calls[later], (earlier, later)


def test_a_recording_passes_the_functions_of_the_walk_in_their_order(tmp_path, monkeypatch):
    noise = np.random.default_rng(0)
    for subject in ("S001", "S002", "S003"):
        for number in (1, 2):
            signal = noise.normal(0, 20, (64, 6 * 160))
            path = tmp_path / subject / f"{subject}R{number:02d}.edf"
            write_edf_plus(path, PHYSIONET_MI.channel_names, signal, 160, [(0.0, 5.5, "T0")])
    study = tmp_path / "walk.toml"
    study.write_text(STUDY.format(root=tmp_path))
    monkeypatch.setattr(LocalEngine, "run", train_here)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))

    def walk():
        run(str(study), options=StudyOptions(store=tmp_path / "walk.db"), jobs=1)
        build_table("main", Results.open([tmp_path / "walk.db"]))

    check_walk(names_of_walk("From a recording to a cell of a table"), walk)


def test_a_step_passes_the_functions_of_the_walk_in_their_order():
    model = torch.nn.Linear(4, 2)
    optimizer = AFOR(model.parameters(), foreach=True)
    model(torch.ones(3, 4)).sum().backward()
    check_walk(names_of_walk("From a gradient to a weight: one step"), optimizer.step)


def test_a_command_passes_the_functions_of_the_walk_in_their_order(tmp_path, monkeypatch, capsys):
    open_or_create(tmp_path / "walk.db").close()
    monkeypatch.setattr(sys, "argv", ["afor", "status", str(tmp_path / "walk.db")])

    def walk():
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0

    check_walk(names_of_walk("From a word to its answer: one command"), walk)
    assert "No driver is running." in capsys.readouterr().out
