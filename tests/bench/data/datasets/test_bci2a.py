import numpy as np
import pytest
from scipy.io import savemat
from scipy.signal import butter, sosfiltfilt

from afor.bench.common.errors import DataError
from afor.bench.data.datasets import bci2a
from afor.bench.data.datasets.bci2a import DATASET, Bci2aSettings
from afor.bench.data.loading import open_windows
from recording_files import bci2a_session, write_gdf

NAMED = {0: "EEG-Fz", 7: "EEG-C3", 9: "EEG-Cz", 11: "EEG-C4", 19: "EEG-Pz"}
LABELS = [NAMED.get(i, "EEG") for i in range(22)] + ["EOG-left", "EOG-central", "EOG-right"]


@pytest.fixture
def session():
    return bci2a_session()


def write_training(root, session, *, labels=LABELS, rate=250, events=None, signal=None):
    original, original_events, _ = session
    write_gdf(
        root / "A01T.gdf",
        labels,
        original if signal is None else signal,
        rate,
        original_events if events is None else events,
    )


def save_bnci(root, name, session, *, changes=None, eog_blocks=3):
    """Write the BNCI Horizon layout: blocks without trials first, then one run per gap."""
    signal, events, classes = session
    gaps = np.isnan(signal[0])
    edges = np.flatnonzero(np.diff(np.concatenate([[True], gaps, [True]]).astype(int)))
    nothing = np.empty((0, 0))
    eog = {"X": np.ones((50, 25)), "trial": nothing, "y": nothing, "artifacts": nothing}
    eog |= {"fs": 250.0, "classes": np.array(["a", "b"], dtype=object)}
    runs = [eog] * eog_blocks
    starts = [position for position, code, _ in events if code == 768]
    rejected = {position for position, code, _ in events if code == 1023}
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        inside = [i for i, start in enumerate(starts) if begin <= start < end]
        run = {
            "X": signal[:, begin:end].T,
            "trial": np.array([[starts[i] - begin + 1] for i in inside], dtype=float),
            "y": classes[inside][:, None].astype(np.uint8),
            "fs": 250.0,
            "classes": np.array(["left hand", "right hand"], dtype=object),
            "artifacts": np.array([[float(starts[i] in rejected)] for i in inside]),
        }
        runs.append({**run, **(changes or {})})
    cell = np.empty((1, len(runs)), dtype=object)
    cell[0, :] = runs
    savemat(root / name, {"data": cell}, do_compression=True)


def test_both_sessions_give_the_papers_windows(bci2a_stand_in, cache_dir):
    source = open_windows("bci2a", bci2a_stand_in, cache_dir=cache_dir)
    assert source.subjects == ("A01", "A02")
    assert source.windows_per_trial == 5
    assert len(source) == 2 * 2 * 24 * 5
    assert source.gather([0]).shape == (1, 22, 250)
    assert source.channel_names[:4] == ("Fz", "FC3", "FC1", "FCz")


def test_a_trial_is_cut_half_a_second_after_the_cue_and_then_filtered(tmp_path, session):
    write_training(tmp_path, session)
    signal, events, classes = session
    cue = next(position for position, code, _ in events if 769 <= code <= 772)
    recording = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    piece = signal[9, cue + 125 : cue + 875]
    sos = butter(5, [0.3, 50], "bandpass", fs=250, output="sos")
    np.testing.assert_allclose(recording.trials[0, 9], sosfiltfilt(sos, piece), atol=0.02)
    np.testing.assert_array_equal(recording.labels, classes - 1)
    assert recording.trials.shape == (12, 22, 750)


def test_filtering_first_works_between_the_gaps_and_gives_other_numbers(tmp_path, session):
    write_training(tmp_path, session)
    cut_first, filter_first = (
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T", filter_scope=scope))
        for scope in ("trial", "continuous")
    )
    signal, events, _ = session
    cue = next(position for position, code, _ in events if 769 <= code <= 772)
    end = int(np.flatnonzero(np.isnan(signal[0]))[0])
    sos = butter(5, [0.3, 50], "bandpass", fs=250, output="sos")
    by_hand = sosfiltfilt(sos, signal[9, :end])[cue + 125 : cue + 875]
    np.testing.assert_allclose(filter_first.trials[0, 9], by_hand, atol=0.02)
    difference = ((cut_first.trials - filter_first.trials) ** 2).mean()
    assert difference > 0.01 * (filter_first.trials**2).mean()


