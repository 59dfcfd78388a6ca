"""Own recordings at the first try: `afor data import` proposes a study that trains unedited."""

import shutil
import sys
from collections import Counter

import mne
import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets import recordings
from afor.bench.data.inspection.survey import survey_folder
from afor.bench.data.loading import open_windows
from afor.bench.data.stand_ins import write_edf, write_stand_in
from recording_files import write_gdf

RATE = 128
TEN_TWENTY = ["C3", "Cz", "C4"]


def raw_of(seed, names=TEN_TWENTY, types="eeg", seconds=40, rate=RATE, scale=1e-5):
    signal = np.random.default_rng(seed).normal(0, scale, (len(names), seconds * rate))
    return mne.io.RawArray(signal, mne.create_info(list(names), rate, types), verbose="error")


def annotated(raw, duration=2.0):
    onsets = np.arange(1.0, raw.n_times / raw.info["sfreq"] - 3, 3.0)
    labels = ["left", "right"] * len(onsets)
    return raw.set_annotations(mne.Annotations(onsets, duration, labels[: len(onsets)]))


def egi(root):
    for number, subject in enumerate("abc"):
        raw = annotated(raw_of(number, [f"E{n}" for n in range(1, 129)]))
        raw.save(root / f"{subject}_raw.fif", verbose="error")
    return lambda survey: len(survey.channels) == 128


def biosemi(root):
    edfio = pytest.importorskip("edfio")
    microvolts = {"physical_dimension": "uV", "physical_range": (-262144, 262143)}
    for number, subject in enumerate("abc"):
        rng = np.random.default_rng(number)
        status = np.full(40 * RATE, 0x100000)  # CMS in range
        status[0] |= 0x10000  # a new epoch
        for at, code in enumerate([1, 2] * 6):
            status[(at * 3 + 1) * RATE : (at * 3 + 1) * RATE + 10] |= code
        signals = [
            edfio.BdfSignal(rng.normal(300, 10, 40 * RATE), RATE, label=name, **microvolts)
            for name in ("A1", "A2", "B1", "EXG1", "Plet")
        ]
        whole = {"physical_dimension": "Boolean", "physical_range": (-8388608, 8388607)}
        signals.append(edfio.BdfSignal(status.astype(float), RATE, label="Status", **whole))
        edfio.Bdf(signals).write(root / f"{subject}_1.bdf")
    return lambda survey: (
        survey.events == {"1": 18, "2": 18}
        and survey.events_from == "the stim channel Status"
        and survey.channels == ("A1", "A2", "B1")
    )


def event_files(root):
    for number, subject in enumerate("abc"):
        raw_of(number).save(root / f"{subject}_raw.fif", verbose="error")
        samples = (np.arange(12) * 3 + 1) * RATE
        events = np.stack([samples, np.zeros(12), np.tile([5, 6], 6)], axis=1).astype(int)
        mne.write_events(root / f"{subject}-eve.fif", events, verbose="error")
    return lambda survey: survey.events_from == "files -eve.fif"


def bids_with_eog(root):
    mne_bids = pytest.importorskip("mne_bids")
    for number in (1, 2, 3):
        raw = annotated(raw_of(number, [*TEN_TWENTY, "X1"], ["eeg"] * 3 + ["eog"]))
        raw.set_meas_date(None)
        path = mne_bids.BIDSPath(subject=f"{number:02d}", task="hands", root=root, datatype="eeg")
        mne_bids.write_raw_bids(
            raw, path, format="BrainVision", allow_preload=True, overwrite=True, verbose="error"
        )
    return lambda survey: survey.channels == tuple(TEN_TWENTY) and "X1" in survey.other_channels


def bids_tasks(root):
    mne_bids = pytest.importorskip("mne_bids")
    for number in (1, 2, 3):
        for task in ("rest", "arithmetic"):
            raw = raw_of(10 * number + len(task)).set_meas_date(None)
            path = mne_bids.BIDSPath(subject=f"{number:02d}", task=task, root=root, datatype="eeg")
            mne_bids.write_raw_bids(
                raw, path, format="BrainVision", allow_preload=True, overwrite=True, verbose="error"
            )
    return lambda survey: survey.options()["classes_from"] == "task"


def condition_in_the_name(root):
    for number, subject in enumerate(("P1", "P2", "P3")):
        for part in (1, 2):
            signal = np.random.default_rng(10 * number + part).normal(0, 20, (4, 500 * 30))
            names = ["EEG C3", "EEG Cz", "EEG C4", "ECG ECG"]
            write_edf(root / f"{subject}_{part}.edf", names, signal, 500)
    return lambda survey: (
        survey.options()["classes_from"] == "file" and survey.options()["resample_hz"] == 250.0
    )


def eegmat_files(root):
    from afor.bench.data.datasets.eegmat import CHANNELS

    for number in range(3):
        for part in (1, 2):
            signal = np.random.default_rng(10 * number + part).normal(0, 20, (20, 500 * 62))
            names = [*(f"EEG {name}" for name in CHANNELS), "ECG ECG"]
            write_edf(root / f"Subject{number:02d}_{part}.edf", names, signal, 500)
    return lambda survey: survey.use == "eegmat"


