import shutil

import mne
import numpy as np
import pytest
from scipy.signal import welch

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets.physionet_mi import (
    CLASS_NAMES,
    DATASET,
    IRREGULAR,
    SUBJECTS,
    PhysionetSettings,
)
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.inspection.check import check_dataset
from afor.bench.data.loading import open_windows
from afor.bench.data.prepared import Checksums
from recording_files import write_edf_plus

# The 64 names as the files spell them.
NAMES = [
    "Fc5.", "Fc3.", "Fc1.", "Fcz.", "Fc2.", "Fc4.", "Fc6.", "C5..",
    "C3..", "C1..", "Cz..", "C2..", "C4..", "C6..", "Cp5.", "Cp3.",
    "Cp1.", "Cpz.", "Cp2.", "Cp4.", "Cp6.", "Fp1.", "Fpz.", "Fp2.",
    "Af7.", "Af3.", "Afz.", "Af4.", "Af8.", "F7..", "F5..", "F3..",
    "F1..", "Fz..", "F2..", "F4..", "F6..", "F8..", "Ft7.", "Ft8.",
    "T7..", "T8..", "T9..", "T10.", "Tp7.", "Tp8.", "P7..", "P5..",
    "P3..", "P1..", "Pz..", "P2..", "P4..", "P6..", "P8..", "Po7.",
    "Po3.", "Poz.", "Po4.", "Po8.", "O1..", "Oz..", "O2..", "Iz..",
]  # fmt: skip
EVENTS = [(0.0, 4.2, "T0"), (4.2, 4.1, "T1"), (8.3, 4.2, "T0"), (12.5, 4.1, "T2")]


def write_run(root, subject, run, *, seconds=17, rate=160, events=EVENTS, names=NAMES):
    rng = np.random.default_rng([int(subject[1:]), run])
    signal = rng.normal(0, 20, (len(names), seconds * rate))
    write_edf_plus(root / subject / f"{subject}R{run:02d}.edf", names, signal, rate, events)
    return signal


@pytest.fixture
def root(tmp_path):
    for run in (4, 8, 12, 6, 10, 14):
        write_run(tmp_path, "S001", run)
    for run in (1, 2):
        write_run(tmp_path, "S001", run, seconds=13, events=[(0.0, 12.3, "T0")])
    return tmp_path


def test_the_same_codes_mean_other_classes_in_other_runs(root):
    recording = DATASET.load(root, "S001", PhysionetSettings(task="imagery"))
    assert recording.class_names == CLASS_NAMES["imagery"]
    runs = recording.trial_ids // 1000
    for run, label in zip(runs, recording.labels, strict=True):
        assert (label in (0, 1)) == (run in (4, 8, 12))
    assert recording.class_counts() == (3, 3, 3, 3)
    for task in ("left_right", "fists_feet"):
        assert DATASET.load(root, "S001", PhysionetSettings(task=task)).class_counts() == (3, 3)


def test_a_trial_starts_at_its_event_and_channels_carry_plain_names(root):
    settings = PhysionetSettings(task="left_right", band_hz="none", channels=("C3", "cz", "C4.."))
    recording = DATASET.load(root, "S001", settings)
    signal = write_run(root, "S001", 4)
    begin = round(12.5 * 160)
    expected = signal[[NAMES.index(n) for n in ("C3..", "Cz..", "C4..")], begin : begin + 640]
    np.testing.assert_allclose(recording.trials[1], expected, atol=5e-3)
    assert recording.channel_names == ("C3", "Cz", "C4")
    assert recording.trial_ids[1] == 4001


def test_a_minute_of_rest_is_cut_into_trials_and_the_padding_left_out(root):
    recording = DATASET.load(root, "S001", PhysionetSettings(task="eyes"))
    assert recording.class_counts() == (3, 3)  # 12.3 s hold three trials of 4 s
    assert recording.trials.shape == (6, 64, 640)


