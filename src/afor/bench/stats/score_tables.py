"""Read any table of scores as runs, so that the same comparisons and verdicts are made of them.

A table has a row per score (columns for the method, the unit and the score), a column per method,
or is a dictionary of scikit-learn's `cross_val_score` or `cross_validate` by method. A unit is what
is paired: a subject or a fold.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.stats.labels import METRIC_STYLES
from afor.bench.store.files import read_content
from afor.bench.store.results import RunResult
from afor.bench.study.protocol import unknown_protocol
from afor.bench.study.roles import Role

# The roles that a column can have, each with the names that are recognised, best first.
RECOGNISED: Mapping[str, tuple[str, ...]] = {
    "method": ("method", "pipeline", "optimizer", "model", "algorithm", "classifier", "estimator",
               "network", "backbone"),
    "unit": ("subject", "unit", "participant", "person", "patient", "fold", "split"),
    "score": ("score", "test_score", "value"),
    "task": ("dataset", "data_set", "task"),
    "repetition": ("repetition", "repeat", "repetition", "seed"),
    "metric": ("metric", "scoring", "measure"),
}  # fmt: skip
ROLES = tuple(RECOGNISED)
SESSION = "session"  # rows of one subject that differ in it are averaged
FOLD_UNITS = ("fold", "split")  # units that are not people
# Other names of metrics, and the factor that makes theirs of the value.
ALIASES: Mapping[str, tuple[str, float]] = {
    "acc": ("accuracy", 1),
    "test_score": ("score", 1),
    "value": ("score", 1),
    "f1_weighted": ("weighted_f1", 1),
    "f1_macro": ("macro_f1", 1),
    "cohen_kappa": ("kappa", 1),
    "roc_auc": ("auroc", 1),
    "roc_auc_ovr": ("auroc", 1),
    "log_loss": ("nll", 1),
    "neg_log_loss": ("nll", -1),
    "neg_brier_score": ("brier", -1),
}
# Words in the names of metrics of which less is better.
ERRORS = re.compile(r"(^|_)(loss|error|errors|rmse|mse|mae|time|latency)($|_)")
NOT_METHODS = ("time", "samples", "samples_test", "n_classes", "channels", "n_sessions", "session")
MAX_FRACTION = 1.5  # larger values of a metric between 0 and 1 are percent


@dataclass(frozen=True)
class Scores:
    """The runs of a table, and what a reader must know of how it was read."""

    runs: list[RunResult]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Read:
    """The scores of a table as they were read."""

    scores: list["_Score"]
    note: str  # how it was read
    are_people: bool  # whether a unit is a person


@dataclass(frozen=True)
class _Score:
    """One score, with the names of its method, unit, task, repetition and session."""

    method: str
    unit: str
    task: str
    repetition: str
    session: str
    metric: str
    value: float
    row: str  # where it is, for messages

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.task, self.unit, self.repetition, self.session


def is_foreign(names: Sequence[str]) -> bool:
    """Tell whether a file with these columns is a table of scores, not one of `afor export`."""
    return bool(names) and not {"backbone", "method", "fold"} <= {*names}


def read_score_file(
    path: Path, columns: Mapping[str, str], score: str = "score", *, common: bool = False
) -> Scores:
    """Read a .csv, .json or .parquet file of scores.

    Args:
        path: The file.
        columns: The columns by their roles, as in `read_scores`.
        score: As in `read_scores`.
        common: As in `read_scores`.

    Raises:
        StoreError: The file cannot be read.
        ConfigError: As in `read_scores`.
    """
    content, row_name, first = read_content(path)
    return read_scores(
        content, columns, score, name=path.name, common=common, row_name=row_name, first=first
    )


def read_scores(
    content: Any,
    columns: Mapping[str, str] | None = None,
    score: str = "score",
    *,
    name: str = "the table",
    common: bool = False,
    row_name: str = "row",
    first: int = 1,
) -> Scores:
    """Read a table of scores as runs.

    Args:
        content: A data frame, a list of dictionaries, or a dictionary of scores by method: lists
            of scores, or what `cross_validate` returns.
        columns: Names of columns by their roles (`ROLES`); the others are recognised.
        score: The metric of scores that have no name but score, or of the column of scores that
            `columns` names.
        name: What messages call the table.
        common: Leave out units that some method lacks, and scores that are missing.
        row_name: What messages call a row.
        first: The number of the first row.

    Returns:
        A run per method, task, unit and repetition, with a value of each metric.

    Raises:
        ConfigError: No scores are recognised, or a row is incomplete, duplicated or not finite.

    Example:
        >>> read_scores({"lda": [0.5, 0.6], "svm": [0.7, 0.8]}).runs[0].metrics
        {'score': 0.5}
    """
    chosen = _check_columns(dict(columns or {}))
    if isinstance(content, Mapping):
        read = _from_dictionary(content, name)
    else:
        rows = _rows(content, name)
        located = [(row, f"{name}, {row_name} {number}") for number, row in enumerate(rows, first)]
        read = _from_rows(located, chosen, name, common=common)
    unnamed = {"score", *([_metric_name(chosen["score"])] if "score" in chosen else [])}
    if score != "score":
        scores = [replace(s, metric=score) if s.metric in unnamed else s for s in read.scores]
        read = replace(read, scores=scores)
    return _to_runs(read, name, common=common)


def _check_columns(columns: dict[str, str]) -> dict[str, str]:
    for role in columns:
        if role not in ROLES:
            hint = did_you_mean(role, ROLES)
            raise ConfigError(f"A column cannot be {role!r}.{hint} Accepted: {', '.join(ROLES)}.")
    return columns


def _rows(content: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a data frame or of a list of dictionaries."""
    if hasattr(content, "to_dicts"):  # polars
        content = content.to_dicts()
    elif hasattr(content, "reset_index") and hasattr(content, "columns"):  # pandas
        numbers = list(range(len(content)))
        has_index = any(content.index.names) or list(content.index) != numbers
        content = (content.reset_index() if has_index else content).to_dict("records")
    if not isinstance(content, list) or not all(isinstance(row, Mapping) for row in content):
        raise ConfigError(
            f"{name}: expected a data frame, a list of dictionaries, or a dictionary with the "
            "scores of each method."
        )
    if not content:
        raise ConfigError(f"{name} has no rows.")
    return [{str(key): value for key, value in row.items()} for row in content]


