"""Fixtures for all tests."""

import random

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no test asserts on wall time.
settings.register_profile("afor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("afor")


# Files whose outcome could depend on the machine: on the kernels that ATen, oneDNN and MKL choose
# for the processor, on the number of threads, on a compiler, on folders that can be written.
MACHINE = frozenset({
    # The optimizer: every implementation against the equations.
    "test_checkpoint", "test_contract_compile", "test_contract_differentiable",
    "test_contract_dtypes", "test_contract_scaler", "test_contract_schedulers",
    "test_contract_tensors", "test_contract_training", "test_control", "test_functional",
    "test_fused", "test_kernel", "test_monitor", "test_operators", "test_optimizer",
    "test_properties", "test_reference", "test_released",
    # Networks, optimizers and training of the benchmark.
    "test_acrnn", "test_adamp", "test_batches", "test_build", "test_eegnet",
    "test_every_backbone", "test_features", "test_hslt", "test_mars", "test_metrics",
    "test_nsal_dgat", "test_numerics", "test_per_tensor", "test_precision", "test_seeds",
    "test_sophia", "test_spatial_first", "test_stacked", "test_toeplitz", "test_tokens",
    "test_traces", "test_train",
    # Signals and analyses.
    "test_blocks", "test_landscape", "test_loss_grid", "test_loss_surface", "test_memory",
    "test_memory_weights", "test_plane", "test_preprocess", "test_replay", "test_shift",
    "test_step_log", "test_synthetic", "test_theory_run", "test_theory_toy",
    "test_trajectories", "test_windows",
    # What is printed and written: examples, dates, folders, the cache.
    "test_data", "test_doctests", "test_documentation", "test_documentation_studies",
    "test_doctor", "test_places", "test_trial_cache", "test_verify",
})  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what depends on the machine, leave long tests to `make test-slow`, shuffle if asked."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)  # the same order in every process of xdist
    long = pytest.mark.skip(reason="long version; run with `make test-slow`")
    with_long = "slow" in (config.option.markexpr or "")
    for item in items:
        if item.path.stem in MACHINE:
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
