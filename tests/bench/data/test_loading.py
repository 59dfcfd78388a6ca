import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError, DataError, LeakageError
from afor.bench.data.catalog import get_dataset
from afor.bench.data.datasets.synthetic import DATASET as SYNTHETIC
from afor.bench.data.datasets.synthetic import load_subject
from afor.bench.data.loading import open_windows

OPTIONS = {"n_subjects": 3, "trials": 8}


def test_a_second_opening_reads_nothing_again(cache_dir, changed_dataset):
    first = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)
    changed_dataset(SYNTHETIC, load=lambda *_: pytest.fail("read again"))
    again = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)
    np.testing.assert_array_equal(first.gather([5]), again.gather([5]))
    other_windows = {**OPTIONS, "window_samples": 50}
    assert len(open_windows("synthetic", options=other_windows, cache_dir=cache_dir)) > len(first)


def test_a_corrupt_cache_is_rebuilt_and_gives_the_right_windows(cache_dir):
    first = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)
    expected = first.gather(np.arange(len(first)))
    for path in sorted((cache_dir / "synthetic").glob("*.f32")):
        content = bytearray(path.read_bytes())
        content[1000] ^= 0x40
        path.write_bytes(content)
    again = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)
    np.testing.assert_array_equal(again.gather(np.arange(len(again))), expected)


def test_a_foreign_checksum_list_in_the_working_folder_does_not_matter(
    cache_dir, tmp_path, monkeypatch
):
    (tmp_path / "SHA256SUMS.txt").write_text("something else\n")
    monkeypatch.chdir(tmp_path)
    open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)


def test_progress_is_told_of_every_subject_and_the_end(cache_dir):
    told = []
    open_windows(
        "synthetic", options=OPTIONS, cache_dir=cache_dir, progress=lambda *a: told.append(a)
    )
    assert told == [(0, 3, "sub-01"), (1, 3, "sub-02"), (2, 3, "sub-03"), (3, 3, "")]


def test_one_persons_trials_under_two_ids_are_refused(cache_dir, changed_dataset):
    def load(_root, subject, settings):
        if subject != "sub-03":
            return load_subject(settings, subject)
        recording, other = (load_subject(settings, name) for name in ("sub-03", "sub-01"))
        recording.trials[5] = other.trials[2]  # a single shared trial is enough
        return recording

    changed_dataset(SYNTHETIC, load=load)
    with pytest.raises(
        LeakageError, match="trial 5 of subject sub-03 is trial 2 of subject sub-01"
    ):
        open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate_hz": 100.0}, "sampling rate 100.0, but subject sub-01 has 128.0"),
        ({"class_names": ("a", "b", "c", "d")}, "classes"),
        ({"channel_names": tuple("abcdefghijkl")}, "channels"),
    ],
)
def test_subjects_that_do_not_fit_each_other_are_refused(
    cache_dir, changed_dataset, changes, message
):
    def load(_root, subject, settings):
        recording = load_subject(settings, subject)
        return replace(recording, **changes) if subject == "sub-02" else recording

    changed_dataset(SYNTHETIC, load=load)
    with pytest.raises(DataError, match=message):
        open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir)


def test_a_subject_that_is_not_there_is_refused_by_name(cache_dir):
    with pytest.raises(DataError, match="no file of subject sub-77"):
        open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir, subjects=["sub-77"])


@pytest.mark.parametrize("subjects", [[], ["sub-01", "sub-01"]])
def test_an_empty_or_doubled_choice_of_subjects_is_refused(cache_dir, subjects):
    with pytest.raises(ConfigError, match="at least one subject and none twice"):
        open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir, subjects=subjects)


def test_all_subjects_of_a_set_without_a_published_list_are_those_found(cache_dir):
    source = open_windows("synthetic", options=OPTIONS, cache_dir=cache_dir, subjects="all")
    assert source.subjects == ("sub-01", "sub-02", "sub-03")


def test_a_missing_folder_says_where_to_get_the_data(cache_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("AFOR_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match=r"no folder .*mine/physionet_mi\. Name it.*physionet\.org"):
        open_windows("physionet_mi", cache_dir=cache_dir)
    with pytest.raises(DataError, match=r"no folder .*nowhere"):
        open_windows("physionet_mi", tmp_path / "nowhere", cache_dir=cache_dir)
    with pytest.raises(DataError, match="no subject found"):
        open_windows("physionet_mi", tmp_path, cache_dir=cache_dir)


def test_an_unknown_data_set_is_refused_and_the_nearest_named():
    with pytest.raises(ConfigError, match="Did you mean 'deap'"):
        get_dataset("daep")


def test_several_processes_may_prepare_the_same_data_at_once(cache_dir):
    program = (
        "import sys, hashlib; from afor.bench.data.loading import open_windows; "
        "s = open_windows('synthetic', options={'n_subjects': 4, 'trials': 20}, "
        "cache_dir=sys.argv[1]); print(hashlib.sha256(s.gather(range(len(s)))).hexdigest())"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(cache_dir)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert len(set(answers)) == 1
    assert not list((cache_dir / "synthetic").glob("*.tmp"))
