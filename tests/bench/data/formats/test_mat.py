import numpy as np
import pytest
from scipy.io import loadmat, savemat

from afor.bench.common.errors import DataError
from afor.bench.data.formats import mat as mat5
from afor.bench.data.formats.mat import read_mat

VARIABLES = {
    "numbers": np.random.default_rng(0).normal(size=(3, 4)),
    "bytes": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "small": np.array([[1]], dtype=np.int16),
    "single": np.float32([[1.5, 2.5]]),
    "cube": np.arange(24.0).reshape(2, 3, 4),
    "empty": np.empty((0, 0)),
    "truth": np.array([[True, False]]),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_numbers_of_every_kind_are_those_scipy_wrote(tmp_path, compressed):
    savemat(tmp_path / "a.mat", VARIABLES, do_compression=compressed)
    read, theirs = read_mat(tmp_path / "a.mat"), loadmat(tmp_path / "a.mat")
    assert set(read) == set(VARIABLES)
    for name in VARIABLES:
        np.testing.assert_array_equal(read[name], theirs[name])


@pytest.mark.parametrize("compressed", [False, True])
def test_texts_cells_and_structs_become_str_lists_and_dicts(tmp_path, compressed):
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = {"X": np.eye(2), "name": "left hand"}, {"X": np.eye(3), "name": ""}
    savemat(tmp_path / "a.mat", {"data": cell, "word": "hello"}, do_compression=compressed)
    read = read_mat(tmp_path / "a.mat")
    assert read["word"] == "hello"
    np.testing.assert_array_equal(read["data"][1][0]["X"], np.eye(3))
    assert read["data"][0][0]["name"] == "left hand"


def test_only_the_wanted_variables_are_kept(tmp_path):
    savemat(tmp_path / "a.mat", VARIABLES)
    assert set(read_mat(tmp_path / "a.mat", {"cube", "absent"})) == {"cube"}


def test_a_bomb_stops_at_the_limit(tmp_path, monkeypatch):
    savemat(tmp_path / "a.mat", {"x": np.zeros((1000, 1000))}, do_compression=True)
    assert (tmp_path / "a.mat").stat().st_size < 20_000
    monkeypatch.setattr(mat5, "MAX_VARIABLE_BYTES", 1 << 20)
    with pytest.raises(DataError, match="unpacks beyond the limit"):
        read_mat(tmp_path / "a.mat")
    savemat(tmp_path / "b.mat", {"x": np.zeros((1000, 100))})
    monkeypatch.setattr(mat5, "MAX_KEPT_BYTES", 1000)
    with pytest.raises(DataError, match="more than the limit of 1000"):
        read_mat(tmp_path / "b.mat")
    savemat(tmp_path / "c.mat", {"x": np.zeros((1000, 10))}, do_compression=True)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        read_mat(tmp_path / "c.mat")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"MATLAB 5.0" + bytes(50), "no MATLAB 5 file"),
        (b"MATLAB 7.3 MAT-file" + bytes(200), "save it with '-v7'"),
        (b"\x89HDF\r\n\x1a\n" + bytes(200), "save it with '-v7'"),
        (bytes(126) + b"MI", "big-endian"),
        (bytes(126) + b"IM" + b"\x0e\0\0\0\xff\xff\xff\x7f", "wants 2147483647 bytes"),
        (bytes(126) + b"IM" + b"\x0f\0\0\0\x04\0\0\0abcd", "damaged MATLAB file"),
        (bytes(126) + b"IM" + b"\x01\0\0\0\x01\0\0\0aaaaaaaa", "type 1 where a variable"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_fault(tmp_path, content, message):
    path = tmp_path / "bad.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_mat(path)
    assert "bad.mat" in str(error.value)


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_mat(tmp_path / "none.mat")
