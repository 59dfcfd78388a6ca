import mne
import numpy as np
import pytest

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets.bci2a import DATASET as BCI2A
from afor.bench.data.datasets.bci2a import Bci2aSettings
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.formats.mat import read_mat
from afor.bench.data.loading import open_windows
from afor.bench.data.stand_ins import write_edf, write_stand_in


def test_a_stand_in_says_that_it_is_one(isruc_stand_in):
    assert "not the data set" in (isruc_stand_in / "STAND-IN.txt").read_text()
    assert b"SYNTHETIC" in (isruc_stand_in / "1" / "1.rec").read_bytes()[:256]


def test_mne_reads_our_edf_and_parts_of_seconds_are_refused(tmp_path):
    signal = np.random.default_rng(0).normal(0, 20, (3, 800))
    write_edf(tmp_path / "a.edf", ["C3", "Cz", "C4"], signal, 200)
    raw = mne.io.read_raw_edf(tmp_path / "a.edf", preload=True, verbose="error")
    np.testing.assert_allclose(raw.get_data() * 1e6, signal, atol=2e-3)
    with pytest.raises(ValueError, match="no whole seconds"):
        write_edf(tmp_path / "a.edf", ["C3", "Cz", "C4"], signal, 300)


def test_irregular_subjects_of_isruc_are_irregular_in_the_stand_in(isruc_stand_in):
    labels = {n: read_edf(isruc_stand_in / n / f"{n}.rec").labels() for n in ("1", "8", "11", "40")}
    assert "F3-A2" in labels["1"]
    assert "F3-M2" in labels["11"]
    assert not any(name.startswith("F") for name in labels["8"])
    assert labels["40"] == ("ROC", "A1", "LOC", "A2", "C4", "O2", "C3", "O1", "F4", "F3")


def test_a_session_of_2a_has_the_runs_of_the_real_one(bci2a_stand_in):
    runs = read_mat(bci2a_stand_in / "A01T.mat")["data"]
    assert [run[0]["trial"].shape for run in runs] == [(4, 1)] * 6
    assert {run[0]["X"].shape[1] for run in runs} == {25}
    assert sum(run[0]["artifacts"].sum() for run in runs) == 1
    assert set(np.concatenate([run[0]["y"] for run in runs]).ravel()) == {1, 2, 3, 4}


def test_the_two_sessions_are_of_one_person_and_differ(bci2a_stand_in):
    training, evaluation = (
        BCI2A.load(bci2a_stand_in, "A01", Bci2aSettings(sessions=s)) for s in ("T", "E")
    )
    assert not np.array_equal(training.trials[0], evaluation.trials[0])


def test_an_unknown_set_or_subject_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No stand-in for 'physionet_mi'"):
        write_stand_in("physionet_mi", tmp_path)
    with pytest.raises(ConfigError, match="deap has no subject s99"):
        write_stand_in("deap", tmp_path, ["s99"])


def test_a_stand_in_for_deap_has_as_many_trials_as_asked(tmp_path, cache_dir):
    for subject in ("s01", "s02"):
        write_stand_in("deap", tmp_path, [subject], trials=3)
    source = open_windows("deap", tmp_path, cache_dir=cache_dir)
    assert [subject.shape for subject in source.prepared] == [(3, 32, 7680)] * 2
    (tmp_path / "STAND-IN.txt").unlink()
    with pytest.raises(DataError, match="expected data of shape"):
        open_windows(
            "deap", tmp_path, cache_dir=cache_dir, verify=True, options={"baseline": "mean"}
        )
