import numpy as np
import pytest

from afor.bench.common.errors import DataError
from afor.bench.data.recording import Recording, check_recording, trial_hashes


def make(**changes):
    rng = np.random.default_rng(0)
    values = {
        "dataset": "demo",
        "subject": "s07",
        "trials": rng.normal(0, 10, size=(6, 3, 50)).astype(np.float32),
        "labels": np.array([0, 1, 0, 1, 0, 1]),
        "trial_ids": np.arange(6),
        "channel_names": ("C3", "Cz", "C4"),
        "rate_hz": 128.0,
        "class_names": ("left", "right"),
    }
    return Recording(**{**values, **changes})


def with_sample(value):
    trials = make().trials.copy()
    trials[4, 1, 7] = value
    return trials


def with_flat_channel():
    trials = make().trials.copy()
    trials[:, 2] = 3.0
    return trials


def with_copy():
    trials = make().trials.copy()
    trials[5] = trials[2]
    return trials


FAULTS = {
    "NaN": ({"trials": with_sample(np.nan)}, "NaN in trial 4, channel Cz, sample 7"),
    "infinity": ({"trials": with_sample(-np.inf)}, "infinity in trial 4, channel Cz"),
    "flat channel": ({"trials": with_flat_channel()}, "channel C4 is flat in all 6 trials"),
    "volts": ({"trials": make().trials * np.float32(1e-6)}, "volts or millivolts"),
    "millivolts": ({"trials": make().trials * np.float32(1e-3)}, "volts or millivolts"),
    "counts": ({"trials": make().trials * np.float32(1e5)}, "raw amplifier counts"),
    "duplicated trial": ({"trials": with_copy()}, "trial 5 is a copy of trial 2"),
    "label too large": ({"labels": np.array([0, 1, 2, 1, 0, 1])}, "label 2 is out of range"),
    "negative label": ({"labels": np.array([0, 1, -1, 1, 0, 1])}, "label -1 is out of range"),
    "label missing": ({"labels": np.array([0, 1])}, "6 trials but 2 labels"),
    "channel twice": ({"channel_names": ("C3", "Cz", "C3")}, "channel C3 occurs twice"),
    "channel missing": ({"channel_names": ("C3", "Cz")}, "2 channel names"),
    "swapped axes": (
        {"trials": np.ascontiguousarray(make().trials.swapaxes(1, 2))},
        r"axes must be \(trials, channels, samples\)",
    ),
    "no trials": ({"trials": np.empty((0, 3, 50), np.float32)}, "no data"),
    "float64": ({"trials": make().trials.astype(np.float64)}, "expected float32"),
    "rate": ({"rate_hz": 0.0}, "rate of 0.0 Hz is not possible"),
    "ids": ({"trial_ids": np.zeros(6, int)}, "trial ids are not unique"),
}


def test_a_sound_recording_passes_unchanged():
    recording = make()
    checked = check_recording(recording)
    assert checked.trials is recording.trials
    assert checked.notes == ()
    assert checked.class_counts() == (3, 3)


@pytest.mark.parametrize(("changes", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_refused_with_data_set_subject_and_fault(changes, message):
    with pytest.raises(DataError, match=message) as error:
        check_recording(make(**changes))
    assert "demo subject s07" in str(error.value)


def test_the_unit_check_can_be_left_out_for_data_without_a_unit():
    check_recording(make(trials=make().trials * np.float32(1e-3)), check_unit=False)


def test_a_channel_flat_in_one_trial_and_an_absent_class_are_noted():
    trials = make().trials.copy()
    trials[3, 0] = 1.0
    checked = check_recording(make(trials=trials, class_names=("left", "right", "feet")))
    assert checked.notes == ("1 trials with a flat channel", "no trial of class feet")


def test_arrays_become_a_recording_with_the_numbers_of_their_source():
    recording = Recording.of_trials(
        "anna", np.ones((2, 1, 9)), ["b", "a"], ["Cz"], 100, trial_ids=[7, 3], notes=["one lost"]
    )
    assert recording.trials.dtype == np.float32
    assert recording.labels.tolist() == [1, 0]
    assert recording.trial_ids.tolist() == [7, 3]
    assert recording.notes == ("one lost",)
    plain = Recording.of_trials("anna", np.ones((2, 1, 9)), [0, 1], ["Cz"], 100)
    assert plain.trial_ids.tolist() == [0, 1]


def test_equal_trials_hash_alike_and_flat_trials_not_at_all():
    trials = make().trials.copy()
    trials[1] = trials[0]
    trials[2] = 4.0
    hashes = trial_hashes(trials)
    assert hashes[0] == hashes[1] != hashes[3]
    assert hashes[2] == ""