def _from_dictionary(content: Mapping[Any, Any], name: str) -> _Read:
    """Read the scores of each method: a list by fold, or a dictionary of `cross_validate`."""
    if "test_score" in content or "fit_time" in content:
        raise ConfigError(
            f"{name}: this is the cross-validation of one method. Give those of two or more by "
            'their names: {"lda": cross_validate(...), "svm": cross_validate(...)}.'
        )
    scores = []
    for method, value in content.items():
        by_metric = {"score": value}
        if isinstance(value, Mapping):
            by_metric = {
                str(key).removeprefix("test_") if key != "test_score" else "score": found
                for key, found in value.items()
                if str(key).startswith("test_")
            }
        for metric, values in by_metric.items():
            listed = values.tolist() if hasattr(values, "tolist") else values
            if not isinstance(listed, list | tuple) or not by_metric:
                raise ConfigError(
                    f"{name}, {method!r}: expected a list of scores, one per fold, or what "
                    "cross_validate returns."
                )
            for fold, score in enumerate(listed):
                row = f"{name}, {method!r}, fold {fold}"
                named, number = _named_score(metric, score, row)
                scores.append(_Score(str(method), f"{fold}", "", "", "", named, number, row))
    if len({score.method for score in scores}) < 2:
        raise ConfigError(f"{name}: expected the scores of two or more methods by their names.")
    note = (
        f"{name} was read as one cross-validation per method, fold by fold. Its folds share "
        "training data, which makes p-values too small: repeat on other data before relying on "
        "one near 0.05."
    )
    return _Read(scores, note, are_people=False)


