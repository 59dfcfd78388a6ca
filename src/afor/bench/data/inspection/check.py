"""Check every subject of a data set and report its trials, notes and faults."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import PARTIAL_NOTE, STAND_IN_NOTE
from afor.bench.data.inspection.quality import (
    balance_warning,
    channel_spread,
    names_warning,
    signal_warnings,
)
from afor.bench.data.loading import (
    OnSubject,
    check_together,
    prepare_all,
    select_subjects,
)
from afor.bench.data.prepared.cache import PreparedSubject, map_samples


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

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


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
        totals.update(_named_counts(subject))
        spread, line = _inspect(subject, selection.prepared_dir)
        spreads.append(spread)
        lines.append(line)
    is_alike = len({subject.channel_names for subject in prepared}) == 1
    names = prepared[0].channel_names if is_alike else ()
    amplitudes = np.median(spreads, axis=0).tolist() if is_alike else ()
    notes = [warning] if (warning := names_warning(names)) else []
    left_out = {**dataset.excluded(settings), **dict.fromkeys(exclude, "excluded by name")}
    present = dataset.find(selection.source_dir, settings)
    notes += [
        f"{subject} is left out: {left_out[subject]}"
        for subject in present
        if subject in left_out and subject not in selection.subjects
    ]
    expected = [s for s in dataset.info.subjects if s not in left_out]
    missing = [s for s in expected if s not in selection.subjects]
    published: dict[str, int] = {}
    is_stand_in = any(STAND_IN_NOTE in subject.notes for subject in prepared)
    if is_stand_in:
        notes.append(f"{selection.source_dir} holds {STAND_IN_NOTE}")
    if missing and subjects is None:
        here = f"{len(expected) - len(missing)} of {len(expected)} subjects are here"
        unknown = "; published totals are for a complete copy" if dataset.published else ""
        notes.append(here + unknown)
    elif expected and not missing and not exclude and not is_stand_in and dataset.published:
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


def _named_counts(prepared: PreparedSubject) -> dict[str, int]:
    return dict(zip(prepared.class_names, prepared.class_counts(), strict=True))


def _inspect(prepared: PreparedSubject, folder: Path) -> tuple[NDArray[np.float64], SubjectLine]:
    """Return the spread of each channel of a subject, and its line."""
    trials, mapped = map_samples(folder, prepared)
    spread = channel_spread(trials)
    warnings = signal_warnings(trials, prepared.channel_names, spread)
    del trials
    mapped.close()
    if balance := balance_warning(prepared.class_names, prepared.class_counts()):
        warnings.append(balance)
    joined = "".join(source.sha256 for source in prepared.sources) or prepared.data_sha256
    line = SubjectLine(
        subject=prepared.subject,
        trials=prepared.shape[0],
        classes=_named_counts(prepared),
        seconds=prepared.seconds,
        channels=prepared.shape[1],
        rate_hz=prepared.rate_hz,
        notes=prepared.notes,
        checksum=hashlib.sha256(joined.encode()).hexdigest()[:12],
        warnings=tuple(warnings),
    )
    return spread, line
