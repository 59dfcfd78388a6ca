"""PhysioNet EEG Motor Movement/Imagery (EEGMMIDB): 109 subjects, free to download.

The meaning of the codes T1 and T2 depends on the run: in runs 4, 8, 12 they are the left and the
right fist, in runs 6, 10, 14 both fists and both feet. Runs 1 and 2 are one minute with the eyes
open and one with the eyes closed, marked T0; S089 has T1 after 0.1 s of T0 instead.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Part, Samples, Words
from afor.bench.data.fetching import Fetch, RemoteFile
from afor.bench.data.formats.edf import Annotation, EdfFile, read_edf
from afor.bench.data.montage import tidy_name
from afor.bench.data.recording import TrialShape, channel_rows, require_finite
from afor.bench.data.signal import PAPER_BAND_HZ, cut_trials, filter_signal

RATE_HZ = 160.0
CHANNELS = (
    "FC5", "FC3", "FC1", "FCz", "FC2", "FC4", "FC6", "C5", "C3", "C1", "Cz", "C2", "C4", "C6",
    "CP5", "CP3", "CP1", "CPz", "CP2", "CP4", "CP6", "Fp1", "Fpz", "Fp2", "AF7", "AF3", "AFz",
    "AF4", "AF8", "F7", "F5", "F3", "F1", "Fz", "F2", "F4", "F6", "F8", "FT7", "FT8", "T7", "T8",
    "T9", "T10", "TP7", "TP8", "P7", "P5", "P3", "P1", "Pz", "P2", "P4", "P6", "P8", "PO7", "PO3",
    "POz", "PO4", "PO8", "O1", "Oz", "O2", "Iz",
)  # fmt: skip
SUBJECTS = tuple(f"S{i:03d}" for i in range(1, 110))
SLOW = "runs 3 to 14 were recorded at 128 Hz with events of 5.1 s"
# Subject → the irregular runs, and the reason.
IRREGULAR: Mapping[str, tuple[tuple[int, ...], str]] = {
    "S088": (tuple(range(3, 15)), SLOW),
    "S092": (tuple(range(3, 15)), SLOW),
    "S100": (tuple(range(3, 15)), SLOW),
    "S104": ((8,), "run 8 is cut short"),
}
EYES_OPEN, EYES_CLOSED = 1, 2
MINUTE_S = 61.0  # length of the runs of rest
EVENTS_OF_A_RUN = 15  # of the two tasks of a run together
REST = "T0"
MINUTE_SHARE = 0.9  # share of the marked time that the event of a minute of rest must cover
HAND_RUNS, BOTH_RUNS = (4, 8, 12), (6, 10, 14)

Task = Literal["eyes", "left_right", "fists_feet", "imagery"]
CLASS_NAMES: Mapping[Task, tuple[str, ...]] = {
    "eyes": ("open", "closed"),
    "left_right": ("left fist", "right fist"),
    "fists_feet": ("both fists", "both feet"),
    "imagery": ("left fist", "right fist", "both fists", "both feet"),
}
# Task → run → event → label.
RUNS: Mapping[Task, Mapping[int, Mapping[str, int]]] = {
    "eyes": {EYES_OPEN: {"T0": 0}, EYES_CLOSED: {"T0": 1}},
    "left_right": {run: {"T1": 0, "T2": 1} for run in HAND_RUNS},
    "fists_feet": {run: {"T1": 0, "T2": 1} for run in BOTH_RUNS},
    "imagery": {
        run: ({"T1": 0, "T2": 1} if run in HAND_RUNS else {"T1": 2, "T2": 3})
        for run in sorted(HAND_RUNS + BOTH_RUNS)
    },
}


class PhysionetSettings(DataSettings):
    """Options of PhysioNet MI; the paper does not use it, so all defaults are ours."""

    task: Task = "eyes"
    channels: Words | None = None  # all 64
    trial_s: Annotated[float, Field(gt=0, le=60)] = 4.0  # an imagery event lasts 4.1 s
    band_hz: BandHz = PAPER_BAND_HZ
    filter_scope: Literal["continuous", "trial"] = "continuous"
    allow_truncated: bool = False
    include_irregular: bool = False
    window_samples: Samples = 160
    stride_samples: Samples = 160

    NOT_OF_TRIALS = DataSettings.NOT_OF_TRIALS | {"include_irregular"}


def _names(subject: str, settings: PhysionetSettings) -> list[str]:
    """Return the names of the files of the task's runs."""
    return [f"{subject}/{subject}R{run:02d}.edf" for run in RUNS[settings.task]]


