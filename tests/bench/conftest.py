"""Fixtures of the benchmark's tests."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import psutil
import pytest

import afor.bench
from afor.bench.cli.app import main
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Ended, Started
from afor.bench.execution.runner import run_study
from afor.bench.store.database import open_store
from afor.bench.store.spool import spool_folder, unwrap
from afor.bench.study.schema import load_study, study_text
from afor.bench.training.execute import execute

FAULTS = Path(__file__).parent / "faults"  # where the trainer of milliseconds lies
# The package that is tested, also in other processes and folders.
WORKER_PATH = os.pathsep.join([str(FAULTS), str(Path(afor.bench.__file__).parents[2])])
DRIVER = [sys.executable, "-c", "from afor.bench.cli.app import main; main()"]


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def physionet_root():
    """Give the folder with real PhysioNet recordings, or skip the test."""
    nearby = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "physionet_mi"
    root = Path(os.environ.get("AFOR_PHYSIONET_ROOT") or nearby)
    if not root.is_dir():
        pytest.skip(
            "real PhysioNet recordings are not here; point AFOR_PHYSIONET_ROOT at a copy of "
            "https://physionet.org/content/eegmmidb/1.0.0/"
        )
    return root


def _heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _toml(value: object) -> str:
    """Return a value as TOML, tables in one line."""
    match value:
        case dict():
            return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


@pytest.fixture(scope="session")
def small_study():
    """Return a function that gives the TOML of a study of seconds, with the keys named changed.

    Keys of `[training]`, `[protocol]`, the data set and its options are given as dictionaries;
    None leaves a key out.
    """

    def text(*, training=None, protocol=None, dataset=None, options=None, **top) -> str:
        synthetic = {"n_subjects": 4, "trials": 8, "rate_hz": 64.0}
        tables = {
            "": {
                "name": "tiny", "backbones": ["eegnet"], "optimizers": ["adamw", "afor"], **top,
            },
            "[training]": {"max_epochs": 2, "batch_size": 32, **(training or {})},
            "[protocol]": {"repetitions": 1, **(protocol or {})},
            "[[datasets]]": {
                "name": "synthetic", **(dataset or {}), "options": {**synthetic, **(options or {})},
            },
        }  # fmt: skip
        lines = []
        for heading, table in tables.items():
            kept = {key: value for key, value in table.items() if value is not None}
            lines += [heading, *(f"{key} = {_toml(value)}" for key, value in kept.items())]
        return "\n".join(lines) + "\n"

    return text


class InlineEngine:
    """An engine without processes, for tests of what comes after the training."""

    def run(self, jobs, sources, spool):  # noqa: ARG002
        for job in jobs:
            yield Started(job.key, "here")
            yield Ended(job.key, execute(job.key, job.spec, sources[job.dataset]))


@pytest.fixture(scope="session")
def inline_engine():
    return InlineEngine()


@pytest.fixture
def train_here(monkeypatch):
    """Let commands train in this process, for tests in which the workers are not at stake."""
    monkeypatch.setattr(LocalEngine, "run", InlineEngine.run)


class TinyStudy:
    """A study with a trainer of milliseconds, its files and the processes that run it."""

    def __init__(self, folder: Path, cache: Path):
        self.folder = folder
        self.file = folder / "tiny.toml"
        self.store = folder / "results" / "tiny.db"
        self.log = folder / "trainings.log"
        self.cache = cache
        self.write()

    def write(
        self, *, optimizers=("a", "b"), subjects=5, repetitions=2, name="tiny", extra="", **settings
    ):
        values = ", ".join(f"{key} = {value}" for key, value in settings.items())
        self.file.write_text(
            f"""
