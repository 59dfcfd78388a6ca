"""Fixtures of the benchmark's tests."""

import pytest


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"
