import numpy as np
import pytest
from scipy.signal import welch

from afor.bench.common.errors import ConfigError
from afor.bench.data.datasets.synthetic import (
    DATASET,
    RECIPES,
    SyntheticSettings,
    load_subject,
    subject_names,
    subject_truth,
)
from afor.bench.data.recording import check_recording


def band_power(recording, channel, low, high):
    signal = recording.trials[:, recording.channel_names.index(channel)]
    hz, power = welch(signal, recording.rate_hz, nperseg=int(recording.rate_hz))
    return power[:, (hz >= low) & (hz <= high)].mean(axis=1)


@pytest.mark.parametrize("population", RECIPES)
def test_a_subject_is_a_sound_recording_in_microvolts(population):
    recording = check_recording(load_subject(SyntheticSettings(kind=population), "sub-03"))
    assert 5 < recording.trials.std() < 300
    assert min(recording.class_counts()) > 0


@pytest.mark.parametrize("population", RECIPES)
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(population):
    settings = SyntheticSettings(kind=population, trials=10)
    first, again = (load_subject(settings, "sub-02") for _ in range(2))
    other = load_subject(SyntheticSettings(kind=population, trials=10, seed=1), "sub-02")
    np.testing.assert_array_equal(first.trials, again.trials)
    assert not np.array_equal(first.trials, other.trials)


def test_another_session_has_other_trials_of_the_same_subject():
    first, second = (SyntheticSettings(trials=8, session=s) for s in (0, 1))
    assert not np.array_equal(
        load_subject(first, "sub-02").trials, load_subject(second, "sub-02").trials
    )
    np.testing.assert_array_equal(
        subject_truth(first, 1).topographies, subject_truth(second, 1).topographies
    )


def test_a_subject_does_not_depend_on_how_many_there_are():
    few = load_subject(SyntheticSettings(n_subjects=3, trials=8), "sub-02")
    many = load_subject(SyntheticSettings(n_subjects=50, trials=8), "sub-02")
    np.testing.assert_array_equal(few.trials, many.trials)
    settings = [SyntheticSettings(n_subjects=n).trial_settings() for n in (3, 50)]
    assert settings[0] == settings[1]


@pytest.mark.parametrize("population", RECIPES)
def test_shift_zero_gives_every_subject_the_population_parameters(population):
    settings = SyntheticSettings(kind=population, shift=0)
    truths = [subject_truth(settings, i) for i in range(6)]
    for truth in truths[1:]:
        for name, value in truth.__dict__.items():
            np.testing.assert_array_equal(value, truths[0].__dict__[name])
    np.testing.assert_allclose(truths[0].peak_hz, [r.peak_hz for r in RECIPES[population].rhythms])


def test_doubling_the_shift_doubles_each_subjects_deviation():
    base, one, two = (subject_truth(SyntheticSettings(shift=s), 4) for s in (0, 1, 2))
    np.testing.assert_allclose(two.peak_hz - base.peak_hz, 2 * (one.peak_hz - base.peak_hz))
    np.testing.assert_allclose(np.log(two.gain), 2 * np.log(one.gain))
    np.testing.assert_allclose(
        np.log(two.amplitude_uv / base.amplitude_uv),
        2 * np.log(one.amplitude_uv / base.amplitude_uv),
    )


def test_at_shift_zero_subjects_differ_no_more_than_trials_do():
    """One-way analysis of variance of log power over subjects: F near 1 at 0, large at 2."""
    from scipy.stats import f_oneway

    def f_value(shift):
        settings = SyntheticSettings(kind="sleep", shift=shift, n_subjects=12, effect=0)
        groups = [
            np.log(band_power(load_subject(settings, name), "C3", 1, 30))
            for name in subject_names(settings)
        ]
        return f_oneway(*groups).statistic

    assert f_value(0) < 2.5
    assert f_value(2) > 100


def test_imagining_the_left_hand_weakens_mu_over_the_right_hemisphere():
    settings = SyntheticSettings(kind="imagery", shift=0, label_noise=0, trials=200)
    recording = load_subject(settings, "sub-01")
    left, right = recording.labels == 0, recording.labels == 1
    over_c4, over_c3 = (band_power(recording, name, 9, 12) for name in ("C4", "C3"))
    assert over_c4[left].mean() < 0.8 * over_c4[right].mean()
    assert over_c3[right].mean() < 0.8 * over_c3[left].mean()


def test_deep_sleep_has_the_most_delta_and_wake_the_most_alpha():
    settings = SyntheticSettings(kind="sleep", shift=0, label_noise=0, trials=400)
    recording = load_subject(settings, "sub-01")
    delta, alpha = band_power(recording, "F3", 1, 3), band_power(recording, "O1", 8, 11)
    by_stage = [[power[recording.labels == k].mean() for k in range(5)] for power in (delta, alpha)]
    assert np.argmax(by_stage[0]) == 3
    assert np.argmax(by_stage[1]) == 0


def test_high_valence_has_less_alpha_left_than_right():
    settings = SyntheticSettings(kind="emotion", shift=0, label_noise=0, trials=120)
    recording = load_subject(settings, "sub-01")
    left, right = (np.log(band_power(recording, name, 8, 12)) for name in ("F3", "F4"))
    asymmetry = right - left
    assert asymmetry[recording.labels == 1].mean() > asymmetry[recording.labels == 0].mean() + 0.2


def test_the_background_falls_as_one_over_f():
    settings = SyntheticSettings(kind="imagery", shift=0, trials=100)
    recording = load_subject(settings, "sub-01")
    hz, power = welch(recording.trials[:, 1], recording.rate_hz, nperseg=256)
    power = power.mean(axis=0) - 2 * 2.0**2 / recording.rate_hz  # the sensor noise's density
    low = (hz >= 2) & (hz <= 6)
    slope = np.polyfit(np.log(hz[low]), np.log(power[low]), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.2)


def test_label_noise_flips_the_asked_share_of_labels():
    clean = load_subject(SyntheticSettings(label_noise=0, trials=2000, trial_s=0.5), "sub-01")
    noisy = load_subject(
        SyntheticSettings(label_noise=0.2, shift=0, trials=2000, trial_s=0.5), "sub-01"
    )
    assert clean.notes == ("0 labels are wrong on purpose",)
    flipped = int(noisy.notes[0].split()[0]) / 2000
    assert flipped == pytest.approx(0.2 * 3 / 4, abs=0.03)  # one draw in four hits the right class


def test_sleep_stages_come_in_bouts_and_imagery_classes_are_balanced():
    sleep = load_subject(SyntheticSettings(kind="sleep", trials=500, label_noise=0), "sub-01")
    assert (np.diff(sleep.labels) != 0).mean() < 0.2
    imagery = load_subject(SyntheticSettings(trials=96, label_noise=0), "sub-01")
    assert imagery.class_counts() == (24, 24, 24, 24)


def test_windows_default_to_the_papers_seconds_by_kind():
    settings = {name: SyntheticSettings(kind=name) for name in RECIPES}
    assert {k: (s.window_samples, s.stride_samples) for k, s in settings.items()} == {
        "imagery": (128, 64),
        "sleep": (300, 300),
        "emotion": (128, 128),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shfit": 1}, "Did you mean 'shift'"),
        ({"shift": -1}, "option shift = -1"),
        ({"kind": "ssvep"}, "option kind = 'ssvep'"),
    ],
)
def test_a_bad_option_is_refused_and_the_nearest_good_one_named(options, message):
    with pytest.raises(ConfigError, match=message):
        DATASET.parse(options)
