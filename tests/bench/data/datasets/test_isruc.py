import edfio
import numpy as np
import pytest
from scipy.io import savemat

from afor.bench.common.errors import DataError
from afor.bench.data.datasets import isruc
from afor.bench.data.datasets.isruc import DATASET, IsrucSettings, read_scoring
from afor.bench.data.loading import open_windows

A_NAMES = "LOC-A2 ROC-A1 F3-A2 C3-A2 O1-A2 F4-A1 C4-A1 O2-A1".split()  # noqa: SIM905
M_NAMES = "E1-M2 E2-M1 F3-M2 C3-M2 O1-M2 F4-M1 C4-M1 O2-M1".split()  # noqa: SIM905
BARE_NAMES = "ROC A1 LOC A2 C4 O2 C3 O1 F4 F3".split()  # noqa: SIM905


def write_night(root, subject, names, *, epochs=4, rate=200, scores=None, extra=0):
    """Write a night with an independent EDF writer; returns the signals by name."""
    rng = np.random.default_rng(int(subject))
    seconds = epochs * 30 + extra
    signals = {i: rng.normal(0, 25, seconds * rate) for i in range(len(names))}
    folder = root / subject
    folder.mkdir(parents=True, exist_ok=True)
    edf = edfio.Edf(
        [
            edfio.EdfSignal(
                signals[i], rate, label=name, physical_dimension="uV", physical_range=(-400, 400)
            )
            for i, name in enumerate(names)
        ],
        data_record_duration=1,
    )
    edf.write(folder / "x.edf")
    (folder / "x.edf").rename(folder / f"{subject}.rec")
    if scores is None:
        scores = [0, 1, 2, 3, 5] * epochs
        scores = scores[:epochs]
    (folder / f"{subject}_1.txt").write_text("\n".join(map(str, scores)) + "\n\n\n")
    return {name: signals[i] for i, name in enumerate(names)}


@pytest.mark.parametrize("names", [A_NAMES, M_NAMES], ids=["A", "M"])
def test_channels_are_found_by_name_in_both_schemes_and_any_order(tmp_path, names):
    shuffled = list(np.random.default_rng(3).permutation(names))
    signals = write_night(tmp_path, "2", shuffled)
    recording = DATASET.load(tmp_path, "2", IsrucSettings())
    assert recording.channel_names == ("F3", "C3", "O1", "F4", "C4", "O2")
    assert recording.trials.shape == (4, 6, 6000)
    for i, name in enumerate(recording.channel_names):
        (stored,) = [s for s in names if s.startswith(name + "-")]
        expected = signals[stored].reshape(4, 6000)
        np.testing.assert_allclose(recording.trials[:, i], expected, atol=0.02)
    assert recording.labels.tolist() == [0, 1, 2, 3]
    assert recording.notes == ()


def test_subject_40_is_referenced_to_the_opposite_ear(tmp_path):
    signals = write_night(tmp_path, "40", BARE_NAMES)
    recording = DATASET.load(tmp_path, "40", IsrucSettings())
    for name, ear in (("F3", "A2"), ("C3", "A2"), ("O1", "A2"), ("F4", "A1"), ("O2", "A1")):
        at = recording.channel_names.index(name)
        expected = (signals[name] - signals[ear])[:24_000].reshape(4, 6000)
        np.testing.assert_allclose(recording.trials[:, at], expected, atol=0.03)
    assert recording.notes == ("electrodes are stored unreferenced: re-referenced to the ears",)


def test_subject_8_gets_central_for_frontal_channels_and_says_so(tmp_path, cache_dir):
    names = [name for name in A_NAMES if not name.startswith("F")]
    write_night(tmp_path, "8", names)
    write_night(tmp_path, "9", A_NAMES)
    recording = DATASET.load(tmp_path, "8", IsrucSettings())
    np.testing.assert_array_equal(recording.trials[:, 0], recording.trials[:, 1])
    np.testing.assert_array_equal(recording.trials[:, 3], recording.trials[:, 4])
    assert recording.notes == (
        "F3 is not recorded, C3 stands in",
        "F4 is not recorded, C4 stands in",
    )
    options = {"subject_8": "exclude"}
    assert open_windows("isruc", tmp_path, cache_dir=cache_dir, options=options).subjects == ("9",)


def test_another_subject_without_frontal_channels_is_refused_never_filled(tmp_path):
    write_night(tmp_path, "9", [name for name in A_NAMES if not name.startswith("F")])
    with pytest.raises(DataError, match=r"subject 9 \(9\.rec\): no channel F3-A2 or F3-M2"):
        DATASET.load(tmp_path, "9", IsrucSettings())


def test_a_channel_stored_twice_is_refused(tmp_path):
    write_night(tmp_path, "9", [*A_NAMES, "C3-A2"])
    with pytest.raises(DataError, match="channel C3-A2 is there twice"):
        DATASET.load(tmp_path, "9", IsrucSettings())


@pytest.mark.parametrize("n_scores", [3, 6])
def test_a_small_difference_in_length_is_cut_to_the_shorter_and_noted(tmp_path, n_scores):
    write_night(tmp_path, "1", A_NAMES, scores=[2] * n_scores)
    recording = DATASET.load(tmp_path, "1", IsrucSettings())
    assert len(recording.trials) == len(recording.labels) == min(4, n_scores)
    assert recording.notes == (f"4 epochs and {n_scores} scores: cut to the shorter",)


def test_a_large_difference_in_length_is_refused(tmp_path):
    write_night(tmp_path, "1", A_NAMES, scores=[2] * 10)
    with pytest.raises(DataError, match=r"4 epochs in 1\.rec, 10 scores in 1_1\.txt"):
        DATASET.load(tmp_path, "1", IsrucSettings())


