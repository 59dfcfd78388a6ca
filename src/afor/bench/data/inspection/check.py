"""Check every subject of a data set and report its trials, notes and faults.

Warnings are about what makes trials useless without being a fault of a file: units, channels and
balance.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import PARTIAL_NOTE, STAND_IN_NOTE
from afor.bench.data.loading import OnSubject, check_together, prepare_all, select_subjects
from afor.bench.data.montage import is_eeg_name
from afor.bench.data.prepared import PreparedSubject, map_samples
from afor.bench.data.recording import likely_scale

NEARLY_FLAT = 0.02  # of the median channel's standard deviation
SAME_CORRELATION = 0.9999
MAX_TRIALS_COMPARED = 50
MIN_CLASS_SHARE = 0.25  # of the largest class


@dataclass(frozen=True)
class SubjectLine:
    """The result of checking one subject."""

    subject: str
    trials: int
    classes: Mapping[str, int]
    seconds: float
    channels: int
    rate_hz: float
    notes: tuple[str, ...]
    checksum: str  # first digits of the SHA-256 of all source files
    warnings: tuple[str, ...]  # readable, but look at it before you train


@dataclass(frozen=True)
class CheckReport:
    """The result of checking a data set; it is valid if ``faults`` is empty."""

    dataset: str
    root: str
    subjects: tuple[SubjectLine, ...]
    totals: Mapping[str, int]
    published: Mapping[str, int]
    notes: tuple[str, ...]
    faults: tuple[str, ...]
    amplitudes: Mapping[str, float]  # each channel's SD in microvolts, the median over subjects


def check_dataset(
    name: str,
    root: str | Path | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    subjects: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    cache_dir: str | Path | None = None,
    progress: OnSubject | None = None,
) -> CheckReport:
    """Read every byte of every subject again and collect all faults.

    The arguments are those of `open_windows`. Damaged files are faults of the report, not errors.
    """
    selection = select_subjects(name, root, options, subjects, exclude, cache_dir)
    dataset, settings = selection.dataset, selection.settings
    faults: list[str] = []
    prepared = prepare_all(selection, progress, verify=True, faults=faults)
    if prepared:
        try:
            check_together(name, prepared)
        except DataError as error:
            faults.append(str(error))
    totals: Counter[str] = Counter()
    lines, spreads = [], []
    for subject in prepared:
        totals.update(_classes(subject))
        trials, mapped = map_samples(selection.prepared_dir, subject)
        spread, warnings = inspect_trials(trials, subject)
        del trials
        mapped.close()
        spreads.append(spread)
        lines.append(_line(subject, warnings))
    is_alike = len({subject.channel_names for subject in prepared}) == 1
    names = prepared[0].channel_names if is_alike else ()
    amplitudes = np.median(spreads, axis=0).tolist() if is_alike else ()
    others = ", ".join(name for name in names if not is_eeg_name(name))
    notes = [f"not EEG by name: {others}; leave them out with the option channels"] * bool(others)
    left_out = {**dataset.excluded(settings), **dict.fromkeys(exclude, "excluded by name")}
    present = dataset.find(selection.source_dir, settings)
    notes += [
        f"{subject} is left out: {left_out[subject]}"
        for subject in present
        if subject in left_out and subject not in selection.subjects
    ]
    expected = [s for s in dataset.info.subjects if s not in left_out]
    missing = [s for s in expected if s not in selection.subjects]
    published: Mapping[str, int] = {}
    is_stand_in = any(STAND_IN_NOTE in subject.notes for subject in prepared)
    if is_stand_in:
        notes.append(f"{selection.source_dir} holds {STAND_IN_NOTE}")
    if missing and subjects is None:
        here = f"{len(expected) - len(missing)} of {len(expected)} subjects are here"
        is_counted = bool(dataset.published(settings))
        notes.append(here + "; published totals are for a complete copy" * is_counted)
    elif expected and not missing and not exclude and not is_stand_in:
        is_partial = any(PARTIAL_NOTE in subject.notes for subject in prepared)
        published = {} if left_out or is_partial else dataset.published(settings)
        faults += [
            f"{name}: {totals[label]} trials of class {label}, published are {count}."
            for label, count in published.items()
            if not faults and totals[label] != count
        ]
    return CheckReport(
        dataset=name,
        root=str(selection.source_dir) if dataset.needs_root else "",
        subjects=tuple(lines),
        totals=dict(totals),
        published=published,
        notes=tuple(notes),
        faults=tuple(faults),
        amplitudes=dict(zip(names, amplitudes, strict=True)),
    )


def _classes(prepared: PreparedSubject) -> dict[str, int]:
    return dict(zip(prepared.class_names, prepared.class_counts(), strict=True))


def _line(prepared: PreparedSubject, warnings: Sequence[str]) -> SubjectLine:
    joined = "".join(prepared.sources.values()) or prepared.data_sha256
    trials, channels, samples = prepared.shape
    return SubjectLine(
        subject=prepared.subject,
        trials=trials,
        classes=_classes(prepared),
        seconds=trials * samples / prepared.rate_hz,
        channels=channels,
        rate_hz=prepared.rate_hz,
        notes=prepared.notes,
        checksum=hashlib.sha256(joined.encode()).hexdigest()[:12],
        warnings=tuple(warnings),
    )


def inspect_trials(
    trials: NDArray[np.float32], prepared: PreparedSubject
) -> tuple[NDArray[np.float64], list[str]]:
    """Return each channel's SD within a trial, the median over trials, and what is odd."""
    spread: NDArray[np.float64] = np.median(trials.std(axis=2, dtype=np.float64), axis=0)
    warnings = signal_warnings(trials, prepared.channel_names, spread)
    balance = balance_warning(_classes(prepared))
    return spread, [*warnings, balance] if balance else warnings