def _from_rows(
    rows: Sequence[tuple[dict[str, Any], str]],
    columns: Mapping[str, str],
    name: str,
    *,
    common: bool,
) -> _Read:
    """Read rows: one score or a few in a row, or a column per method."""
    present = list(dict.fromkeys(key for row, _ in rows for key in row))
    roles = _recognise(columns, present, name)
    if "method" in roles:
        return _from_long(rows, roles, present, name, common=common)
    if "score" in columns:
        raise ConfigError(_missing_column("method", present, name))
    return _from_wide(rows, roles, present, name, common=common)


def _recognise(columns: Mapping[str, str], present: Sequence[str], name: str) -> dict[str, str]:
    """Return the columns by their roles: those that are given, and those with known names."""
    for column in columns.values():
        if column not in present:
            hint = did_you_mean(column, present)
            raise ConfigError(
                f"{name} has no column {column!r}.{hint} Columns: {', '.join(present)}."
            )
    by_lower = {column.lower().replace(" ", "_"): column for column in reversed(present)}
    roles = dict(columns)
    for role, names in RECOGNISED.items():
        free = [by_lower[n] for n in names if n in by_lower and by_lower[n] not in roles.values()]
        if role not in roles and free:
            roles[role] = free[0]
    return roles


def _missing_column(role: str, present: Sequence[str], name: str) -> str:
    known = ", ".join(RECOGNISED[role])
    return (
        f"{name}: no column is recognised as the {role} ({known}). Name it with --column "
        f"{role}=NAME. Columns: {', '.join(present)}."
    )


def _from_long(
    rows: Sequence[tuple[dict[str, Any], str]],
    roles: Mapping[str, str],
    present: Sequence[str],
    name: str,
    *,
    common: bool,
) -> _Read:
    """Read a row per method and unit."""
    if "unit" not in roles:
        raise ConfigError(_missing_column("unit", present, name))
    if "score" in roles:
        values = {roles["score"]: roles["score"]}
    else:
        values = {c: c for c in present if _metric_name(c) in METRIC_STYLES}
    if not values:
        raise ConfigError(_missing_column("score", present, name))
    sessions = SESSION in present and SESSION not in roles.values()
    scores = []
    for row, location in rows:
        names = {role: _name(row, column, location) for role, column in roles.items()
                 if role not in ("score", "metric")}  # fmt: skip
        for column in values:
            metric = _name(row, roles["metric"], location) if "metric" in roles else column
            if common and _is_missing(row.get(column)):
                continue
            named, number = _named_score(metric, row.get(column), f"{location}, {column}")
            scores.append(
                _Score(
                    names["method"],
                    names["unit"],
                    names.get("task", ""),
                    names.get("repetition", ""),
                    _name(row, SESSION, location) if sessions else "",
                    named,
                    number,
                    location,
                )
            )
    read_as = ", ".join(f"{role} = {column}" for role, column in roles.items() if role != "score")
    note = f"{name} was read with {read_as}, score = {', '.join(values)}."
    return _Read(scores, note, are_people=roles["unit"].lower() not in FOLD_UNITS)


