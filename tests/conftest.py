"""Fixtures for all tests."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no test asserts on wall time.
settings.register_profile("afor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("afor")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long versions of tests to `make test-slow`."""
    if "slow" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="long version; run with `make test-slow`")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


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
        from afor.fused import unavailable_reason

        if reason := unavailable_reason():
            pytest.skip(f"the native kernel cannot be used: {reason}")
    if request.param.endswith("vectors"):
        request.getfixturevalue("as_on_a_gpu")
    return dict(IMPLEMENTATIONS[request.param])


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the controller work on vectors, as it does wherever floats would have to be fetched."""
    from afor import functional

    monkeypatch.setattr(functional, "FEW", 0)