def signal_warnings(
    trials: NDArray[np.float32], channel_names: Sequence[str], spread: NDArray[np.float64]
) -> list[str]:
    """Return what is odd about the signal of one subject; `spread` is that of each channel."""
    warnings = []
    typical = float(np.median(spread))
    if (factor := likely_scale(typical)) != 1.0:
        guess = (
            "volts or millivolts seem to be read as microvolts; the option unit of a folder says "
            "what .npz files hold"
            if factor > 1.0
            else "microvolts seem to be read as volts, or these are raw counts of the amplifier"
        )
        warnings.append(f"typical amplitude {typical:.2g} µV: {guess}")
    flat = [n for n, s in zip(channel_names, spread, strict=True) if s < NEARLY_FLAT * typical]
    if flat:
        warnings.append(f"nearly flat: {', '.join(flat)}")
    if pairs := _same_channels(trials, channel_names, spread):
        warnings.append(f"duplicate channels: {', '.join(pairs)}")
    return warnings


def balance_warning(counts: Mapping[str, int]) -> str:
    """Return a warning for a subject whose classes are far from balanced, or an empty text.

    >>> balance_warning({"rest": 40, "move": 8})
    'unbalanced: move has 8 trials, rest 40'
    """
    few, many = (extreme(counts, key=counts.__getitem__) for extreme in (min, max))
    # A missing class is said elsewhere.
    if counts[few] >= MIN_CLASS_SHARE * counts[many] or counts[few] == 0:
        return ""
    return f"unbalanced: {few} has {counts[few]} trials, {many} {counts[many]}"


def _same_channels(
    trials: NDArray[np.float32], channel_names: Sequence[str], spread: NDArray[np.float64]
) -> list[str]:
    """Return pairs "A = B" of channels that are copies of each other, up to scale and sign."""
    rows = np.flatnonzero(spread > 0)
    signal = trials[:MAX_TRIALS_COMPARED, rows].astype(np.float64)
    signal -= signal.mean(axis=2, keepdims=True)
    flat = signal.transpose(1, 0, 2).reshape(len(rows), -1)
    norms = np.linalg.norm(flat, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.abs(flat @ flat.T / np.outer(norms, norms))
    firsts, seconds = np.nonzero(np.triu(correlation > SAME_CORRELATION, k=1))
    return [
        f"{channel_names[rows[first]]} = {channel_names[rows[second]]}"
        for first, second in zip(firsts, seconds, strict=True)
    ]
