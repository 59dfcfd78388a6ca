"""Continuous recordings with a table of events or annotations, and BIDS folders of them."""

import shutil

import mne
import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets.recordings import read_events_table
from afor.bench.data.inspection.survey import survey_folder
from afor.bench.data.loading import open_windows
from afor.bench.study.schema import parse_study

RATE = 100
TRIALS = 8
LABELS = ["rest", "move"] * (TRIALS // 2)


def raw_of(seed, channels=("C3", "C4", "ECG ECG"), seconds=20):
    signal = np.random.default_rng(seed).normal(0, 1e-5, (len(channels), seconds * RATE))
    return mne.io.RawArray(signal, mne.create_info(list(channels), RATE, "eeg"), verbose="error")


def annotated(seed, **options):
    onsets = 1.0 + 2.0 * np.arange(TRIALS)
    return raw_of(seed, **options).set_annotations(mne.Annotations(onsets, 1.5, LABELS))


def table(path, separator="\t", extra=""):
    rows = [("onset", "duration", "trial_type", "file")]
    rows += [(1.0 + 2.0 * i, 1.5, label, extra) for i, label in enumerate(LABELS)]
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make recordings once: three subjects as .edf with annotations."""
    root = tmp_path_factory.mktemp("recordings")
    for number, subject in enumerate(("anna", "bert", "carl")):
        mne.export.export_raw(root / f"{subject}_1.edf", annotated(number), verbose="error")
    return root


@pytest.fixture(scope="module")
def bids_root(tmp_path_factory):
    """Make a BIDS folder once: two subjects, two sessions, two tasks."""
    mne_bids = pytest.importorskip("mne_bids")
    root = tmp_path_factory.mktemp("bids")
    for number, (subject, session, task) in enumerate(
        [("01", "a", "eyes"), ("01", "b", "eyes"), ("02", "a", "eyes"), ("02", "a", "other")]
    ):
        raw = annotated(number, channels=("C3", "C4", "Cz"))
        raw.info["line_freq"] = 50
        path = mne_bids.BIDSPath(subject=subject, session=session, task=task, root=root)
        mne_bids.write_raw_bids(
            raw, path, format="EDF", allow_preload=True, overwrite=True, verbose="error"
        )
    return root


def test_recordings_are_cut_at_their_annotations(made, cache_dir):
    options = {"channels": ["C4", "C3"], "classes": ["rest", "move"], "band_hz": [1.0, 40.0]}
    source = open_windows("recordings", made, options=options, cache_dir=cache_dir)
    assert source.subjects == ("anna", "bert", "carl")
    assert source.gather([0]).shape == (1, 2, 150)
    assert source.labels[:TRIALS].tolist() == [0, 1] * (TRIALS // 2)
    assert 5 < source.channel_statistics(source.subjects)[1][0] < 15  # microvolts


def test_a_trial_holds_the_samples_after_its_event(tmp_path, cache_dir):
    raw = annotated(0)
    raw.save(tmp_path / "anna_raw.fif", verbose="error")
    options = {"start_s": 0.5, "trial_s": 1.0, "classes": ["rest", "move"]}
    source = open_windows("recordings", tmp_path, options=options, cache_dir=cache_dir)
    expected = raw.get_data()[:, 350:450] * 1e6  # the second event is at 3 s
    np.testing.assert_allclose(source.gather([1])[0], expected, rtol=1e-5)
    halved = open_windows(
        "recordings", tmp_path, options={**options, "resample_hz": 50.0}, cache_dir=cache_dir
    )
    assert (halved.rate_hz, halved.window_samples) == (50.0, 50)


@pytest.mark.parametrize(("name", "separator"), [("anna_1_events.tsv", "\t"), ("events.csv", ",")])
def test_a_table_takes_the_place_of_annotations(tmp_path, cache_dir, name, separator):
    annotated(0).save(tmp_path / "anna_1.fif", verbose="error")
    table(tmp_path / name, separator, extra="anna_1.fif")
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("move", "hand"))
    source = open_windows("recordings", tmp_path, cache_dir=cache_dir)
    assert source.class_names == ("hand", "rest")
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("hand", "foot"))
    assert open_windows("recordings", tmp_path, cache_dir=cache_dir).class_names == ("foot", "rest")


def test_folders_of_subjects_and_several_recordings_of_one(tmp_path, cache_dir):
    for folder, file, seed in (("s1", "a", 0), ("s1", "b", 1), ("s2", "a", 2)):
        (tmp_path / folder).mkdir(exist_ok=True)
        annotated(seed).save(tmp_path / folder / f"{file}_raw.fif", verbose="error")
    source = open_windows("recordings", tmp_path, cache_dir=cache_dir)
    assert source.subjects == ("s1", "s2")
    assert np.bincount(source.subject_codes).tolist() == [2 * TRIALS, TRIALS]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"channels": ["C5"]}, ConfigError, "no channel C5. Did you mean 'C"),
        ({"classes": ["left", "right"]}, DataError, "no trial. Events here: move, rest"),
        ({"trial_s": 30.0}, DataError, "no trial"),
        ({"trial_s": 0.0}, ConfigError, "trial_s"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_there(made, cache_dir, options, error, words):
    with pytest.raises(error, match=words):
        open_windows("recordings", made, options=options, subjects=["anna"], cache_dir=cache_dir)


def test_a_table_with_mistakes_is_refused_with_its_line_or_columns(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("onset,trial_typ\n1,rest\n")
    with pytest.raises(DataError, match=r"no column 'trial_type'. Did you mean 'trial_typ'"):
        read_events_table(path, "trial_type")
    path.write_text("onset,trial_type\n1,rest\nsoon,move\n")
    with pytest.raises(DataError, match="line 3: onset 'soon' is not a number"):
        read_events_table(path, "trial_type")
    path.write_text("onset,trial_type,duration\n1,rest,n/a\n2,n/a,1\n")
    assert [(e.label, e.duration_s) for e in read_events_table(path, "trial_type")] == [("rest", 0)]


def test_a_damaged_recording_is_a_fault_of_the_data(tmp_path, cache_dir):
    (tmp_path / "anna.edf").write_bytes(b"no recording")
    with pytest.raises(DataError, match=r"recordings subject anna \(anna.edf\): MNE cannot read"):
        open_windows("recordings", tmp_path, cache_dir=cache_dir)


def test_the_data_set_folder_says_what_to_do_with_recordings(made, cache_dir):
    with pytest.raises(DataError, match=r'3 recordings such as anna_1.edf.*use = "recordings"'):
        open_windows("folder", made, cache_dir=cache_dir)


def test_bids_takes_a_task_and_keeps_the_sessions_of_a_subject_together(bids_root, cache_dir):
    options = {"task": "eyes", "channels": ["C3", "C4"]}
    source = open_windows("bids", bids_root, options=options, cache_dir=cache_dir)
    assert source.subjects == ("sub-01", "sub-02")
    assert source.class_names == ("move", "rest")
    assert np.bincount(source.subject_codes).tolist() == [2 * TRIALS, TRIALS]
    one = open_windows(
        "bids", bids_root, options={**options, "sessions": ["b"]}, cache_dir=cache_dir
    )
    assert one.subjects == ("sub-01",)
    for wrong, words in (
        ({}, "has the tasks eyes, other. Choose one"),
        ({"task": "sleep"}, "task sleep is not in .* It has eyes, other"),
        ({"task": "eyes", "sessions": ["c"]}, "sessions c is not in"),
    ):
        with pytest.raises(ConfigError, match=words):
            open_windows("bids", bids_root, options=wrong, cache_dir=cache_dir)


def test_import_shows_what_is_there_and_prints_a_study_that_can_be_planned(made):
    before = sorted(made.iterdir())
    answer = CliRunner().invoke(app, ["data", "import", str(made)], catch_exceptions=False)
    assert sorted(made.iterdir()) == before
    assert "# subjects: anna, bert, carl" in answer.stdout
    assert "left out, not EEG by type or name: ECG ECG" in answer.stdout
    assert "events of all files, from annotations: move 12, rest 12" in answer.stdout
    study = parse_study(answer.stdout)
    assert study.datasets[0].use == "recordings"
    assert study.datasets[0].options["classes"] == ["move", "rest"]
    assert study.datasets[0].options["trial_s"] == 1.5
    assert study.datasets[0].options["channels"] == ["C3", "C4"]


def test_import_knows_bids_files_of_trials_and_nothing(bids_root, tmp_path):
    survey = survey_folder(bids_root)
    assert (survey.use, survey.tasks, survey.sessions) == ("bids", ("eyes", "other"), ("a", "b"))
    assert survey.subjects == {"sub-01": 2, "sub-02": 2}
    assert survey.options()["task"] == "eyes"
    with pytest.raises(DataError, match="nothing that can be read"):
        survey_folder(tmp_path)
    (tmp_path / "anna.npz").touch()
    assert survey_folder(tmp_path).use == "folder"
    shutil.rmtree(tmp_path)
    with pytest.raises(DataError, match="There is no folder"):
        survey_folder(tmp_path)
