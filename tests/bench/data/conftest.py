"""Stand-ins of the data sets, written once; a test that damages one works on a copy."""

import shutil

import pytest

from afor.bench.data.rehearsal.twins import write_twin


@pytest.fixture(scope="session")
def deap_twin(tmp_path_factory):
    root = tmp_path_factory.mktemp("deap")
    write_twin("deap", root, ["s01"])
    yield root
    shutil.rmtree(root)  # 103 MB, not to be kept like other temporary files


@pytest.fixture(scope="session")
def bci2a_twin(tmp_path_factory):
    root = tmp_path_factory.mktemp("bci2a")
    write_twin("bci2a", root, ["A01", "A02"], trials=24)
    return root


@pytest.fixture(scope="session")
def isruc_twin(tmp_path_factory):
    root = tmp_path_factory.mktemp("isruc")
    write_twin("isruc", root, ["1", "8", "11", "40"], trials=12)
    return root


@pytest.fixture
def copied(tmp_path):
    """Give a function that copies a stand-in to a place where it may be damaged."""
    return lambda root: shutil.copytree(root, tmp_path / "copy")