def set_files(root):
    fields = [("type", object), ("latency", object), ("duration", object)]
    for number, subject in enumerate("abc"):
        signal = np.random.default_rng(number).normal(0, 10, (3, 40 * RATE)).astype(np.float32)
        events = [("left", "right")[at % 2] for at in range(12)]
        event = [(name, (3.0 * at + 1) * RATE, 2.0 * RATE) for at, name in enumerate(events)]
        places = np.array([(name,) for name in TEN_TWENTY], dtype=[("labels", object)])
        eeg = {
            "data": signal, "nbchan": 3, "srate": float(RATE), "trials": 1, "xmin": 0.0,
            "pnts": signal.shape[1], "event": np.array(event, dtype=fields), "chanlocs": places,
            "epoch": [], "setname": subject, "icawinv": [], "icasphere": [], "icaweights": [],
        }  # fmt: skip
        savemat(root / f"{subject}_1.set", {"EEG": eeg}, appendmat=False)
    return lambda survey: survey.events_from == "annotations"


def gdf_in_wrong_units(root):
    for number, subject in enumerate("abc"):
        signal = np.random.default_rng(number).normal(0, 0.02, (3, 250 * 60))
        events = [(0, 32769, 1)]
        for trial in range(8):
            at = 250 * (7 * trial + 1)
            events += [(at, 32779, 1), (at + 10, 33024 + trial % 4, 1), (at + 1500, 32780, 1)]
        write_gdf(root / f"{subject}_1.gdf", ["Oz", "O1", "O2"], signal, 250, events)
    return lambda survey: (
        survey.options()["scale"] == 1000.0
        and survey.options()["classes"] == ["33024", "33025", "33026", "33027"]
        and survey.options()["trial_s"] >= 0.5
    )


def condition_in_the_name_beside_stray_marks(root):
    for number, subject in enumerate("abc"):
        for part in (1, 2):
            raw = raw_of(10 * number + part)
            if number == 0:
                raw.set_annotations(mne.Annotations([0.0], 0.0, [f"end of {part}"]))
            raw.save(root / f"{subject}_{part}_raw.fif", verbose="error")
    return lambda survey: len(survey.classes) == 2 and survey.options()["classes_from"] == "file"


CASES = [egi, biosemi, event_files, bids_with_eog, bids_tasks, condition_in_the_name,
         condition_in_the_name_beside_stray_marks, eegmat_files, set_files,
         gdf_in_wrong_units]  # fmt: skip