def _from_wide(
    rows: Sequence[tuple[dict[str, Any], str]],
    roles: Mapping[str, str],
    present: Sequence[str],
    name: str,
    *,
    common: bool,
) -> _Read:
    """Read a column of scores per method; a row is a unit."""
    roles = {role: column for role, column in roles.items() if role not in ("score", "metric")}
    if "unit" not in roles and present[0] in ("", "index", "Unnamed: 0"):
        roles["unit"] = present[0]
    others = [c for c in present if c not in roles.values() and c.lower() not in NOT_METHODS]
    if "unit" not in roles and others and not _is_numeric(rows, others[0]):
        roles["unit"] = others.pop(0)
    methods = [column for column in others if _is_numeric(rows, column)]
    if len(methods) < 2:
        raise ConfigError(_missing_column("method", present, name))
    scores = []
    for number, (row, location) in enumerate(rows):
        names = {role: _name(row, column, location) for role, column in roles.items()}
        for method in methods:
            if common and _is_missing(row.get(method)):
                continue
            _, value = _named_score("score", row.get(method), f"{location}, {method}")
            place = (names.get("unit", str(number)), names.get("task", ""))
            repetition = names.get("repetition", "")
            scores.append(_Score(method, *place, repetition, "", "score", value, location))
    unit = f"unit = {roles['unit']}" if roles.get("unit") else "a row per unit"
    note = f"{name} was read with a column per method ({', '.join(methods)}), {unit}."
    is_named = roles.get("unit", "fold").lower() not in FOLD_UNITS
    return _Read(scores, note, are_people=is_named)


def _is_numeric(rows: Sequence[tuple[dict[str, Any], str]], column: str) -> bool:
    """Tell whether a column has numbers; missing values are allowed."""
    values = [row.get(column) for row, _ in rows]
    return any(not _is_missing(v) for v in values) and all(
        _is_missing(v) or _number(v) is not None for v in values
    )


def _is_missing(value: Any) -> bool:
    number = _number(value)
    return value is None or value == "" or (number is not None and not math.isfinite(number))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _name(row: Mapping[str, Any], column: str, location: str) -> str:
    value = row.get(column)
    if value is None or value == "" or value != value:  # NaN
        raise ConfigError(f"{location}: {column} is empty. Fill it in, or remove the row.")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a number that a missing value elsewhere made a float
    return str(value)


def _metric_name(name: str) -> str:
    plain = name.lower().replace(" ", "_").replace("-", "_")
    return ALIASES.get(plain, (plain, 1))[0]


def _named_score(metric: str, value: Any, location: str) -> tuple[str, float]:
    """Return the metric by its name here, and the score as a finite number."""
    number = _number(value)
    if number is None or not math.isfinite(number):
        shown = "missing" if value is None or value == "" else str(value)[:60]
        if _number(str(value).replace(",", ".")) is not None:
            advice = "Write a decimal point in place of the comma."
        else:
            advice = "Remove the row, or leave out its unit for all methods with --common."
        raise ConfigError(f"{location}: the score is {shown}, not a finite number. {advice}")
    named = _metric_name(metric)
    if ERRORS.search(named) and named not in METRIC_STYLES:
        raise ConfigError(
            f"{location}: less of {metric!r} seems to be better. Give its negative, as "
            "scikit-learn's neg_ scores are: more of a metric that is not known here is better."
        )
    plain = metric.lower().replace(" ", "_").replace("-", "_")
    return named, ALIASES.get(plain, ("", 1))[1] * number


def _to_runs(read: _Read, name: str, *, common: bool) -> Scores:
    """Average sessions, check that nothing is twice or unpaired, and number units."""
    notes = [read.note]
    scores = _as_fractions(read.scores, notes)
    scores = _paired(_single(scores, notes), notes, common=common)
    grouped: dict[tuple[str, str, str, str], dict[str, list[float]]] = {}
    for score in scores:
        key = (score.task, score.method, score.unit, score.repetition)
        grouped.setdefault(key, {}).setdefault(score.metric, []).append(score.value)
    if any(len(values) > 1 for values in (v for g in grouped.values() for v in g.values())):
        notes.append("Scores of several sessions are averaged per subject.")
    units: dict[str, list[str]] = {}
    for task, _, unit, _ in grouped:
        units.setdefault(task, []).append(unit)
    folds = {
        (task, unit): fold
        for task, names in units.items()
        for fold, unit in enumerate(sorted(set(names), key=_natural))
    }
    repetitions = sorted({key[3] for key in grouped}, key=_natural)
    runs = [
        RunResult(
            *("", task or Path(name).stem, "", method, folds[task, unit]),
            repetition=repetitions.index(repetition),
            test_subjects=(unit,) if read.are_people else (),
            metrics={metric: math.fsum(v) / len(v) for metric, v in values.items()},
            majority_accuracy=math.nan,
            classes=0,
            test_windows=0,
            role=Role(),
            protocol=unknown_protocol(name),
        )
        for (task, method, unit, repetition), values in grouped.items()
    ]
    return Scores(runs, tuple(notes))