def test_a_rest_shorter_than_an_epoch_is_left_out(tmp_path):
    write_night(tmp_path, "1", A_NAMES, extra=17)
    assert len(DATASET.load(tmp_path, "1", IsrucSettings()).trials) == 4


def test_another_rate_is_resampled_with_a_note(tmp_path):
    write_night(tmp_path, "1", A_NAMES, rate=256)
    recording = DATASET.load(tmp_path, "1", IsrucSettings())
    assert recording.trials.shape == (4, 6, 6000)
    assert recording.notes == ("resampled from 256 to 200 Hz",)


def write_extracted(root, subject, *, epochs=5, scores=35, ear="A", drop=(), shape=None):
    rng = np.random.default_rng(0)
    names = {"F3": 2, "C3": 2, "O1": 2, "F4": 1, "C4": 1, "O2": 1}
    arrays = {
        f"{name}_{ear}{side}": rng.normal(0, 25, shape or (epochs, 6000))
        for name, side in names.items()
        if name not in drop
    }
    savemat(root / f"subject{subject}.mat", {**arrays, "X1": np.eye(3)}, do_compression=True)
    (root / subject).mkdir(exist_ok=True)
    (root / subject / f"{subject}_1.txt").write_text("2\n" * scores)
    return arrays


@pytest.mark.parametrize("ear", ["A", "M"])
def test_the_extracted_release_has_thirty_scores_too_many(tmp_path, ear):
    arrays = write_extracted(tmp_path, "3", ear=ear)
    recording = DATASET.load(tmp_path, "3", IsrucSettings())
    assert recording.trials.shape == (5, 6, 6000)
    np.testing.assert_allclose(recording.trials[:, 2], arrays[f"O1_{ear}2"], rtol=1e-6)


@pytest.mark.parametrize("scores", [34, 36, 5])
def test_any_other_difference_in_the_extracted_release_is_refused(tmp_path, scores):
    write_extracted(tmp_path, "3", scores=scores)
    with pytest.raises(DataError, match="exactly 30 fewer"):
        DATASET.load(tmp_path, "3", IsrucSettings())


def test_the_extracted_release_names_what_is_missing_or_misshapen(tmp_path):
    write_extracted(tmp_path, "3", drop=("O2",))
    with pytest.raises(DataError, match="no variable O2_A1 or O2_M1"):
        DATASET.load(tmp_path, "3", IsrucSettings())
    write_extracted(tmp_path, "3", shape=(6000, 5))
    with pytest.raises(DataError, match=r"F3 has the shape \(6000, 5\)"):
        DATASET.load(tmp_path, "3", IsrucSettings())
    write_extracted(tmp_path, "8", drop=("F3", "F4"))
    assert DATASET.load(tmp_path, "8", IsrucSettings()).notes == (
        "a release without the last epochs of the night",
        "F3 is not recorded, C3 stands in",
        "F4 is not recorded, C4 stands in",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n4\n", "line 2: '4' is no stage"),
        ("0\n\n-1\n", "line 3: '-1' is no stage"),
        ("W\n", "line 1: 'W' is no stage"),
        ("", "no scores in it"),
        ("\n \n", "no scores in it"),
        ("２\n", "line 1: '２' is no stage"),
        ("0\x00\n", "line 1"),
    ],
)
def test_a_broken_scoring_names_file_and_line(tmp_path, text, message):
    path = tmp_path / "7_1.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read_scoring(path, "7")
    assert "subject 7 (7_1.txt)" in str(error.value)


def test_scores_with_blank_lines_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "7_1.txt"
    path.write_bytes(b"\xef\xbb\xbf0\r\n5\r\n\r\n3\r\n")
    assert read_scoring(path, "7").tolist() == [0, 4, 3]


def test_the_second_scorer_and_a_missing_scoring(tmp_path):
    write_night(tmp_path, "1", A_NAMES)
    with pytest.raises(DataError, match=r"subject 1: 1/1_2\.txt missing"):
        DATASET.load(tmp_path, "1", IsrucSettings(scorer=2))
    (tmp_path / "1" / "1_2.txt").write_text("3\n3\n3\n3\n")
    assert DATASET.load(tmp_path, "1", IsrucSettings(scorer=2)).labels.tolist() == [3] * 4


def test_a_copy_with_the_subgroup_folder_is_found(tmp_path):
    write_night(tmp_path / "Subgroup_1", "1", A_NAMES)
    assert DATASET.find(tmp_path, IsrucSettings()) == ("1",)
    assert len(DATASET.load(tmp_path, "1", IsrucSettings()).trials) == 4
    with pytest.raises(DataError, match=r"subject 2: 2/2\.rec.* missing .*or subject1\.mat"):
        DATASET.load(tmp_path, "2", IsrucSettings())


def test_windows_inherit_the_epochs_label_and_never_cross_its_border(isruc_stand_in, cache_dir):
    source = open_windows("isruc", isruc_stand_in, cache_dir=cache_dir)
    assert source.windows_per_trial == 19
    assert len(source) == 4 * 12 * 19
    epoch = DATASET.load(isruc_stand_in, "1", IsrucSettings()).trials[2]
    windows = source.gather(np.arange(2 * 19, 3 * 19))
    np.testing.assert_array_equal(windows[-1], epoch[:, 5400:])
    assert len(set(source.labels[2 * 19 : 3 * 19])) == 1


def test_the_published_counts_add_up():
    assert sum(isruc.PUBLISHED_COUNTS.values()) == 90_187
    assert round(90_187 * 19 / 1e6, 1) == 1.7  # windows, in millions
