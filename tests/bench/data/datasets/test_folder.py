import mne
import numpy as np
import pytest

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets.folder import DATASET, FolderSettings
from afor.bench.data.loading import open_windows

RNG = np.random.default_rng(0)
GOOD = {
    "data": RNG.normal(0, 10, (6, 2, 200)),
    "labels": np.array(["rest", "move"] * 3),
    "channel_names": np.array(["C3", "C4"]),
    "rate_hz": 100.0,
}


def save(path, **changes):
    arrays = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
    np.savez(path, **arrays)


def save_epochs(path, seed=0):
    info = mne.create_info(["C3", "C4", "EOG"], 100.0, ["eeg", "eeg", "eog"])
    data = np.random.default_rng(seed).normal(0, 1e-5, (6, 3, 200))
    events = np.column_stack([np.arange(6) * 300, np.zeros(6, int), [7, 3] * 3])
    epochs = mne.EpochsArray(data, info, events, event_id={"rest": 3, "move": 7}, verbose="error")
    epochs.save(path, verbose="error")
    return data


def test_words_become_numbers_in_alphabetical_order(tmp_path):
    save(tmp_path / "anna.npz")
    recording = DATASET.load(tmp_path, "anna", FolderSettings())
    assert recording.class_names == ("move", "rest")
    assert recording.labels.tolist() == [1, 0] * 3
    np.testing.assert_allclose(recording.trials, GOOD["data"], rtol=1e-6)
    assert recording.channel_names == ("C3", "C4")


def test_numbers_units_class_names_trial_ids_and_filter_are_respected(tmp_path, cache_dir):
    data = GOOD["data"] * 1e-6
    ids = np.arange(10, 16)
    save(tmp_path / "anna.npz", data=data, labels=np.array([0, 2] * 3), trial_ids=ids,
         class_names=np.array(["a", "b", "c"]))  # fmt: skip
    recording = DATASET.load(tmp_path, "anna", FolderSettings(unit="V"))
    np.testing.assert_allclose(recording.trials, GOOD["data"], rtol=1e-5)
    assert recording.class_names == ("a", "b", "c")
    assert recording.trial_ids.tolist() == ids.tolist()
    filtered = DATASET.load(tmp_path, "anna", FolderSettings(unit="V", band_hz=(1.0, 40.0)))
    assert filtered.trials.std() < recording.trials.std()
    source = open_windows("folder", tmp_path, cache_dir=cache_dir, options={"unit": "V"})
    assert source.gather([0]).shape == (1, 2, 200)  # the whole trial, when no window is set


def test_mne_epochs_are_read_in_volts_without_other_channel_types(tmp_path, cache_dir):
    data = save_epochs(tmp_path / "bob-epo.fif")
    save_epochs(tmp_path / "carla-epo.fif", seed=1)
    options = {"window_samples": 100, "stride_samples": 50}
    source = open_windows("folder", tmp_path, cache_dir=cache_dir, options=options)
    assert source.subjects == ("bob", "carla")
    assert source.channel_names == ("C3", "C4")
    assert source.class_names == ("move", "rest")
    np.testing.assert_allclose(source.gather([0])[0], data[0, :2, :100] * 1e6, rtol=1e-4)
    assert source.labels[:3].tolist() == [0, 0, 0]


def test_one_class_order_for_all_subjects_can_be_given(tmp_path, cache_dir):
    save(tmp_path / "anna.npz")
    save(tmp_path / "bea.npz", labels=np.array(["rest"] * 6), data=GOOD["data"][::-1] + 1)
    with pytest.raises(DataError, match="classes"):
        open_windows("folder", tmp_path, cache_dir=cache_dir)
    options = {"classes": ["rest", "move"]}
    source = open_windows("folder", tmp_path, cache_dir=cache_dir, options=options)
    assert source.class_names == ("rest", "move")


FAULTS = {
    "array missing": ({"labels": None}, "no array labels"),
    "axes swapped": ({"data": GOOD["data"].swapaxes(1, 2)}, "axes seem to be swapped"),
    "channel missing": ({"channel_names": np.array(["C3"])}, "1 channel names for data of shape"),
    "two axes": ({"data": GOOD["data"][0]}, r"shape \(2, 200\), expected numbers"),
    "words as data": ({"data": np.full((6, 2, 200), "x")}, "expected numbers"),
    "objects": ({"labels": np.array([{}, []] * 3, dtype=object)}, "cannot be read as .npz"),
    "float labels": ({"labels": np.linspace(0, 1, 6)}, "labels are float64"),
    "two rates": ({"rate_hz": np.array([1, 2])}, "rate_hz must be one number"),
    "ids": ({"trial_ids": np.linspace(0, 1, 6)}, "trial_ids must be whole numbers"),
    "NaN": ({"data": np.where(np.arange(200) == 5, np.nan, GOOD["data"])}, "NaN in trial 0"),
    "foreign label": (
        {"class_names": np.array(["rest", "jump"])},
        "label move is out of range; accepted: rest, jump",
    ),
}


@pytest.mark.parametrize(("changes", "message"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_npz_is_refused_by_subject_file_and_fault(tmp_path, changes, message):
    save(tmp_path / "anna.npz", **changes)
    with pytest.raises(DataError, match=message) as error:
        DATASET.load(tmp_path, "anna", FolderSettings())
    assert "subject anna (anna.npz)" in str(error.value)


@pytest.mark.parametrize("name", ["anna.npz", "anna-epo.fif"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x00" * 1000])
def test_an_unreadable_file_is_a_data_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="folder subject anna"):
        DATASET.load(tmp_path, "anna", FolderSettings())


def test_two_files_of_one_subject_are_refused(tmp_path):
    save(tmp_path / "anna.npz")
    save_epochs(tmp_path / "anna-epo.fif")
    with pytest.raises(DataError, match="subject anna: 2 files"):
        DATASET.load(tmp_path, "anna", FolderSettings())


def test_a_band_beyond_the_rate_is_a_setting_error(tmp_path):
    save(tmp_path / "anna.npz")
    with pytest.raises(ConfigError, match="does not fit a rate of 100"):
        DATASET.load(tmp_path, "anna", FolderSettings(band_hz=(1.0, 60.0)))
