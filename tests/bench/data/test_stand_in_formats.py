"""What our writers write, programs of other people read."""

import pickle

import mne
import numpy as np
import pytest

from afor.bench.data.stand_ins import write_edf, write_gdf, write_python2_pickle

SIGNAL = np.random.default_rng(0).normal(0, 20, (3, 800))


def test_mne_reads_our_edf_and_edf_plus(tmp_path):
    write_edf(tmp_path / "a.edf", ["C3", "Cz", "C4"], SIGNAL, 200)
    raw = mne.io.read_raw_edf(tmp_path / "a.edf", preload=True, verbose="error")
    np.testing.assert_allclose(raw.get_data() * 1e6, SIGNAL, atol=2e-3)
    events = [(0.0, 1.5, "T0"), (1.5, 2.5, "T1")]
    write_edf(tmp_path / "b.edf", ["C3", "Cz", "C4"], SIGNAL, 200, events)
    raw = mne.io.read_raw_edf(tmp_path / "b.edf", preload=True, verbose="error")
    np.testing.assert_allclose(raw.get_data() * 1e6, SIGNAL, atol=2e-3)
    read = zip(raw.annotations.onset, raw.annotations.duration, raw.annotations.description)  # noqa: B905
    assert [tuple(event) for event in read] == events


def test_signals_that_fill_no_whole_record_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no whole seconds"):
        write_edf(tmp_path / "a.edf", ["C3", "Cz", "C4"], SIGNAL, 300)


def test_mne_reads_our_gdf_and_missing_samples_are_the_digital_minimum(tmp_path):
    signal = SIGNAL.copy()
    signal[:, 300:400] = np.nan
    labels = ["EEG-Fz", "EEG", "EOG-left"]
    write_gdf(tmp_path / "a.gdf", labels, signal, 250, [(0, 768, 10), (500, 769, 0)])
    raw = mne.io.read_raw_gdf(tmp_path / "a.gdf", preload=True, verbose="error")
    read = raw.get_data() * 1e6
    np.testing.assert_allclose(read[:, :300], signal[:, :300], atol=2e-3)
    assert (read[:, 300:400] == read.min()).all()
    assert raw.info["sfreq"] == 250
    assert (raw.annotations.onset * 250).tolist() == [0, 500]
    assert list(raw.annotations.description) == ["768", "769"]


def test_the_size_of_a_full_session_is_the_published_one():
    header, samples, events = 256 * 26, 672_528 * 25 * 2, 8 + 12 * 603
    assert header + samples + events == 33_640_300  # A01T.gdf


def test_python_reads_our_python_2_pickle(tmp_path):
    arrays = {"data": SIGNAL[:2], "labels": SIGNAL[:1]}
    write_python2_pickle(tmp_path / "s01.dat", arrays)
    read = pickle.loads((tmp_path / "s01.dat").read_bytes(), encoding="latin1")
    assert list(read) == ["data", "labels"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