def test_filtering_before_and_after_cutting_differ(root):
    before, after = (
        DATASET.load(root, "S001", PhysionetSettings(task="left_right", filter_scope=scope))
        for scope in ("continuous", "trial")
    )
    assert not np.allclose(before.trials, after.trials, atol=1)


def test_a_missing_run_names_subject_and_file(root):
    (root / "S001" / "S001R08.edf").unlink()
    assert DATASET.find(root, PhysionetSettings(task="left_right")) == ("S001",)
    with pytest.raises(
        DataError, match=r"subject S001: S001/S001R08\.edf missing .* --option task=left_right"
    ):
        DATASET.load(root, "S001", PhysionetSettings(task="left_right"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 128, "seconds": 20}, "128 Hz, expected 160"),
        ({"names": NAMES[:-1]}, "63 channels, expected 64"),
        ({"names": [*NAMES[:-1], "Fc5."]}, "channel FC5 occurs twice"),
        ({"events": [(0.0, 4.0, "T7")]}, "has events T7; expected T0"),
        ({"events": [(0.0, 2.0, "T1")]}, "shorter than trial_s = 4"),
    ],
)
def test_a_run_that_is_not_as_published_is_refused(root, changes, message):
    write_run(root, "S001", 8, **changes)
    with pytest.raises(DataError, match=message) as error:
        DATASET.load(root, "S001", PhysionetSettings(task="left_right"))
    assert "S001R08.edf" in str(error.value)


def test_an_unknown_channel_is_refused_with_the_known_ones(root):
    with pytest.raises(ConfigError, match=r"no channel C99.*Accepted: FC5"):
        DATASET.load(root, "S001", PhysionetSettings(channels=("C99",)))


REST = [(0.0, 61.0, "T0")]
# As in the published files of S089: 0.1 s of T0, then the minute as T1.
REST_OF_S089 = [(0.0, 0.1, "T0"), (0.1, 60.05, "T1")]
SLOW_EVENTS = [(0.0, 5.1, "T0"), (5.1, 5.1, "T1"), (10.2, 5.1, "T0"), (15.3, 5.1, "T2")]


def write_irregular(root, subject):
    """Write runs 1 to 14 of a subject with the rates and events that its published files have."""
    for run in (1, 2):
        events = REST_OF_S089 if subject == "S089" else REST
        write_run(root, subject, run, seconds=61, events=events)
    for run in (4, 6, 8, 10, 12, 14):
        if subject in ("S088", "S092", "S100"):
            write_run(root, subject, run, seconds=21, rate=128, events=SLOW_EVENTS)
        elif subject == "S104" and run == 8:  # cut short in the middle of an event
            write_run(root, subject, run, seconds=7, events=[(0.0, 4.2, "T0"), (4.2, 2.0, "T1")])
        else:
            write_run(root, subject, run)


@pytest.fixture(scope="module")
def irregular_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("irregular")
    for subject in ("S088", "S089", "S092", "S100", "S104"):
        write_irregular(folder, subject)
    return folder


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("eyes", ("S088", "S089", "S092", "S100", "S104")),
        ("left_right", ("S089",)),
        ("fists_feet", ("S089", "S104")),
        ("imagery", ("S089",)),
    ],
)
def test_a_subject_is_left_out_only_for_a_task_that_uses_its_irregular_runs(
    irregular_root, cache_dir, task, expected
):
    options = {"task": task, "channels": ["C3", "O1"]}
    source = open_windows("physionet_mi", irregular_root, options=options, cache_dir=cache_dir)
    assert source.subjects == expected
    report = check_dataset("physionet_mi", irregular_root, options=options, cache_dir=cache_dir)
    assert report.faults == ()
    left_out = [note for note in report.notes if "is left out" in note]
    assert len(left_out) == 5 - len(expected)
    assert all("runs 3 to 14 were recorded at 128 Hz" in note for note in left_out[:3])
    assert all(note == "S104 is left out: run 8 is cut short" for note in left_out[3:])
    notes = {line.subject: line.notes for line in report.subjects if line.notes}
    assert set(notes) == ({"S089"} if task == "eyes" else set())