name = "{name}"
trainer = "tiny_trainer:train"
optimizers = {json.dumps(list(optimizers))}
{extra}
[protocol]
repetitions = {repetitions}
[[backbones]]
name = "tiny"
settings = {{ {values} }}
[[datasets]]
name = "synthetic"
options = {{ n_subjects = {subjects}, trials = 4, rate_hz = 64.0, channels = ["C3", "C4"] }}
"""
        )

    @property
    def environment(self):
        return {
            **os.environ,
            "PYTHONPATH": WORKER_PATH,
            "AFOR_CACHE": str(self.cache),
            "TINY_LOG": str(self.log),
        }

    def start(self, *arguments, command="run", study=None, on=subprocess.PIPE, **options):
        # A shell that runs the tests in the background lets its children ignore Ctrl-C.
        options.setdefault("preexec_fn", _heed_interrupts)
        return subprocess.Popen(
            [*DRIVER, *command.split(), str(self.file if study is None else study)]
            + [str(word) for word in arguments],
            cwd=self.folder,
            env={**self.environment, **options.pop("env", {})},
            stdout=on,
            stderr=on,
            text=True,
            **options,
        )

    def run(self, *arguments, code=0, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, (process.returncode, out, err)
        return out + err

    def call(self, *arguments, command="run", study=None, code=0):
        """Run a command as `run` does, but in this process; only its workers are processes."""
        file = str(self.file if study is None else study)
        words = ["afor", *command.split(), file, *map(str, arguments)]
        out, err, ended = io.StringIO(), io.StringIO(), 0
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", words),
        ):
            try:
                main()
            except SystemExit as exit_:
                ended = exit_.code or 0
        assert ended == code, (ended, out.getvalue(), err.getvalue())
        return out.getvalue() + err.getvalue()

    def run_here(self, path=None, workers=1, **options):
        """Run the study from this process; its workers are processes of their own."""
        text, _ = study_text(str(self.file))
        study = load_study(str(self.file))
        engine = options.pop("engine", None) or LocalEngine(workers)
        return run_study(study, text, path or self.store, engine, **options)

    def run_inline(self, path=None, **options):
        """Run the study without any worker; for trainings that do not kill their process."""
        return self.run_here(path, engine=InlineEngine(), **options)

    def trainings(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def finished(self, store=None):
        """Return the finished runs by place: those in the store and those in the spool."""
        path = store or self.store
        if not path.exists():
            return set()
        with open_store(path) as opened:
            opened.check()
            cells = {cell.key: cell for cell in opened.runs()}
            keys = set(opened.statuses())
        for file in spool_folder(path).glob("*.run"):
            unwrap(file.read_bytes())
            keys.add(file.name.removesuffix(".run"))
        return {
            json.dumps([cells[key].method, cells[key].fold, cells[key].repetition]) for key in keys
        }

    def numbers(self, store=None):
        """Return every number of every run, as text that shows each bit."""
        with open_store(store or self.store) as opened:
            runs = {key: opened.run(key) for key in opened.statuses()}
        return {
            key: repr(run.record.numbers()) if run.record else run.status
            for key, run in runs.items()
        }


@pytest.fixture(scope="session")
def window_cache(tmp_path_factory):
    """Give a cache of windows for all tests that do not look into it."""
    return tmp_path_factory.mktemp("windows")


@pytest.fixture
def tiny(tmp_path, window_cache, monkeypatch):
    monkeypatch.setenv("AFOR_CACHE", str(window_cache))
    monkeypatch.syspath_prepend(str(FAULTS))
    study = TinyStudy(tmp_path, window_cache)
    for name in ("PYTHONPATH", "TINY_LOG"):  # for workers that a test starts from this process
        monkeypatch.setenv(name, study.environment[name])
    return study


@pytest.fixture
def workers_of():
    """Wait for a driver's workers and return them."""

    def find(driver, at_least=1, timeout_s=60.0):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if driver.poll() is not None:
                return []
            try:
                found = psutil.Process(driver.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return []
            if len(found) >= at_least:
                return found
            time.sleep(0.02)
        raise AssertionError("the driver has started no worker")

    return find


@pytest.fixture
def assert_gone():
    """Fail unless these processes end within five seconds."""

    def check(processes):
        _, alive = psutil.wait_procs(processes, timeout=5.0)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []

    return check


@pytest.fixture
def kill():
    def end(process):
        process.send_signal(signal.SIGKILL)
        process.communicate()

    return end


@pytest.fixture(scope="session")
def trained_paths(tmp_path_factory, small_study):
    """Give a study of seconds, its file, its runs of Adam and AFOR, and their trajectories."""
    from afor.bench.analyses.landscape.trajectories import record_trajectory
    from afor.bench.analyses.replay import find_run

    folder = tmp_path_factory.mktemp("paths")
    file = folder / "paths.toml"
    twin = {"name": "adam_seed_1", "use": "adam", "seed": 1}
    optimizers = ["adam", twin, "afor"]
    file.write_text(small_study(name="paths", optimizers=optimizers, training={"max_epochs": 3}))
    study, cache = load_study(str(file)), folder / "cache"
    runs = [find_run(study, optimizer=name, cache_dir=cache) for name in ("adam", "afor")]
    return SimpleNamespace(
        study=study,
        file=file,
        cache=cache,
        runs=runs,
        trajectories=[record_trajectory(run) for run in runs],
    )


@pytest.fixture
def bowl():
    """Give a landscape by hand: the loss 1 + x² + y², and two paths that know it."""
    from afor.bench.analyses.landscape.record import Landscape, PathInPlane

    axis = [-2.0, -1.0, 0.0, 1.0, 2.0]

    def path(x, y, share, epochs):
        losses = [1 + a * a + b * b for a, b in zip(x, y, strict=True)]
        return PathInPlane(
            x=x, y=y, solution=len(x) - 1, epochs=epochs,
            projected_loss=losses, true_loss=[loss + 0.5 for loss in losses],
            minimum_loss=min(losses), minimum_true_loss=min(losses) + 0.5, path_length=2.5,
            path_length_full=40.0, explained_share=share, step_share=share / 2,
            random_length_mean=2.0, random_length_sd=0.75,
        )  # fmt: skip

    return Landscape(
        study="made up", dataset="deap", backbone="eegnet", fold=1, repetition=2, center="afor",
        directions="random", seed=7, weights=1724, span=2.0, windows=512, training_windows=9000,
        batch_norm="fixed", axis=axis,
        loss=[[1 + x * x + y * y for x in axis] for y in axis],
        paths={
            "adam": path([1.5, 1.0, 1.0], [1.5, 1.0, 0.0], 0.0012, 2),
            "afor": path([1.5, 0.5, 0.0], [1.5, 1.0, 0.0], 0.0023, 3),
        },
    )  # fmt: skip


@pytest.fixture
def real_study(tiny, small_study):
    """Write a study that trains a small EEGNet, six runs of two epochs, instead of the tiny one."""

    def write():
        tiny.file.write_text(
            small_study(
                name="real",
                optimizers=["adam", "sophia", "afor"],
                training={"batch_size": 8},
                protocol={"only_folds": [0, 1]},
                options={"n_subjects": 3, "trials": 6, "channels": ["C3", "Cz", "C4"]},
            )
        )

    return write


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a real scheduler and two real workers, in other processes and another folder."""
    folder = tmp_path_factory.mktemp("cluster")
    address_file = folder / "scheduler.json"
    environment = {
        **os.environ,
        "PYTHONPATH": WORKER_PATH,
        "AFOR_CACHE": str(folder / "cache"),
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
    }
    common = {"cwd": folder, "env": environment, "start_new_session": True}
    log = (folder / "log").open("wb")
    python = [sys.executable, "-m", "dask"]
    quiet = ["--no-dashboard", "--host", "127.0.0.1"]
    started = [
        subprocess.Popen(
            [*python, "scheduler", *quiet, "--port", "0", "--scheduler-file", address_file],
            stdout=log,
            stderr=log,
            **common,
        )
    ]
    end = time.monotonic() + 60
    while not address_file.exists() or not address_file.read_text().strip():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)
    address = json.loads(address_file.read_text())["address"]
    workers = ["--nthreads", "1", "--nworkers", "2", "--local-directory", folder / "space"]
    started.append(
        subprocess.Popen(
            [*python, "worker", address, *quiet, *workers], stdout=log, stderr=log, **common
        )
    )
    yield SimpleNamespace(address=address, folder=folder)
    for process in reversed(started):  # with the nannies and workers of its group
        os.killpg(process.pid, signal.SIGTERM)
    for process in reversed(started):
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    log.close()
