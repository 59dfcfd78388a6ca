import pickle
import subprocess
import sys

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data import window_source
from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject
from afor.bench.data.loading import open_windows

OPTIONS = {"n_subjects": 3, "trials": 10, "window_samples": 100, "stride_samples": 70}


@pytest.fixture
def source(cache_dir):
    return open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)


def test_each_window_is_the_slice_of_its_subjects_trial(source):
    settings = SyntheticSettings(**OPTIONS)
    starts = [0, 70, 140, 210, 280]
    order = np.random.default_rng(0).permutation(len(source))
    windows = source.gather(order)
    assert windows.dtype == np.float32
    assert windows.shape == (3 * 10 * 5, 12, 100)
    recordings = {name: load_subject(settings, name) for name in source.subjects}
    for window, index in zip(windows, order, strict=True):
        subject, rest = divmod(index, 10 * 5)
        trial, which = divmod(rest, 5)
        recording = recordings[source.subject_ids[index]]
        assert source.subject_ids[index] == f"sub-{subject + 1:02d}"
        assert source.labels[index] == recording.labels[trial]
        assert source.trial_ids[index] == subject * 10 + trial
        start = starts[which]
        np.testing.assert_array_equal(window, recording.trials[trial, :, start : start + 100])


def test_indices_of_subjects_are_disjoint_and_together_all(source):
    parts = [source.indices_of([name]) for name in source.subjects]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(len(source)))
    np.testing.assert_array_equal(source.indices_of(["sub-03", "sub-01"]), np.r_[0:50, 100:150])
    assert source.indices_of([]).size == 0


def test_an_unknown_subject_and_a_window_out_of_range_are_refused(source):
    with pytest.raises(ConfigError, match="no subject sub-09"):
        source.indices_of(["sub-09"])
    with pytest.raises(ConfigError, match="known subjects"):
        source.channel_statistics(["sub-09"])
    for index in (-1, len(source)):
        with pytest.raises(IndexError):
            source.gather([index])


def test_channel_statistics_are_those_of_the_chosen_subjects_alone(source):
    settings = SyntheticSettings(**OPTIONS)
    both = np.concatenate([load_subject(settings, n).trials for n in ("sub-01", "sub-03")])
    mean, sd = source.channel_statistics(["sub-01", "sub-03"])
    np.testing.assert_allclose(mean, both.mean(axis=(0, 2), dtype=np.float64), atol=1e-6)
    np.testing.assert_allclose(sd, both.std(axis=(0, 2), dtype=np.float64), rtol=1e-6)


def test_the_fingerprint_follows_settings_and_subjects_but_not_the_folder(source, tmp_path):
    def fingerprint(subjects=None, **changes):
        options = {**OPTIONS, **changes}
        return open_windows(
            "synthetic", options=options, cache_dir=tmp_path / "elsewhere", subjects=subjects
        ).fingerprint

    assert fingerprint() == source.fingerprint
    others = [
        fingerprint(seed=1),
        fingerprint(shift=0.5),
        fingerprint(window_samples=99),
        fingerprint(stride_samples=71),
        fingerprint(subjects=["sub-01", "sub-02"]),
    ]
    assert len({source.fingerprint, *others}) == 6


def test_a_source_sent_to_another_process_gives_the_same_windows(source):
    source.gather([0])
    program = (
        "import pickle, sys; s = pickle.load(sys.stdin.buffer); "
        "sys.stdout.buffer.write(s.gather([3, 140]).tobytes())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(source), capture_output=True, check=True
    )
    assert answer.stdout == source.gather([3, 140]).tobytes()


def test_windows_stay_right_after_pages_were_given_back(source, cache_dir, monkeypatch):
    before = source.gather([7, 99])
    monkeypatch.setattr(window_source, "KEEP_BYTES", 1)
    monkeypatch.setattr(window_source, "RELEASE_AFTER_BYTES", 1)
    large = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)
    for _ in range(3):
        np.testing.assert_array_equal(large.gather([7, 99]), before)
    assert large._touched == set()


def test_windows_say_whether_they_are_recorded_a_stand_in_or_synthetic(
    isruc_stand_in, tmp_path, cache_dir
):
    assert open_windows("isruc", isruc_stand_in, cache_dir=cache_dir).kind == "stand-in"
    made_up = open_windows("synthetic", options={"n_subjects": 2, "trials": 4}, cache_dir=cache_dir)
    assert made_up.kind == "synthetic"
    np.savez(
        tmp_path / "anna.npz",
        data=np.random.default_rng(0).normal(0, 10, (4, 2, 100)),
        labels=[0, 1, 0, 1],
        channel_names=["C3", "C4"],
        rate_hz=100.0,
    )
    assert open_windows("folder", tmp_path, cache_dir=cache_dir).kind == "recorded"
