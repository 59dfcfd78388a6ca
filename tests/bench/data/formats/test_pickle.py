"""The attack list of the guide: every file is refused, nothing runs, memory stays small."""

import copyreg
import io
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from afor.bench.common.errors import DataError
from afor.bench.data.formats.pickle import MAX_READS, read_arrays
from recording_files import write_python2_pickle

RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
ARRAYS = {"data": np.random.default_rng(0).normal(size=(2, 3, 4)), "labels": np.eye(3)}


class Calls:
    """Pickles into a call of ``function`` with ``arguments``."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def object_array(evil):
    array = np.empty(1, dtype=object)
    array[0] = evil
    return array


def nested(depth, opening, closing):
    return b"\x80\x02" + opening * depth + closing * (depth - 1) + b"."


def global_call(name, arguments):
    return b"\x80\x02c" + name + arguments + b"R."


def attacks(marker):
    """Return name → bytes; a successful attack would create the file ``marker``."""
    command = f"touch {marker}"
    evil = Calls(os.system, command)
    text = pickle.dumps("x" * 1000, 2)[2:-1]
    return {
        "os.system": pickle.dumps(evil, 2),
        "os.system in a dict": pickle.dumps({"data": evil, "labels": evil}, 4),
        "eval": pickle.dumps(Calls(eval, f"open({str(marker)!r}, 'w')"), 2),
        "numpy runstring": global_call(
            b"numpy.testing\nrundocs\n", b"U\x04evil\x85"
        ),
        "numpy testing runstring": global_call(
            b"numpy.testing._private.utils\nrunstring\n", b"U\x04evil}\x86"
        ),
        "nested loads": pickle.dumps(Calls(pickle.loads, pickle.dumps(evil)), 2),
        "object array": pickle.dumps({"data": object_array(evil)}, 2),
        "object array protocol 4": pickle.dumps({"data": object_array(evil)}, 4),
        "EXT1": b"\x80\x02\x82\xf0U" + bytes([len(command)]) + command.encode() + b"\x85R.",
        "EXT2": b"\x80\x02\x83\xf0\x00)R.",
        "EXT4": b"\x80\x02\x84\xf0\x00\x00\x00)R.",
        "memo bomb": b"\x80\x02Nr" + struct.pack("<I", 2**28) + b".",
        "memo text bomb": b"Np268435456\n.",
        "a million lists": nested(1_000_000, b"]", b"a"),
        "a million tuples": nested(1_000_000, b"(", b"t"),
        "deep tuples": b"\x80\x02}U\x01a" + b")" + b"\x85" * (MAX_READS // 2) + b"s.",
        "deep tuples as a shape": b"\x80\x02" + RECONSTRUCT + b"cnumpy\nndarray\n)"
        + b"\x85" * 9000 + b"U\x01b\x87R.",
        "32 GiB array": b"\x80\x02" + RECONSTRUCT
        + b"cnumpy\nndarray\n\x8a\x08" + struct.pack("<q", 2**35) + b"\x85U\x01b\x87R.",
        "huge shape": b"\x80\x02" + RECONSTRUCT + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ftcnumpy\ndtype\nU\x02f8K\x00K\x01\x87R\x89U\x00tb.",
        "1 TB string": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"abc.",
        "1 TB bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc.",
        "1 TB frame": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.",
        "negative length": b"\x80\x02T\xff\xff\xff\xff.",
        "PERSID": b"Pos.system\n.",
        "BINPERSID": b"\x80\x02U\x01aQ.",
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nU\x04true" + b"o.",
        "NEWOBJ": b"\x80\x02cnumpy\nndarray\nK\x01\x85\x81.",
        "REDUCE with odd arguments": b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.",
        "dtype with fields": pickle.dumps(np.zeros(2, dtype=[("a", "f8")]), 2),
        "dtype of a million": b"\x80\x02cnumpy\ndtype\nX\x0a\x00\x00\x001000000000K\x00K\x01\x87R.",
        "encode with another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aU\x03zip\x86R.",
        "decode bomb": b"\x80\x02}c_codecs\nencode\nq\x00" + text[:-2] + b"q\x01U\x06latin1q\x02"
        + b"h\x00h\x01h\x02\x86R" * 1000 + b".",
        "not latin1": b"\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacU\x06latin1\x86R.",
        "BUILD on a name": b"\x80\x02cnumpy\nndarray\n(K\x01tb.",
        "number as text": b"I99999999999\n.",
        "no dict": pickle.dumps([1.0, 2.0], 2),
        "wrong values": pickle.dumps({"data": 1, "labels": "x"}, 2),
        "integers": pickle.dumps({"data": np.arange(5)}, 2),
        "two values": b"\x80\x02NN.",
        "data after the end": pickle.dumps({}, 2) + b"more",
        "empty stack": b"\x80\x020.",
        "no end": b"\x80\x02N",
        "empty": b"",
        "one byte": b"\x80",
        "random": np.random.default_rng(1).bytes(5000),
        "random with header": b"\x80\x02" + np.random.default_rng(2).bytes(5000),
        "long line": b"c" + b"a" * 100_000,
    }  # fmt: skip


def pytest_generate_tests(metafunc):
    if "attack" in metafunc.fixturenames:
        metafunc.parametrize("attack", list(attacks("unused")))


@pytest.fixture
def warm_extension_cache():
    """Registered extension codes run without find_class: the break-in of the guide."""
    copyreg.add_extension("os", "system", 0xF0)
    pickle.loads(b"\x80\x02\x82\xf0.")
    yield
    copyreg.remove_extension("os", "system", 0xF0)


@pytest.mark.timeout(10)
@pytest.mark.usefixtures("warm_extension_cache")
def test_a_malicious_or_damaged_pickle_is_refused_and_nothing_runs(attack, tmp_path):
    marker = tmp_path / "marker"
    path = tmp_path / "s01.dat"
    path.write_bytes(attacks(marker)[attack])
    with pytest.raises(DataError, match=r"s01\.dat"):
        read_arrays(path)
    assert not marker.exists()


def test_the_attacks_are_real():
    """The same bytes do run in pickle.load: otherwise the tests above would show nothing."""
    reached = []

    class Watcher(pickle.Unpickler):
        def find_class(self, module, name):
            reached.append((module, name))
            raise pickle.UnpicklingError("seen")

    for name in ("os.system", "eval", "nested loads", "object array", "INST"):
        with pytest.raises(pickle.UnpicklingError):
            Watcher(io.BytesIO(attacks("x")[name])).load()
    modules = [module for module, _ in reached]
    assert modules == ["posix", "__builtin__", "pickle", "numpy._core.multiarray", "os"]


def test_all_attacks_together_stay_within_memory_and_time(tmp_path):
    """Measured in a fresh process: the guide's naive reader took 4.1 GB for a 9-byte file."""
    for number, content in enumerate(attacks(tmp_path / "marker").values()):
        (tmp_path / f"{number:02d}.dat").write_bytes(content)
    program = """
import json, resource, sys
from pathlib import Path
from afor.bench.data.formats.pickle import read_arrays
from afor.bench.common.errors import DataError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, refused = peak(), 0
for path in sorted(Path(sys.argv[1]).glob("*.dat")):
    try:
        read_arrays(path)
    except DataError:
        refused += 1
print(json.dumps([refused, peak() - before]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    refused, grown_mb = json.loads(answer.stdout)
    assert refused == len(attacks("x"))
    assert grown_mb < 300


@pytest.mark.parametrize("protocol", [1, 2, 3, 4])
def test_python_3_re_saved_arrays_are_read(tmp_path, protocol):
    path = tmp_path / "s01.dat"
    path.write_bytes(pickle.dumps(ARRAYS, protocol))
    read = read_arrays(path)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


def test_a_python_2_pickle_is_read_and_its_arrays_cannot_be_written(tmp_path):
    path = tmp_path / "s01.dat"
    write_python2_pickle(path, ARRAYS)
    read = read_arrays(path)
    np.testing.assert_array_equal(read["data"], ARRAYS["data"])
    assert not read["data"].flags.writeable


@pytest.mark.parametrize("array", [np.asfortranarray(np.eye(3)[:, :2]), np.eye(2, dtype=">f4")])
def test_column_order_and_foreign_byte_order_are_respected(tmp_path, array):
    path = tmp_path / "s01.dat"
    path.write_bytes(pickle.dumps({"data": array}, 2))
    np.testing.assert_array_equal(read_arrays(path)["data"], array)


def test_a_file_above_the_size_limit_and_a_missing_one_are_refused(tmp_path):
    path = tmp_path / "s01.dat"
    path.write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="more than the limit of 50"):
        read_arrays(path, max_bytes=50)
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(tmp_path / "none.dat")
