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
    "repetition": ("repetition", "repeat", "seed"),
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
class _Score:
    """One score, with the names of its method, unit, task, repetition and session."""

    metric: str
    value: float
    row: str  # where it is, for messages
    method: str
    unit: str
    task: str = ""
    repetition: str = ""
    session: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.task, self.unit, self.repetition, self.session


_Located = tuple[dict[str, Any], str]  # a row, and where it is
_Read = tuple[list[_Score], str, bool]  # the scores, how they were read, whether units are people


def is_foreign(names: Sequence[str]) -> bool:
    """Tell whether a file with these columns is a table of scores, not one of `afor export`."""
    return bool(names) and not {"backbone", "method", "fold"} <= {*names}


def read_scores(
    content: Any,
    columns: Mapping[str, str] | None = None,
    score: str = "score",
    *,
    common: bool = False,
) -> Scores:
    """Read a table of scores as runs.

    Args:
        content: A .csv, .json or .parquet file, a data frame, a list of dictionaries, or a
            dictionary of scores by method: lists of scores, or what `cross_validate` returns.
        columns: Names of columns by their roles (`ROLES`); the others are recognised.
        score: The metric of scores that have no name but score, or of the column of scores that
            `columns` names.
        common: Leave out units that some method lacks, and scores that are missing.

    Returns:
        A run per method, task, unit and repetition, with a value of each metric.

    Raises:
        StoreError: The file cannot be read.
        ConfigError: No scores are recognised, or a row is incomplete, duplicated or not finite.

    Example:
        >>> read_scores({"lda": [0.5, 0.6], "svm": [0.7, 0.8]}).runs[0].metrics
        {'score': 0.5}
    """
    chosen = dict(columns or {})
    for role in chosen:
        if role not in ROLES:
            hint = did_you_mean(role, ROLES)
            raise ConfigError(f"A column cannot be {role!r}.{hint} Accepted: {', '.join(ROLES)}.")
    name, row_name, first = "the table", "row", 1
    if isinstance(content, Path):
        name = content.name
        content, row_name, first = read_content(content)
    if isinstance(content, Mapping):
        scores, note, are_people = _from_dictionary(content, name)
    else:
        rows = enumerate(_rows(content, name), first)
        located = [(row, f"{name}, {row_name} {number}") for number, row in rows]
        scores, note, are_people = _from_rows(located, chosen, name, common=common)
    unnamed = {"score", *([_known(chosen["score"])[0]] if "score" in chosen else [])}
    if score != "score":
        scores = [replace(s, metric=score) if s.metric in unnamed else s for s in scores]
        note += _unknown_metric(score)
    notes = [note]
    scores = _paired(_single(_as_fractions(scores, notes), notes), notes, common=common)
    return Scores(_runs(scores, notes, name, are_people=are_people), tuple(notes))


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
                scores.append(_score(metric, score, row, row, method=str(method), unit=str(fold)))
    if len({score.method for score in scores}) < 2:
        raise ConfigError(f"{name}: expected the scores of two or more methods by their names.")
    note = (
        f"{name} was read as one cross-validation per method, fold by fold. Its folds share "
        "training data, which makes p-values too small: repeat on other data before relying on "
        "one near 0.05."
    )
    return scores, note, False


def _from_rows(
    rows: Sequence[_Located],
    columns: Mapping[str, str],
    name: str,
    *,
    common: bool,
) -> _Read:
    """Read rows: one score or a few in a row, or a column of scores per method."""
    present = list(dict.fromkeys(key for row, _ in rows for key in row))
    roles = _recognise(columns, present, name)
    is_wide = "method" not in roles
    if is_wide and "score" in roles:  # a row per score: no column of it is a method
        raise ConfigError(_missing_column("method", present, name))
    if is_wide:
        values, note = _wide_columns(rows, roles, present, name)
    else:
        values, note = _long_columns(roles, present, name)
    metric = roles.pop("metric", None)
    roles.pop("score", None)
    if not is_wide and SESSION in present and SESSION not in roles.values():
        roles[SESSION] = SESSION
    scores = []
    for number, (row, location) in enumerate(rows):
        names = {role: _name(row, column, location) for role, column in roles.items()}
        names.setdefault("unit", str(number))
        for column in values:
            if common and _is_missing(row.get(column)):
                continue
            found = "score" if is_wide else _name(row, metric, location) if metric else column
            where = f"{location}, {column}"
            place = {**names, "method": names.get("method", column)}
            scores.append(_score(found, row.get(column), where, location, **place))
    return scores, note, roles.get("unit", "fold").lower() not in FOLD_UNITS