def test_the_minute_of_s089_is_read_as_what_its_file_names_say(irregular_root):
    settings = PhysionetSettings(task="eyes", band_hz="none", channels=("C3",))
    recording = DATASET.load(irregular_root, "S089", settings)
    assert recording.class_counts() == (15, 15)
    assert recording.notes == (
        "run 1: its minute is marked T1 instead of T0 and was read as rest",
        "run 2: its minute is marked T1 instead of T0 and was read as rest",
    )
    edf = read_edf(irregular_root / "S089" / "S089R02.edf")
    signal = edf.microvolts("C3..")
    np.testing.assert_allclose(recording.trials[15, 0], signal[16 : 16 + 640], atol=1e-4)


def test_every_one_of_the_109_subjects_is_read_for_the_eyes_task(tmp_path, cache_dir, monkeypatch):
    monkeypatch.setattr("afor.bench.data.datasets.physionet_mi.CHANNELS", ("FC5", "FC3"))
    for subject in SUBJECTS:
        for run in (1, 2):
            events = REST_OF_S089 if subject == "S089" else REST
            write_run(tmp_path, subject, run, seconds=61, events=events, names=NAMES[:2])
    report = check_dataset("physionet_mi", tmp_path, cache_dir=cache_dir)
    assert report.faults == report.notes == ()
    assert [line.subject for line in report.subjects if line.notes] == ["S089"]
    assert report.totals == {"open": 109 * 15, "closed": 109 * 15}
    source = open_windows("physionet_mi", tmp_path, subjects="all", cache_dir=cache_dir)
    assert source.subjects == SUBJECTS


def test_a_run_of_a_task_under_the_name_of_a_minute_of_rest_is_refused(root):
    write_run(root, "S001", 2)
    with pytest.raises(DataError, match=r"S001R02\.edf: subject S001 has 4 events.*exclude = "):
        DATASET.load(root, "S001", PhysionetSettings(task="eyes"))


def test_irregular_subjects_that_are_asked_for_meet_the_usual_checks(irregular_root, cache_dir):
    options = {"task": "left_right", "include_irregular": True}
    with pytest.raises(
        DataError, match=r'128 Hz, expected 160\. Subject S088 is known .* exclude = \["S088"\]'
    ):
        open_windows("physionet_mi", irregular_root, options=options, cache_dir=cache_dir)


def test_subjects_are_left_out_by_name(irregular_root, cache_dir):
    def subjects(**selection):
        options = {"channels": ["C3"]}
        return open_windows(
            "physionet_mi", irregular_root, options=options, cache_dir=cache_dir, **selection
        ).subjects

    assert subjects(exclude=["S089", "S001"]) == ("S088", "S092", "S100", "S104")
    assert subjects(subjects=["S100", "S104"], exclude=["S089"]) == ("S100", "S104")
    with pytest.raises(
        ConfigError, match=r"exclude names 'S89'.*Did you mean 'S089'.*S001 to S109"
    ):
        subjects(exclude=["S89"])
    with pytest.raises(ConfigError, match="'S100' stands in subjects and in exclude"):
        subjects(subjects=["S100"], exclude=["S100"])
    with pytest.raises(ConfigError, match="exclude leaves no subject of S088, S089"):
        subjects(exclude=["S088", "S089", "S092", "S100", "S104"])


def test_a_check_says_who_was_excluded(irregular_root, cache_dir):
    report = check_dataset(
        "physionet_mi", irregular_root, options={"channels": ["C3"]}, exclude=["S089"],
        cache_dir=cache_dir,
    )  # fmt: skip
    assert "S089 is left out: excluded by name" in report.notes
    assert [line.subject for line in report.subjects] == ["S088", "S092", "S100", "S104"]


