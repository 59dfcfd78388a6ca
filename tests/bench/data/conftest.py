"""Stand-ins of the data sets, written once; a test that damages one works on a copy."""

import copy
import shutil

import pytest

from afor.bench.data.stand_ins import write_stand_in


@pytest.fixture(scope="session")
def deap_stand_in(tmp_path_factory):
    root = tmp_path_factory.mktemp("deap")
    write_stand_in("deap", root, ["s01"])
    yield root
    shutil.rmtree(root)  # 103 MB, not to be kept like other temporary files


@pytest.fixture(scope="session")
def bci2a_stand_in(tmp_path_factory):
    root = tmp_path_factory.mktemp("bci2a")
    write_stand_in("bci2a", root, ["A01", "A02"], trials=24)
    return root


@pytest.fixture(scope="session")
def isruc_stand_in(tmp_path_factory):
    root = tmp_path_factory.mktemp("isruc")
    write_stand_in("isruc", root, ["1", "8", "11", "40"], trials=12)
    return root


@pytest.fixture
def copied(tmp_path):
    """Give a function that copies a stand-in to a place where it may be damaged."""
    return lambda root: shutil.copytree(root, tmp_path / "copy")


@pytest.fixture
def changed_dataset(monkeypatch):
    """Return a function that puts a changed copy of a data set in its place."""

    def install(dataset, **changes):
        changed = copy.copy(dataset)
        vars(changed).update(changes)
        monkeypatch.setattr("afor.bench.data.loading.get_dataset", lambda _name: changed)

    return install
