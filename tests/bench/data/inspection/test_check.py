import shutil
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.data.dataset import PARTIAL_NOTE
from afor.bench.data.datasets import isruc
from afor.bench.data.datasets.bci2a import DATASET as BCI2A
from afor.bench.data.datasets.synthetic import DATASET as SYNTHETIC
from afor.bench.data.inspection.check import check_dataset
from afor.bench.data.stand_ins import write_stand_in


@pytest.fixture
def root(tmp_path):
    write_stand_in("isruc", tmp_path / "isruc", ["1", "8", "9"], trials=12)
    return tmp_path / "isruc"


def test_each_subject_gets_a_line_and_the_totals_add_up(root, cache_dir):
    report = check_dataset("isruc", root, cache_dir=cache_dir)
    assert report.faults == ()
    assert [line.subject for line in report.subjects] == ["1", "8", "9"]
    first = report.subjects[0]
    assert (first.trials, first.seconds, first.channels, first.rate_hz) == (12, 360, 6, 200)
    assert sum(report.totals.values()) == 36
    assert report.totals["N2"] == sum(line.classes["N2"] for line in report.subjects)
    assert "F3 is not recorded, C3 stands in" in report.subjects[1].notes
    assert report.notes == (
        f"{root} holds a synthetic stand-in, not the data set",
        "3 of 100 subjects are here; published totals are for a complete copy",
    )
    assert len({line.checksum for line in report.subjects}) == 3


def test_all_faults_are_collected_and_sound_subjects_still_listed(root, cache_dir):
    (root / "1" / "1.rec").write_bytes(b"")
    (root / "9" / "9_1.txt").write_text("9\n")
    report = check_dataset("isruc", root, cache_dir=cache_dir)
    assert [line.subject for line in report.subjects] == ["8"]
    assert len(report.faults) == 2
    assert "1.rec: the file is empty" in report.faults[0]
    assert "subject 9 (9_1.txt), line 1: '9' is no stage" in report.faults[1]


def test_a_changed_file_is_read_again_and_has_another_checksum(root, cache_dir):
    first = check_dataset("isruc", root, cache_dir=cache_dir)
    path = root / "9" / "9.rec"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    again = check_dataset("isruc", root, cache_dir=cache_dir)
    assert again.faults == ()
    same = [a.checksum == b.checksum for a, b in zip(first.subjects, again.subjects, strict=True)]
    assert same == [True, True, False]


def test_a_copied_subject_is_a_fault(root, cache_dir):
    for name in ("{}.rec", "{}_1.txt"):
        (root / "2").mkdir(exist_ok=True)
        shutil.copy(root / "1" / name.format(1), root / "2" / name.format(2))
    (fault,) = check_dataset("isruc", root, cache_dir=cache_dir).faults
    assert "of subject 2 is trial 0 of subject 1" in fault


def test_totals_of_a_complete_copy_are_compared_with_the_published_ones(
    tmp_path, cache_dir, changed_dataset
):
    write_stand_in("bci2a", tmp_path / "root", ["A01"], trials=8)
    (tmp_path / "root" / "STAND-IN.txt").unlink()  # a stand-in would not be compared
    info = replace(BCI2A.info, subjects=("A01",))
    for published, expected in (({"tongue": 4}, 0), ({"tongue": 5}, 1)):
        changed_dataset(BCI2A, info=info, published=lambda _s, counts=published: counts)
        options = {"sessions": "TE"}
        report = check_dataset("bci2a", tmp_path / "root", options=options, cache_dir=cache_dir)
        assert len(report.faults) == expected
        assert report.published == published
    assert report.faults == ("bci2a: 4 trials of class tongue, published are 5.",)


def test_data_without_source_files_are_named_by_their_samples(cache_dir, monkeypatch):
    reports = [
        check_dataset("synthetic", options={"n_subjects": 1, "trials": 8, "seed": seed},
                      cache_dir=cache_dir)
        for seed in (0, 1)
    ]  # fmt: skip
    assert reports[0].subjects[0].checksum != reports[1].subjects[0].checksum
    assert reports[0].root == ""


def test_progress_is_told(cache_dir):
    told = []
    check_dataset(
        "synthetic",
        options={"n_subjects": 2, "trials": 4},
        cache_dir=cache_dir,
        progress=lambda *a: told.append(a),
    )
    assert told == [(0, 2, "sub-01"), (1, 2, "sub-02"), (2, 2, "")]


def test_a_recording_broken_by_its_reader_is_a_fault_not_a_crash(cache_dir, changed_dataset):
    def load(_root, subject, settings):
        recording = SYNTHETIC.load(_root, subject, settings)
        recording.trials[0, 0, 0] = np.inf
        return recording

    changed_dataset(SYNTHETIC, load=load)
    report = check_dataset("synthetic", options={"n_subjects": 1, "trials": 4}, cache_dir=cache_dir)
    assert report.subjects == ()
    assert "synthetic subject sub-01: infinity in trial 0" in report.faults[0]


def test_a_copy_without_subject_8_or_the_last_epochs_is_sound(tmp_path, cache_dir, changed_dataset):
    """The published totals are for all nights with all epochs."""
    subjects = ("1", "8", "9")
    write_stand_in("isruc", tmp_path, list(subjects), trials=12)
    (tmp_path / "STAND-IN.txt").unlink()
    info = replace(isruc.DATASET.info, subjects=subjects)
    changes = {"info": info, "published": lambda _settings: {"W": 999}}
    changed_dataset(isruc.DATASET, **changes)
    whole = check_dataset("isruc", tmp_path, cache_dir=cache_dir)
    assert "published are 999" in whole.faults[0]
    options = {"subject_8": "exclude"}
    assert check_dataset("isruc", tmp_path, options=options, cache_dir=cache_dir).faults == ()

    def with_note(root, subject, settings):
        recording = isruc.DATASET.load(root, subject, settings)
        return replace(recording, notes=(*recording.notes, PARTIAL_NOTE))

    changed_dataset(isruc.DATASET, load=with_note, version=2, **changes)
    assert check_dataset("isruc", tmp_path, cache_dir=cache_dir).faults == ()
