"""Fixtures of the benchmark's tests."""

import os
from pathlib import Path

import pytest


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
