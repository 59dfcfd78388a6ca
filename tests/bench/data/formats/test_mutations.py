"""Damaged files: a DataError or a successful read, nothing else, in bounded time and memory.

Run by hand: python tests/bench/data/formats/test_mutations.py 1000 7 /some/empty/folder edf
"""

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SECONDS_EACH = 5
MILLISECONDS_TO_REFUSE = 100  # on average; measured are 0.5 to 6
EXTRA_BYTES = 1 << 30


KINDS_OF_DAMAGE = 8


def mutate(content, damage, rng):
    """Damage a file in one of the ways files get damaged."""
    data = bytearray(content)
    size = len(data)

    def position():  # half of the damage goes to the head, where the structure is
        return int(rng.integers(min(size, 2048) if rng.random() < 0.5 else size))

    if damage == 0:
        for _ in range(rng.integers(1, 20)):
            data[position()] ^= 1 << int(rng.integers(8))
    elif damage == 1:
        for _ in range(rng.integers(1, 20)):
            data[position()] = int(rng.integers(256))
    elif damage == 2:
        del data[position() :]
    elif damage == 3:
        at = position()
        del data[at : at + int(rng.integers(1, 200))]
    elif damage == 4:
        at = position()
        data[at:at] = rng.bytes(int(rng.integers(1, 200)))
    elif damage == 5:
        at = position()
        length = int(rng.integers(1, 64))
        data[at : at + length] = bytes([int(rng.choice([0, 255, 32, 48, 57]))]) * length
    elif damage == 6:
        a, b, length = position(), position(), int(rng.integers(1, 300))
        data[a : a + length] = data[b : b + length]
    else:
        at = position()
        data[at : at + 8] = rng.choice(
            [b"99999999", b"-1      ", b"nan     ", b"1e300   ", b"\xff" * 7 + b"\x7f", bytes(8)]
        )
    return bytes(data)


def edf_case(root):
    from afor.bench.data.datasets.physionet_mi import CHANNELS, DATASET, PhysionetSettings
    from recording_files import write_edf_plus

    for run in (1, 2):
        signal = np.random.default_rng(run).normal(0, 20, (64, 9 * 160))
        path = root / "S001" / f"S001R{run:02d}.edf"
        write_edf_plus(path, CHANNELS, signal, 160, [(0.0, 8.5, "T0")])
    return path, lambda: DATASET.load(root, "S001", PhysionetSettings())


def rec_case(root):
    from afor.bench.data.datasets.isruc import DATASET, IsrucSettings
    from afor.bench.data.stand_ins import write_stand_in

    path = write_stand_in("isruc", root, ["40"], trials=3)[0]
    return path, lambda: DATASET.load(root, "40", IsrucSettings())


def scoring_case(root):
    from afor.bench.data.datasets.isruc import DATASET, IsrucSettings
    from afor.bench.data.stand_ins import write_stand_in

    path = write_stand_in("isruc", root, ["1"], trials=12)[1]
    return path, lambda: DATASET.load(root, "1", IsrucSettings(max_epoch_difference=30))


def gdf_case(root):
    from afor.bench.data.datasets.bci2a import DATASET, NAMED_AT, Bci2aSettings
    from recording_files import bci2a_session, write_gdf

    labels = [NAMED_AT.get(i, "EEG") for i in range(22)] + ["EOG"] * 3
    signal, events, _ = bci2a_session(trials=6)
    path = root / "A01T.gdf"
    write_gdf(path, labels, signal, 250, events)
    settings = Bci2aSettings(sessions="T", filter_scope="continuous")  # of the damaged file alone
    return path, lambda: DATASET.load(root, "A01", settings)


def mat_case(root):
    from afor.bench.data.datasets.bci2a import DATASET, Bci2aSettings
    from afor.bench.data.stand_ins import write_stand_in

    path = write_stand_in("bci2a", root, ["A01"], trials=4)[0]
    return path, lambda: DATASET.load(root, "A01", Bci2aSettings(sessions="T"))


def packed_mat_case(root):
    from scipy.io import savemat

    from afor.bench.data.datasets.isruc import DATASET, IsrucSettings

    rng = np.random.default_rng(0)
    names = ("F3_A2", "C3_A2", "O1_A2", "F4_A1", "C4_A1", "O2_A1")
    path = root / "subject3.mat"
    arrays = {name: rng.normal(0, 20, (2, 6000)) for name in names}
    savemat(path, arrays, do_compression=True)
    (root / "3").mkdir()
    (root / "3" / "3_1.txt").write_text("2\n" * 32)
    return path, lambda: DATASET.load(root, "3", IsrucSettings())