@pytest.mark.usefixtures("train_here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_import_proposes_a_study_that_trains_unedited(case, tiny, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    is_as_expected = case(root)
    assert is_as_expected(survey_folder(root))
    words = ["data", "import", str(root)]
    answer = CliRunner().invoke(app, words, catch_exceptions=False)
    assert answer.exit_code == 0
    study = tmp_path / "mine.toml"
    study.write_text(answer.stdout)
    options = [
        "--epochs",
        "1",
        "--set",
        "protocol.repetitions=1",
        "--optimizer",
        "adam",
    ]  # for a short test
    store = ["--store", str(tmp_path / "mine.db")]
    ran = CliRunner().invoke(app, ["run", str(study), *options, *store], catch_exceptions=False)
    assert ran.exit_code == 0
    assert "3 runs: 3 done" in ran.stdout
    assert "the learning rate is searched first: adam at 0.001, 0.003, 0.01" in answer.stdout


def test_a_study_that_cannot_be_planned_is_said_to_be_one(tmp_path, cache_dir):
    for number, subject in enumerate("abc"):
        raw_of(number).save(tmp_path / f"{subject}_raw.fif", verbose="error")
    page = tmp_path / "page.html"
    words = ["data", "import", str(tmp_path), "--report", str(page)]
    answer = CliRunner().invoke(app, words)
    assert isinstance(answer.exception, DataError)
    assert "cannot be planned yet" in str(answer.exception)
    assert "What must be mended" in page.read_text("utf-8")


def test_the_page_shows_classes_balance_and_spectra(tmp_path, cache_dir):
    for number, subject in enumerate("abc"):
        annotated(raw_of(number)).save(tmp_path / f"{subject}_raw.fif", verbose="error")
    page = tmp_path / "page.html"
    words = ["data", "import", str(tmp_path), "--report", str(page)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    text = page.read_text("utf-8")
    for expected in ("<th>left</th><th>right</th>", "Spectra of the classes", "image/png;base64"):
        assert expected in text


def test_long_trials_are_said_to_be_one_window_each(tmp_path, cache_dir):
    for number, subject in enumerate("abc"):
        np.savez(
            tmp_path / f"{subject}.npz",
            data=np.random.default_rng(number).normal(0, 10, (4, 3, 12 * RATE)),
            labels=["rest", "move"] * 2,
            channel_names=TEN_TWENTY,
            rate_hz=RATE,
        )
    answer = CliRunner().invoke(app, ["data", "import", str(tmp_path)], catch_exceptions=False)
    assert f"each trial of 12 s is one window; the option window_samples = {4 * RATE}" in (
        answer.stdout
    )


def test_one_persons_recording_under_two_names_is_found(tmp_path, cache_dir):
    for number, subject in enumerate("abc"):
        annotated(raw_of(number)).save(tmp_path / f"{subject}_raw.fif", verbose="error")
    shutil.copy(tmp_path / "a_raw.fif", tmp_path / "d_raw.fif")
    words = ["data", "import", str(tmp_path)]
    answer = CliRunner().invoke(app, words)
    assert 'leave one out with exclude = ["d"]' in str(answer.exception)
    assert "12 trials in all are shared" in str(answer.exception)


def test_2a_is_recognised_and_names_that_differ_in_a_letter_are_asked_about(tmp_path):
    write_stand_in("bci2a", tmp_path / "2a", ["A01"], trials=4)
    survey = survey_folder(tmp_path / "2a")
    assert (survey.use, list(survey.subjects)) == ("bci2a", ["A01"])
    other = tmp_path / "other"
    other.mkdir()
    for number, name in enumerate(("P01a", "P01b", "P02a")):
        annotated(raw_of(number)).save(other / f"{name}_raw.fif", verbose="error")
    assert "one person? P01a, P01b differ in one letter" in survey_folder(other).notes[0]


def test_codes_get_names_and_two_lengths_of_events_get_a_sentence(tmp_path, cache_dir):
    for part, duration in ((1, 2.0), (2, 2.5)):
        annotated(raw_of(part), duration).save(tmp_path / f"a_{part}_raw.fif", verbose="error")
    with pytest.raises(ConfigError, match=r"its events last 2 s or 2\.5 s"):
        open_windows("recordings", tmp_path, cache_dir=cache_dir)
    options = {"trial_s": 2.0, "classes": {"hand": "right", "other": "left"}}
    source = open_windows("recordings", tmp_path, options=options, cache_dir=cache_dir)
    assert source.class_names == ("hand", "other")


@pytest.mark.parametrize("name", ["s{subject:03d}/{file}.edf", "s{subject:03d}_{file}.edf"])
def test_scanning_is_linear_in_the_number_of_subjects(tmp_path, name):
    n_subjects, n_files = 300, 6
    for subject in range(n_subjects):
        for file in range(n_files):
            path = tmp_path / name.format(subject=subject, file=file)
            path.parent.mkdir(exist_ok=True)
            path.touch()
    calls = Counter()

    def count(_frame, event, argument):
        if event == "c_call" and argument.__name__ in ("scandir", "stat"):
            calls[argument.__name__] += 1

    sys.setprofile(count)
    try:
        subjects = recordings.DATASET.find(tmp_path, None)
        for subject in subjects:
            recordings.DATASET.files(tmp_path, subject, None)
            recordings.list_files(tmp_path)  # as when it is loaded
    finally:
        sys.setprofile(None)
    assert len(subjects) == n_subjects
    assert calls["scandir"] < 4 * (n_subjects + 1)
    assert calls["stat"] < 30 * n_subjects * n_files  # side files and tables beside each file


def test_a_file_that_came_later_is_found(tmp_path):
    (tmp_path / "a_1.edf").touch()
    assert recordings.DATASET.find(tmp_path, None) == ("a",)
    (tmp_path / "b_1.edf").touch()
    assert recordings.DATASET.find(tmp_path, None) == ("a", "b")


def test_the_cache_is_listed_and_cleared(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    open_windows("synthetic", options={"n_subjects": 2, "trials": 4}, cache_dir=cache)
    monkeypatch.setenv("AFOR_CACHE", str(cache))
    words = ["data", "cache"]
    listed = CliRunner().invoke(app, words).stdout.splitlines()
    assert listed[0] == str(cache)
    assert listed[1].split()[2:] == ["4", "files", "synthetic"]
    assert "has no folder deap" in str(CliRunner().invoke(app, [*words, "deap"]).exception)
    assert "deleted" in CliRunner().invoke(app, [*words, "--clear"]).stdout
    assert not (cache / "synthetic").exists()


def test_a_module_in_the_current_folder_is_found_by_check(tmp_path, cache_dir, monkeypatch):
    (tmp_path / "reader_beside_check.py").write_text(
        "import numpy as np\nfrom afor.bench import Recording\n"
        "def read(root, subject) -> Recording:\n"
        "    rng = np.random.default_rng(len(subject))\n"
        "    trials = rng.normal(0, 10, (4, 2, 100))\n"
        "    return Recording.of_trials(subject, trials, [0, 1, 0, 1], ['C3', 'C4'], 100)\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "anna.bin").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    words = ["data", "check", "reader_beside_check:read", "--root", "data"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