def test_the_same_file_under_two_subjects_is_refused(root, cache_dir):
    for run in (1, 2):
        (root / "S002").mkdir(exist_ok=True)
        shutil.copy(root / "S001" / f"S001R{run:02d}.edf", root / "S002" / f"S002R{run:02d}.edf")
    with pytest.raises(DataError, match="of subject S002 is trial 1000 of subject S001"):
        open_windows("physionet_mi", root, cache_dir=cache_dir)


# On the real recordings ---------------------------------------------------------------------------


def test_all_real_files_have_their_published_checksums(physionet_root, cache_dir):
    files = sorted(physionet_root.glob("S*/*.edf"))
    checksums = Checksums(cache_dir, physionet_root)
    sources = checksums.of(files)
    assert len(sources) == len(checksums.published) == 71
    assert sources == checksums.published


@pytest.mark.parametrize("name", ["S001/S001R02.edf", "S003/S003R06.edf", "S100/S100R04.edf"])
def test_real_files_read_as_mne_reads_them(physionet_root, name):
    edf = read_edf(physionet_root / name)
    raw = mne.io.read_raw_edf(physionet_root / name, preload=True, verbose="error")
    ours = np.stack([edf.microvolts(label) for label in edf.labels()])
    np.testing.assert_allclose(ours, raw.get_data() * 1e6, atol=1e-6)
    events = edf.annotations()
    np.testing.assert_allclose([e.onset_s for e in events], raw.annotations.onset)
    assert [e.text for e in events] == list(raw.annotations.description)


def test_twenty_real_subjects_give_windows_and_more_alpha_with_closed_eyes(
    physionet_root, cache_dir
):
    options = {"channels": ("O1", "Oz", "O2")}
    source = open_windows("physionet_mi", physionet_root, options=options, cache_dir=cache_dir)
    assert source.subjects == tuple(f"S{i:03d}" for i in range(1, 21))
    assert len(source) == 20 * 2 * 60
    hz, power = welch(source.gather(np.arange(len(source))), source.rate_hz, nperseg=160)
    alpha = np.log(power[..., (hz >= 8) & (hz <= 12)].mean(axis=(1, 2)))
    more = [
        alpha[(source.subject_ids == s) & (source.labels == 1)].mean()
        > alpha[(source.subject_ids == s) & (source.labels == 0)].mean()
        for s in source.subjects
    ]
    assert sum(more) >= 17  # nearly everybody's alpha grows


def test_real_imagery_has_the_balance_of_the_protocol(physionet_root, cache_dir):
    options = {"task": "imagery", "channels": ("C3", "C4")}
    source = open_windows("physionet_mi", physionet_root, options=options, cache_dir=cache_dir)
    assert source.subjects == ("S001", "S002", "S003", "S004", "S005")
    for subject in source.prepared:
        assert sum(subject.class_counts()) == 90
        assert min(subject.class_counts()) >= 21


def test_the_real_s100_is_recognised_as_irregular(physionet_root):
    assert "S100" in IRREGULAR
    edf = read_edf(physionet_root / "S100" / "S100R04.edf")
    assert edf.rate_hz(edf.labels()[0]) == 128
    assert max(event.duration_s for event in edf.annotations()) == pytest.approx(5.1, abs=0.05)


def test_a_changed_sample_in_a_real_file_is_caught_by_the_published_checksum(
    physionet_root, tmp_path, cache_dir
):
    shutil.copy(physionet_root / "SHA256SUMS.txt", tmp_path)
    (tmp_path / "S001").mkdir()
    for run in (1, 2):
        name = f"S001/S001R{run:02d}.edf"
        (tmp_path / name).write_bytes((physionet_root / name).read_bytes())
    open_windows("physionet_mi", tmp_path, cache_dir=cache_dir)
    content = bytearray((tmp_path / name).read_bytes())
    content[500_000] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"not the published ones|has changed since"):
        open_windows("physionet_mi", tmp_path, cache_dir=cache_dir)
