import numpy as np
import pytest

from afor.bench.data.inspection.check import (
    balance_warning,
    check_dataset,
    signal_warnings,
)

NAMES = ["C3", "C4", "Cz", "Pz"]


@pytest.fixture
def trials():
    return np.random.default_rng(0).normal(0, 10, (6, 4, 200)).astype(np.float32)


def warned(trials):
    return signal_warnings(trials, NAMES, np.median(trials.std(axis=2), axis=0))


def test_sound_trials_give_no_warning(trials):
    assert warned(trials) == []
    assert balance_warning({"a": 10, "b": 12}) == ""


@pytest.mark.parametrize(("factor", "words"), [(1e-6, "volts or milli"), (1e6, "read as volts")])
def test_a_wrong_unit_is_guessed(trials, factor, words):
    (warning,) = warned(trials * factor)
    assert words in warning


def test_flat_and_duplicate_channels_are_named(trials):
    trials[:, 2] *= 1e-3
    trials[:, 3] = 5 - 2 * trials[:, 0]
    assert warned(trials) == ["nearly flat: Cz", "duplicate channels: C3 = Pz"]


def test_check_warns_of_channels_units_and_balance(tmp_path, cache_dir, trials):
    for number, subject in enumerate(("anna", "bert")):
        np.savez(
            tmp_path / f"{subject}.npz", data=(trials + number) * 1e-6, rate_hz=100,
            labels=["rest"] * 5 + ["move"], channel_names=["C3", "C4", "Cz", "ECG ECG"],
        )  # fmt: skip
    report = check_dataset("folder", tmp_path, cache_dir=cache_dir)
    assert report.faults == ()
    unit, balance = report.subjects[0].warnings
    assert "volts or millivolts seem to be read as microvolts" in unit
    assert balance == "unbalanced: move has 1 trials, rest 5"
    assert report.notes[0].startswith("not EEG by name: ECG ECG")
    assert list(report.amplitudes) == ["C3", "C4", "Cz", "ECG ECG"]
    options = {"unit": "V", "channels": ["Cz", "C3"]}
    sound = check_dataset("folder", tmp_path, options=options, cache_dir=cache_dir)
    assert sound.amplitudes == pytest.approx({"Cz": 10, "C3": 10}, rel=0.1)
    assert sound.notes == ()
