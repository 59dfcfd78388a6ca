import pickle

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets import deap
from afor.bench.data.datasets.deap import DATASET, DeapSettings
from afor.bench.data.loading import open_windows
from recording_files import write_python2_pickle


@pytest.fixture(scope="module")
def original(deap_stand_in):
    return pickle.loads((deap_stand_in / "s01.dat").read_bytes(), encoding="latin1")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A subject of four trials, quick to write and read: gives a function that writes it."""
    monkeypatch.setattr(deap, "DATA_SHAPE", (4, 40, 63 * 128))
    rng = np.random.default_rng(0)
    arrays = {"labels": rng.uniform(1, 9, (4, 4)), "data": rng.normal(0, 10, (4, 40, 63 * 128))}

    def write(**changes):
        write_python2_pickle(tmp_path / "s01.dat", {**arrays, **changes})
        return {**arrays, **changes}

    write()
    write.root = tmp_path
    return write


def test_a_full_subject_gives_the_papers_windows(deap_stand_in, cache_dir, original):
    source = open_windows("deap", deap_stand_in, cache_dir=cache_dir)
    assert len(source) == 40 * 60
    assert source.gather([0]).shape == (1, 32, 128)
    assert source.channel_names[:3] == ("Fp1", "AF3", "F3")
    assert source.channel_names[-1] == "O2"
    trial_labels = source.labels[:: source.windows_per_trial]
    np.testing.assert_array_equal(trial_labels, original["labels"][:, 0] > 5)
    # One trial and channel by hand: baseline of three seconds, then the filter over the minute.
    row = original["data"][7, 9]
    template = row[:384].reshape(3, 128).mean(axis=0)
    sos = butter(5, [0.3, 50], "bandpass", fs=128, output="sos")
    by_hand = sosfiltfilt(sos, row[384:] - np.tile(template, 60))
    ours = source.gather(np.arange(7 * 60, 8 * 60))[:, 9].reshape(-1)
    np.testing.assert_allclose(ours, by_hand, atol=1e-4)


def test_valence_of_exactly_five_is_low_and_other_ratings_can_be_chosen(small):
    labels = np.array([[5.0, 9, 1, 1], [5.1, 1, 1, 9], [1, 6, 9, 9], [9, 1, 9, 1]])
    small(labels=labels)

    def load(**options):
        return DATASET.load(small.root, "s01", DeapSettings(**options)).labels.tolist()

    assert load() == [0, 1, 0, 1]
    assert load(rating="arousal") == [1, 0, 1, 0]
    assert load(rating="liking", threshold=8.5) == [0, 1, 1, 0]


def test_baseline_and_filter_can_be_switched(small):
    data = small()["data"]
    plain = DATASET.load(small.root, "s01", DeapSettings(baseline="none", band_hz="none"))
    np.testing.assert_allclose(plain.trials, data[:, :32, 384:], rtol=1e-6)
    mean = DATASET.load(small.root, "s01", DeapSettings(baseline="mean", band_hz="none"))
    expected = data[:, :32, 384:] - data[:, :32, :384].mean(axis=2, keepdims=True)
    np.testing.assert_allclose(mean.trials, expected, atol=1e-4)


def nan_at(array, *at):
    array = array.copy()
    array[at] = np.nan
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: {"data": a["data"][..., :7680]},
            r"shape \(4, 40, 8064\), found \(4, 40, 7680\)",
        ),
        (lambda a: {"data": a["data"].swapaxes(1, 2)}, r"found \(4, 8064, 40\)"),
        (lambda a: {"data": a["data"][:, :32]}, r"found \(4, 32, 8064\)"),
        (lambda a: {"labels": a["labels"][:3]}, "expected labels of shape"),
        (
            lambda a: {"data": nan_at(a["data"], 2, 5, 100)},
            "NaN in trial 2, channel FC1, sample 100",
        ),
        (lambda a: {"labels": a["labels"] + 9}, "valence rating of trial 0"),
        (lambda a: {"labels": nan_at(a["labels"], 1, 1)}, "arousal rating of trial 1 is nan"),
        (lambda _: {"more": np.eye(2)}, "unexpected more"),
    ],
)
def test_a_file_that_is_not_deaps_is_refused_by_subject_and_file(small, change, message):
    small(**change(small()))
    with pytest.raises(DataError, match=message) as error:
        DATASET.load(small.root, "s01", DeapSettings())
    assert "subject s01 (s01.dat)" in str(error.value)


@pytest.mark.parametrize("scale", [1e-6, 1e-3])
def test_volts_for_microvolts_are_recognised(small, cache_dir, scale):
    small(data=small()["data"] * scale)
    with pytest.raises(DataError, match="seem to be volts"):
        open_windows("deap", small.root, cache_dir=cache_dir)


def test_a_flat_channel_and_a_doubled_trial_are_refused(small, cache_dir):
    data = small()["data"].copy()
    data[:, 4] = 7.0
    small(data=data)
    with pytest.raises(DataError, match="channel FC5 is flat in all 4 trials"):
        open_windows("deap", small.root, cache_dir=cache_dir)
    data = small()["data"].copy()
    data[3] = data[1]
    small(data=data)
    with pytest.raises(DataError, match="trial 3 is a copy of trial 1"):
        open_windows("deap", small.root, cache_dir=cache_dir)


def test_the_folder_of_the_download_is_found_and_missing_subjects_are_named(small, cache_dir):
    inside = small.root / "data_preprocessed_python"
    inside.mkdir()
    (small.root / "s01.dat").rename(inside / "s01.dat")
    assert DATASET.find(small.root, DeapSettings()) == ("s01",)
    with pytest.raises(DataError, match=r"no file of subject s02, s03.*s32"):
        open_windows("deap", small.root, cache_dir=cache_dir, subjects="all")
    with pytest.raises(DataError, match=r"s02\.dat missing"):
        DATASET.load(small.root, "s02", DeapSettings())


def test_an_unknown_rating_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="option rating = 'mood'"):
        open_windows("deap", tmp_path, options={"rating": "mood"})