def _long_columns(
    roles: Mapping[str, str], present: Sequence[str], name: str
) -> tuple[list[str], str]:
    """Return the columns of scores of a table with a row per method and unit, and what is said."""
    if "unit" not in roles:
        raise ConfigError(_missing_column("unit", present, name))
    values = [c for c in present if _known(c)[0] in METRIC_STYLES]
    if "score" in roles:
        values = [roles["score"]]
    if not values:
        raise ConfigError(_missing_column("score", present, name))
    read_as = ", ".join(f"{role} = {column}" for role, column in roles.items() if role != "score")
    return values, f"{name} was read with {read_as}, score = {', '.join(values)}."


def _wide_columns(
    rows: Sequence[_Located], roles: dict[str, str], present: Sequence[str], name: str
) -> tuple[list[str], str]:
    """Return the methods of a table with a column each, and what is said; find the unit."""
    for role in ("score", "metric"):
        roles.pop(role, None)
    if "unit" not in roles and present[0] in ("", "index", "Unnamed: 0"):
        roles["unit"] = present[0]
    others = [c for c in present if c not in roles.values() and c.lower() not in NOT_METHODS]
    if "unit" not in roles and others and not _is_numeric(rows, others[0]):
        roles["unit"] = others.pop(0)
    methods = [column for column in others if _is_numeric(rows, column)]
    if len(methods) < 2:
        raise ConfigError(_missing_column("method", present, name))
    unit = f"unit = {roles['unit']}" if roles.get("unit") else "a row per unit"
    return methods, f"{name} was read with a column per method ({', '.join(methods)}), {unit}."


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


def _is_numeric(rows: Sequence[_Located], column: str) -> bool:
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


def _known(metric: str) -> tuple[str, float]:
    """Return the name of a metric here, and the factor that makes its value of theirs."""
    plain = metric.lower().replace(" ", "_").replace("-", "_")
    return ALIASES.get(plain, (plain, 1))


def _unknown_metric(name: str) -> str:
    """Say what is not known of a metric that is not listed, as a sentence after another."""
    if name in METRIC_STYLES:
        return ""
    hint = did_you_mean(name, METRIC_STYLES)
    return (
        f" {name!r} is not a metric that is known here: more of it is taken as better, and its "
        f"margin and level of guessing are not known.{hint}"
    )


def _score(metric: str, value: Any, where: str, row: str, **names: str) -> _Score:
    """Return a score that is a finite number, under the name that its metric has here."""
    number = _number(value)
    if number is None or not math.isfinite(number):
        shown = "missing" if value is None or value == "" else str(value)[:60]
        if number is None and _number(str(value).replace(",", ".")) is not None:
            advice = "Write a decimal point in place of the comma."
        else:
            advice = "Remove the row, or leave out its unit for all methods with --common."
        raise ConfigError(f"{where}: the score is {shown}, not a finite number. {advice}")
    named, factor = _known(metric)
    if ERRORS.search(named) and named not in METRIC_STYLES:
        raise ConfigError(
            f"{where}: less of {metric!r} seems to be better. Give its negative, as "
            "scikit-learn's neg_ scores are: more of a metric that is not known here is better."
        )
    return _Score(named, factor * number, row, **names)


def _runs(
    scores: Sequence[_Score], notes: list[str], name: str, *, are_people: bool
) -> list[RunResult]:
    """Average sessions, and number units and repetitions."""
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
    return [
        RunResult(
            *("", task or Path(name).stem, "", method, folds[task, unit]),
            repetition=repetitions.index(repetition),
            test_subjects=(unit,) if are_people else (),
            metrics={metric: math.fsum(v) / len(v) for metric, v in values.items()},
            majority_accuracy=math.nan,
            classes=0,
            test_windows=0,
            role=Role(),
            protocol=unknown_protocol(name),
        )
        for (task, method, unit, repetition), values in grouped.items()
    ]


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
