"""Fixtures for all tests."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no test asserts on wall time.
settings.register_profile("afor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("afor")


# Files and folders of tests whose outcome could depend on the machine: on the kernels that ATen,
# oneDNN and MKL choose for the processor, on the number of threads, on a compiler, on folders that
# can be written. Paths are relative to this folder.
MACHINE = (
    # The optimizer: every implementation against the equations.
    "native", "test_checkpoint.py", "test_contract_compile.py",
    "test_contract_differentiable.py", "test_contract_dtypes.py", "test_contract_scaler.py",
    "test_contract_schedulers.py", "test_contract_tensors.py", "test_contract_training.py",
    "test_control.py", "test_monitor.py", "test_operators.py", "test_optimizer.py",
    "test_properties.py", "test_reference.py", "test_released.py", "test_update.py",
    # Networks, optimizers and training of the benchmark.
    "bench/models", "bench/optimizers", "bench/training", "bench/test_numerics.py",
    "bench/common/test_seeding.py",
    # Signals and analyses.
    "bench/data/datasets/test_synthetic.py", "bench/data/preparation/test_loading.py",
    "bench/data/preparation/test_preprocessing.py", "bench/analyses/adaptation",
    "bench/analyses/landscape", "bench/analyses/test_replay.py", "bench/analyses/test_step_log.py",
    "bench/analyses/theory",
    # What is printed and written: examples, dates, folders, the cache.
    "bench/cli/analyses", "bench/cli/catalog/test_data.py", "bench/common/test_doctor.py",
    "bench/data/preparation/test_cache.py", "bench/execution/test_verify.py",
    "bench/store/test_locations.py",
    "test_doctests.py", "test_documentation.py", "test_documentation_studies.py",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what depends on the machine, leave long tests to `make test-slow`, shuffle if asked."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)  # the same order in every process of xdist
    long = pytest.mark.skip(reason="long version; run with `make test-slow`")
    with_long = "slow" in (config.option.markexpr or "")
    tests = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(tests / name) for name in MACHINE):
            item.add_marker("machine")
        if "slow" in item.keywords and not with_long:
            item.add_marker(long)


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
