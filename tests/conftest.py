"""Fixtures for all tests."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long versions of tests to `make test-slow`."""
    if "slow" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="long version; run with `make test-slow`")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
