import pytest

from afor.bench.data.loading import expected_windows, open_windows


@pytest.mark.parametrize(
    ("name", "options", "subjects", "windows"),
    [
        ("deap", {}, 32, 76_800),
        ("bci2a", {}, 9, 25_920),
        ("bci2a", {"sessions": "T"}, 9, 12_960),
        ("isruc", {"subject_8": "exclude"}, 99, 99 * 901 * 19),
        ("physionet_mi", {"task": "eyes"}, 109, 109 * 30 * 4),
        ("physionet_mi", {"task": "imagery"}, 105, 105 * 90 * 4),
    ],
)
def test_the_windows_of_a_complete_copy_are_known_without_its_files(
    name, options, subjects, windows
):
    expected = expected_windows(name, options)
    assert (len(expected.subjects), len(expected)) == (subjects, windows)
    assert expected.count_windows(expected.subjects[:3]) == windows // subjects * 3


def test_excluded_subjects_do_not_count():
    expected = expected_windows("deap", {}, exclude=["s01", "s02"])
    assert len(expected.subjects) == 30
    assert expected_windows("deap", {}, ["s03"]).subjects == ("s03",)


def test_a_data_set_of_unknown_size_has_no_expectation():
    assert expected_windows("synthetic", {}) is None


def test_expected_windows_are_those_of_the_real_recordings(physionet_root, cache_dir):
    options = {"task": "eyes", "channels": ["O1", "O2"]}
    subjects = ["S001", "S002"]
    real = open_windows(
        "physionet_mi", physionet_root, options=options, subjects=subjects, cache_dir=cache_dir
    )
    expected = expected_windows("physionet_mi", options, subjects)
    for attribute in ("channel_names", "class_names", "rate_hz", "window_samples", "n_classes"):
        assert getattr(expected, attribute) == getattr(real, attribute)
    assert len(expected) == len(real)
    assert real.count_windows(["S002"]) == len(real.indices_of(["S002"]))