def test_marked_trials_are_kept_by_default_and_dropped_on_request(tmp_path, session):
    write_training(tmp_path, session)
    kept = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    dropped = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T", drop_rejected=True))
    assert len(kept.trials) == len(dropped.trials) + 1
    assert sorted(set(kept.trial_ids) - set(dropped.trial_ids)) == [7]
    assert "session T: 1 trials marked as artifacts, kept" in kept.notes


def test_a_count_of_marked_trials_other_than_the_published_is_noted(tmp_path, session, monkeypatch):
    write_training(tmp_path, session)
    monkeypatch.setattr(bci2a, "TRIALS", 12)
    notes = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T")).notes
    assert "session T: 15 marked trials are published" in notes
    monkeypatch.setitem(bci2a.MARKED, "A01T", 1)
    assert len(DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T")).notes) == 1


def test_an_event_table_out_of_order_reads_the_same(tmp_path, session):
    write_training(tmp_path, session)
    expected = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    write_training(tmp_path, session, events=session[1][::-1])
    again = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    np.testing.assert_array_equal(again.labels, expected.labels)
    np.testing.assert_array_equal(again.trials, expected.trials)


def test_the_bnci_release_gives_the_same_trials_as_the_gdf_release(tmp_path, session):
    (tmp_path / "gdf").mkdir()
    (tmp_path / "mat").mkdir()
    write_training(tmp_path / "gdf", session)
    save_bnci(tmp_path / "mat", "A01T.mat", session)
    settings = Bci2aSettings(sessions="T")
    gdf, mat = (DATASET.load(tmp_path / suffix, "A01", settings) for suffix in ("gdf", "mat"))
    np.testing.assert_allclose(mat.trials, gdf.trials, atol=0.02)
    np.testing.assert_array_equal(mat.labels, gdf.labels)
    np.testing.assert_array_equal(mat.trial_ids, gdf.trial_ids)
    assert mat.notes == gdf.notes


@pytest.mark.parametrize("eog_blocks", [0, 1, 3])
def test_blocks_without_trials_are_skipped_however_many_there_are(tmp_path, session, eog_blocks):
    """A04T has one of them; skipping the first three always would lose 96 trials."""
    save_bnci(tmp_path, "A04T.mat", session, eog_blocks=eog_blocks)
    assert len(DATASET.load(tmp_path, "A04", Bci2aSettings(sessions="T")).trials) == 12


def test_a_session_without_eye_events_reads_like_any_other(tmp_path, session):
    """A04T lacks 276 and 277; codes are used as such, never their rank."""
    write_training(tmp_path, session)
    plain = DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    eyes = [(10, 276, 100), (200, 277, 100), (300, 1072, 50), *session[1]]
    write_training(tmp_path, session, events=eyes)
    np.testing.assert_array_equal(
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T")).labels, plain.labels
    )


def test_the_classes_of_the_evaluation_session_come_from_their_own_file(tmp_path):
    root = tmp_path
    signal, events, classes = bci2a_session(trials=24)
    hidden = [(at, 783 if 769 <= code <= 772 else code, n) for at, code, n in events]
    write_gdf(root / "A01E.gdf", LABELS, signal, 250, hidden)
    savemat(root / "A01E.mat", {"classlabel": classes[:, None].astype(float)})
    expected = DATASET.load(root, "A01", Bci2aSettings(sessions="E")).labels
    np.testing.assert_array_equal(expected, classes - 1)
    (root / "true_labels").mkdir()
    (root / "A01E.mat").rename(root / "true_labels" / "A01E.mat")
    moved = DATASET.load(root, "A01", Bci2aSettings(sessions="E")).labels
    np.testing.assert_array_equal(moved, expected)
    savemat(root / "true_labels" / "A01E.mat", {"classlabel": np.ones((23, 1))})
    with pytest.raises(DataError, match="23 values of 'classlabel' for 24 trials"):
        DATASET.load(root, "A01", Bci2aSettings(sessions="E"))
    savemat(root / "true_labels" / "A01E.mat", {"classlabel": np.full((24, 1), 5)})
    with pytest.raises(DataError, match="class 5 is out of range"):
        DATASET.load(root, "A01", Bci2aSettings(sessions="E"))
    (root / "true_labels" / "A01E.mat").unlink()
    with pytest.raises(DataError, match=r"true_labels/A01E\.mat missing"):
        DATASET.load(root, "A01", Bci2aSettings(sessions="E"))


def swap(labels, a, b):
    labels = list(labels)
    labels[a], labels[b] = labels[b], labels[a]
    return labels


def without(events, code):
    return [event for event in events if event[1] != code]


FAULTS = {
    "other order": (lambda _: {"labels": swap(LABELS, 7, 8)}, "channel 8 is called 'EEG'"),
    "rate": (lambda _: {"rate": 200}, "200 Hz, expected 250"),
    "channel missing": (
        lambda s: {"labels": LABELS[:-1], "signal": s[0][:-1]},
        "24 channels, expected 25",
    ),
    "cue missing": (lambda s: {"events": s[1][:-1]}, "11 cues do not follow 12 trial starts"),
    "start missing": (lambda s: {"events": without(s[1], 768)}, "12 cues do not follow 0"),
    "no events": (lambda _: {"events": []}, "0 cues do not follow 0"),
    "unknown cue": (
        lambda s: {"events": [(p, 783 if 769 <= c <= 772 else c, d) for p, c, d in s[1]]},
        "cues without a class in a training session",
    ),
    "cut short": (
        lambda s: {"signal": s[0][:, : s[1][-1][0] + 300]},
        "Trial 11 would span",
    ),
    "trial in a gap": (
        lambda s: {"signal": np.where(np.arange(s[0].shape[1]) // 200 == 8, np.nan, s[0])},
        "NaN in trial 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), FAULTS.values(), ids=FAULTS)
def test_a_session_that_is_not_as_published_is_refused(tmp_path, session, changes, message):
    write_training(tmp_path, session, **changes(session))
    with pytest.raises(DataError, match=message) as error:
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    assert "subject A01 (A01T.gdf)" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.ones((25, 500))}, r"run 4 has the shape \(25, 500\)"),
        ({"fs": 100.0}, "run 4 is not at 250 Hz"),
        ({"y": np.array([[7], [7]])}, "class 7 is out of range"),
        ({"y": np.array([[1]])}, "2 trials, 1 labels"),
        ({"trial": np.array([[1.0], [10**9]])}, "a trial outside its samples"),
        ({"X": "text"}, "something else than numbers"),
    ],
)
def test_a_broken_bnci_file_is_refused(tmp_path, session, changes, message):
    save_bnci(tmp_path, "A01T.mat", session, changes=changes)
    with pytest.raises(DataError, match=message) as error:
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    assert "subject A01 (A01T.mat)" in str(error.value)


def test_a_mat_file_of_something_else_is_refused(tmp_path):
    savemat(tmp_path / "A01T.mat", {"classlabel": np.ones((288, 1))})
    with pytest.raises(DataError, match="no variable 'data'"):
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))
    savemat(tmp_path / "A01T.mat", {"data": np.array([{"X": np.eye(3)}], dtype=object)})
    with pytest.raises(DataError, match="run 1 lacks fs, trial, y"):
        DATASET.load(tmp_path, "A01", Bci2aSettings(sessions="T"))


def test_a_missing_session_is_named(copied, bci2a_stand_in, cache_dir):
    root = copied(bci2a_stand_in)
    (root / "A02E.mat").unlink()
    assert DATASET.find(root, Bci2aSettings()) == ("A01", "A02")
    with pytest.raises(DataError, match=r"subject A02: A02E\.gdf missing"):
        open_windows("bci2a", root, cache_dir=cache_dir)
    assert len(open_windows("bci2a", root, cache_dir=cache_dir, options={"sessions": "T"})) == 240


def test_published_totals_are_a_quarter_of_all_trials_per_class():
    assert DATASET.published(Bci2aSettings()) == dict.fromkeys(bci2a.CLASS_NAMES, 1296)
    assert 4 * 1296 * 5 == 25_920  # windows, protocol decisions