@cache
def _checksums() -> dict[str, str]:
    """Return the SHA-256 of all files, which are installed with MNE."""
    text = (files("mne") / "data" / "eegbci_checksums.txt").read_text("utf-8")
    return dict(line.split() for line in text.splitlines() if line.strip())


def _remote_files(
    _root: Path, subjects: Sequence[str], settings: PhysionetSettings
) -> list[RemoteFile]:
    megabytes = 1.276 if settings.task == "eyes" else 2.597
    return [
        RemoteFile.of_physionet("eegmmidb/1.0.0", name, f"sha256:{_checksums()[name]}", megabytes)
        for subject in subjects
        for name in _names(subject, settings)
    ]


class PhysionetMI(Dataset[PhysionetSettings]):
    """The reader of EEGMMIDB."""

    info = DatasetInfo(
        name="physionet_mi",
        title="PhysioNet EEG Motor Movement/Imagery (EEGMMIDB)",
        task="eyes open or closed (2 classes), left_right (2), fists_feet (2), imagery (4)",
        licence="Open Data Commons Attribution 1.0 (ODC-By)",
        where="https://physionet.org/content/eegmmidb/1.0.0/",
        citation="Schalk et al., IEEE TBME 51(6), 2004; Goldberger et al., Circulation 101(23), "
        "2000",
        subjects=SUBJECTS,
        shape="64 channels at 160 Hz; trials of 4 s",
        paper_windows="not in the paper; here 160 samples, stride 160",
        layout="S001/S001R01.edf … S109/S109R14.edf",
    )
    settings = PhysionetSettings
    fetch = Fetch(files=_remote_files)

    def files(self, root: Path, subject: str, settings: PhysionetSettings) -> list[Path]:
        """Return the files of the task's runs."""
        return [root / name for name in _names(subject, settings)]

    def excluded(self, settings: PhysionetSettings) -> dict[str, str]:
        """Return the subjects with an irregular run of the task, and the reason."""
        if settings.include_irregular:
            return {}
        return {subject: why for subject in IRREGULAR if (why := _irregular(subject, settings))}

    def trial_shape(self, settings: PhysionetSettings) -> TrialShape:
        """Return the trials of one subject: 15 events of a run, or a minute of rest in trials."""
        a_run = int(MINUTE_S // settings.trial_s) if settings.task == "eyes" else EVENTS_OF_A_RUN
        trials, samples = a_run * len(RUNS[settings.task]), round(settings.trial_s * RATE_HZ)
        names = tuple(tidy_name(name) for name in settings.channels or CHANNELS)
        channel_rows(names, CHANNELS, self.info.name)
        return TrialShape(names, RATE_HZ, CLASS_NAMES[settings.task], trials, samples)

    def read(
        self, paths: Sequence[Path], subject: str, settings: PhysionetSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Read the trials of the task of one subject."""
        names = self.trial_shape(settings).channel_names
        reason, found = _irregular(subject, settings), 0
        for (run, meaning), path in zip(RUNS[settings.task].items(), paths, strict=True):
            edf = read_edf(path, allow_truncated=settings.allow_truncated)
            if len(edf.labels()) != len(CHANNELS):
                raise DataError(f"{path}: {len(edf.labels())} channels, expected {len(CHANNELS)}.")
            try:
                signal = edf.channels(names, RATE_HZ, tidy_name)
            except DataError as error:
                why = f" Subject {subject} is known for it." if reason else ""
                advice = f'Leave the subject out with exclude = ["{subject}"].'
                raise DataError(f"{error}{why} {advice}") from None
            require_finite(signal, str(path), names)
            events, remark = _events_of_run(edf, subject, settings)
            cut, classes, dropped = _trials_of_run(edf, signal, events, meaning, subject, settings)
            yield cut, classes, 1000 * run + np.arange(len(classes))
            found += len(classes)
            notes += edf.notes
            if remark:
                notes.append(f"run {run}: {remark}")
            if dropped:
                notes.append(f"run {run}: {dropped} events cut off by the end of the recording")
        if reason:
            notes.append(f"irregular: {reason}")
        if not found:
            raise DataError(
                f"PhysioNet subject {subject}: no event of task {settings.task!r} found."
            )


DATASET = PhysionetMI()


def _irregular(subject: str, settings: PhysionetSettings) -> str:
    """Return why runs of the task are irregular in a subject, or an empty text."""
    runs, reason = IRREGULAR.get(subject, ((), ""))
    return reason if set(runs).intersection(RUNS[settings.task]) else ""


def _events_of_run(
    edf: EdfFile, subject: str, settings: PhysionetSettings
) -> tuple[list[Annotation], str]:
    """Return the events of a run and a note about them; raise DataError for unknown events.

    In a minute of rest, the file name gives the state (eyes open or closed). If the minute is not
    marked as rest, the event that covers it counts as rest and shorter ones are ignored.
    """
    events = list(edf.annotations())
    if unknown := {e.text for e in events if not re.fullmatch(r"T[012]", e.text)}:
        raise DataError(
            f"{edf.path}: subject {subject} has events {', '.join(sorted(unknown))}; "
            "expected T0, T1 and T2."
        )
    if settings.task != "eyes" or all(event.text == REST for event in events):
        return events, ""
    longest = max(events, key=lambda event: event.duration_s)
    if longest.duration_s < MINUTE_SHARE * sum(event.duration_s for event in events):
        raise DataError(
            f"{edf.path}: subject {subject} has {len(events)} events, the longest of "
            f"{longest.duration_s:g} s; expected a minute of rest under one event. Check that the "
            f'file is run 1 or 2, or leave the subject out with exclude = ["{subject}"].'
        )
    if longest.text == REST:
        return events, ""
    remark = f"its minute is marked {longest.text} instead of {REST} and was read as rest"
    return [replace(longest, text=REST)], remark


def _trials_of_run(
    edf: EdfFile,
    signal: NDArray[np.floating],
    events: Sequence[Annotation],
    meaning: Mapping[str, int],
    subject: str,
    settings: PhysionetSettings,
) -> tuple[NDArray[np.floating], list[int], int]:
    samples = round(settings.trial_s * RATE_HZ)
    # The last record is padded with zeros after the last event.
    recorded_s = max((event.onset_s + event.duration_s for event in events), default=0.0)
    signal = signal[:, : max(0, round(recorded_s * RATE_HZ))]
    onsets: list[int] = []
    labels: list[int] = []
    dropped = 0
    for event in (event for event in events if event.text in meaning):
        start = round(event.onset_s * RATE_HZ)
        stop = round((event.onset_s + event.duration_s) * RATE_HZ)
        if stop - start < samples:
            raise DataError(
                f"{edf.path}: subject {subject} has an event of {event.duration_s:g} s at "
                f"{event.onset_s:g} s, shorter than trial_s = {settings.trial_s:g}. Choose a "
                f'shorter trial_s, or leave the subject out with exclude = ["{subject}"].'
            )
        # An imagery event is one trial; a minute of rest is cut into as many as fit.
        count = (stop - start) // samples if settings.task == "eyes" else 1
        begins = range(start, start + count * samples, samples)
        inside = [begin for begin in begins if 0 <= begin <= signal.shape[1] - samples]
        onsets += inside
        labels += [meaning[event.text]] * len(inside)
        dropped += count - len(inside)
    if settings.filter_scope == "continuous":
        signal = filter_signal(signal, RATE_HZ, settings.band_hz)
    if not onsets:
        return np.empty((0, signal.shape[0], samples)), [], dropped
    trials = cut_trials(signal, np.array(onsets), 0, samples)
    if settings.filter_scope == "trial":
        trials = filter_signal(trials, RATE_HZ, settings.band_hz)
    return trials, labels, dropped
