"""Fixtures for all tests."""

import functools
import gc
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

# Processes of pytest share the cores; more threads than cores wait for each other.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    cores = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores)))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads sleep
# One compiler at a time, in this process: inductor's pool would import torch once more.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# A busy machine is no fault of the code: no test asserts on wall time.
# Examples are not kept: the sources may be read-only.
settings.register_profile(
    "afor", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("afor")


# Files and folders whose tests take longest or wait for other processes, relative to this folder.
# They come first, so that the processes of pytest end at about the same time.
LONGEST = ("sharded/test_step.py", "browser", "test_packaging.py", "bench/test_documentation.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to `make test-slow`; the longest of the others first, or shuffle."""
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: not is_below(item.path, LONGEST))
    else:
        random.Random(seed).shuffle(items)  # the same order in every process of xdist
    long = pytest.mark.skip(reason="long version; run with `make test-slow`")
    with_long = "slow" in (config.option.markexpr or "")
    for item in items:
        if "slow" in item.keywords and not with_long:
            item.add_marker(long)


@functools.cache
def is_below(file: Path, names: tuple[str, ...]) -> bool:
    """Tell whether a file of tests is one of these or in one of these folders."""
    tests = Path(__file__).parent
    return any(file.is_relative_to(tests / name) for name in names)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what the imports make out of every garbage collection, meanwhile and later.

    A full collection of the modules of torch, SciPy and the others takes 0.2 s, and some libraries
    ask for one in each call (`statsmodels.stats.multitest.multipletests`).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let modules end as they do elsewhere; some report what is left of them."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def filled_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function that fills a folder once, also when pytest runs in several processes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder = shared / name
        with FileLock(shared / f"{name}.lock"):
            if not folder.exists():
                folder.mkdir()
                fill(folder)
        return folder

    return folder_of


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """Return a function that loads a script, which no package has, by its path here."""

    @functools.cache
    def load(name: str) -> ModuleType:
        path = Path(__file__).parents[1] / name
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look it up
        # A script imports its neighbours. Others must not: one is called as a package is, datasets.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, str(path.parent)])
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def everywhere(load_script: Callable[[str], ModuleType]) -> ModuleType:
    """Return the script behind `make test-everywhere`."""
    return load_script("tests/everywhere.py")


IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "for-loop, vectors": {"foreach": False},
    "foreach, vectors": {"foreach": True},
}


@pytest.fixture(params=list(IMPLEMENTATIONS))
def implementation(request: pytest.FixtureRequest) -> dict[str, bool]:
    """Return the arguments that force one implementation of the update."""
    if request.param == "fused":
        from afor.native.binding import unavailable_reason

        if reason := unavailable_reason():
            pytest.skip(f"the native kernel cannot be used: {reason}")
    if request.param.endswith("vectors"):
        request.getfixturevalue("as_on_a_gpu")
    return dict(IMPLEMENTATIONS[request.param])


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the controller work on vectors, as it does wherever floats would have to be fetched."""
    from afor import update

    monkeypatch.setattr(update, "MAX_SCALAR_TENSORS", 0)