def _as_fractions(scores: list[_Score], notes: list[str]) -> list[_Score]:
    """Divide scores in percent by 100, as everywhere here; tables print percent."""
    percent = {
        score.metric
        for score in scores
        if abs(score.value) > MAX_FRACTION
        and (score.metric not in METRIC_STYLES or METRIC_STYLES[score.metric].unit == "%")
    }
    if percent:
        notes.append(f"Values of {', '.join(sorted(percent))} are above 1 and taken as percent.")
    return [replace(s, value=s.value / 100) if s.metric in percent else s for s in scores]


def _single(scores: Iterable[_Score], notes: list[str]) -> list[_Score]:
    """Refuse two scores of one method, unit, task, repetition, session and metric.

    Rows that are the same throughout count once: MOABB's frames repeat those of earlier data sets.
    """
    seen: dict[tuple[str, ...], _Score] = {}
    repeated = []
    for score in scores:
        first = seen.setdefault((score.method, score.metric, *score.place), score)
        if first is not score and first.value != score.value:
            raise ConfigError(
                f"{score.row}: a second score of {score.method!r} for unit {score.unit!r}; the "
                f"first is in {first.row}. Name the column that tells them apart with "
                "--column repetition=NAME or task=NAME, or remove one."
            )
        if first is not score:
            repeated.append((score, first))
    if repeated:
        score, first = repeated[0]
        others = f" and {len(repeated) - 1} more repeat others" if len(repeated) > 1 else ""
        notes.append(f"{score.row} repeats {first.row}{others}; such rows count once.")
    return list(seen.values())


def _paired(scores: list[_Score], notes: list[str], *, common: bool) -> list[_Score]:
    """Say which scores have no counterpart; leave their units out if that is asked for."""
    methods: dict[str, None] = dict.fromkeys(score.method for score in scores)
    by_task: dict[str, set[str]] = {}
    for score in scores:
        by_task.setdefault(score.task, set()).add(score.method)
    have: dict[tuple[str, ...], set[str]] = {}
    for score in scores:
        have.setdefault((score.metric, *score.place), set()).add(score.method)
    alone = [s for s in scores if have[(s.metric, *s.place)] != by_task[s.task]]
    if not alone:
        return scores
    first = alone[0]
    lacking = [m for m in methods if m in by_task[first.task]
               and m not in have[(first.metric, *first.place)]]  # fmt: skip
    others = f" and {len(alone) - 1} more rows" if len(alone) > 1 else ""
    sentence = f"{first.row}{others}: unit {first.unit!r} has no score of {', '.join(lacking)}"
    if not common and any(score.session for score in alone):
        raise ConfigError(
            f"{sentence} in session {first.session!r}. --common leaves such units out."
        )
    if not common:
        notes.append(f"{sentence}. --common leaves such units out.")
        return scores
    left_out = {(s.task, s.unit) for s in alone}
    notes.append(f"{sentence}: {len(left_out)} units are left out for all methods.")
    kept = [score for score in scores if (score.task, score.unit) not in left_out]
    if not kept:
        raise ConfigError(f"{sentence}, and no unit has scores of all methods.")
    return kept


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers within texts by their values."""
    parts = re.split(r"(\d+)", text)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts if p]