def dat_case(root):
    from afor.bench.data.datasets import deap
    from recording_files import write_python2_pickle

    deap.DATA_SHAPE = (2, 40, 63 * 128)
    rng = np.random.default_rng(0)
    path = root / "s01.dat"
    arrays = {"labels": rng.uniform(1, 9, (2, 4)), "data": rng.normal(0, 9, (2, 40, 63 * 128))}
    write_python2_pickle(path, arrays)
    return path, lambda: deap.DATASET.load(root, "s01", deap.DeapSettings())


CASES = {
    "edf": edf_case, "rec": rec_case, "gdf": gdf_case, "mat": mat_case,
    "packed-mat": packed_mat_case, "dat": dat_case, "scoring": scoring_case,
}  # fmt: skip


def main(count, seed, root, names):
    """Start a process per kind of file, one after another, all with the imports of this one."""
    import edfio  # noqa: F401
    import scipy.io  # noqa: F401

    from afor.bench.data import stand_ins  # noqa: F401
    from afor.bench.data.datasets import bci2a, deap, isruc, physionet_mi  # noqa: F401

    for name in names or CASES:
        (root / name).mkdir()
        start = multiprocessing.get_context("fork").Process
        process = start(target=damage, args=(name, count, seed, root / name))
        process.start()
        process.join()


def damage(name, count, seed, root):
    """Damage one file many times and read it; write what went wrong as JSON, beside the folder."""
    import resource
    import signal
    import warnings

    from afor.bench.common.errors import DataError
    from afor.bench.data.recording import check_recording

    warnings.simplefilter("error")
    path, load = CASES[name](root)
    original = path.read_bytes()
    check_recording(load())  # the undamaged file is sound; also warms up every import
    if Path("/proc/self/statm").exists():
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + EXTRA_BYTES, now + EXTRA_BYTES))

    def too_slow(_signal, _frame):
        raise TimeoutError(f"more than {SECONDS_EACH} s")

    signal.signal(signal.SIGPROF, too_slow)
    refused, read, faults, refusing_s = 0, 0, [], 0.0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        path.write_bytes(mutate(original, number % KINDS_OF_DAMAGE, rng))
        signal.setitimer(signal.ITIMER_PROF, SECONDS_EACH)  # of this process, however busy others
        started_s = time.process_time()
        try:
            check_recording(load())
            read += 1
        except DataError as error:
            refused += 1
            refusing_s += time.process_time() - started_s
            if path.name not in str(error) and "subject" not in str(error):
                faults.append(f"{number}: names neither file nor subject: {error}")
        except BaseException as error:  # noqa: BLE001  anything else is what we look for
            faults.append(f"{number}: {type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_PROF, 0)
    result = {"refused": refused, "read": read, "faults": faults[:20]}
    result["milliseconds"] = 1000 * refusing_s / max(refused, 1)  # to refuse a file, on average
    root.with_suffix(".json").write_text(json.dumps(result))


def run(count, seed, folder):
    """Damage files of every kind in a process without pytest."""
    command = [sys.executable, __file__, str(count), str(seed), str(folder)]
    with (folder / "output.txt").open("w") as output:
        subprocess.run(command, stdout=output, stderr=output, check=False)


def check(folder, name, count):
    answer = folder / f"{name}.json"
    assert answer.exists(), (folder / "output.txt").read_text()[-2000:]
    result = json.loads(answer.read_text())
    assert result["faults"] == []
    assert result["refused"] > 0
    assert result["milliseconds"] < MILLISECONDS_TO_REFUSE
    assert result["refused"] + result["read"] == count


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_refused_or_read_and_nothing_else(name, filled_once):
    count = 5 * KINDS_OF_DAMAGE
    check(filled_once("damaged", lambda folder: run(count, 7, folder)), name, count)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_a_thousand_damaged_files_are_refused_or_read_and_nothing_else(name, filled_once):
    check(filled_once("damaged-1000", lambda folder: run(1000, 8, folder)), name, 1000)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[3]))
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
