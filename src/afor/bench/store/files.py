"""Write and read results as CSV, JSON or Parquet: the one format outside a store.

A file holds one flat row per run. `afor export` fills every column and writes a row with a status
for each planned run; other files need the columns `RUN_FIELDS` and the metrics. JSON is
`{"runs": [row, ...]}`, with a list `expected` where rows have no status.
"""

import csv
import importlib
import io
import json
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.common.files import exists, write_output
from afor.bench.common.parameter_checks import show_value
from afor.bench.common.text import escape_cell, unescape_cell, without_nan
from afor.bench.store.database import Store, StoredRun, open_store, run_result
from afor.bench.store.results import RunResult
from afor.bench.store.tables import LinearFits
from afor.bench.study.planned_runs import RUN_FIELDS, ExpectedRuns, count_expected
from afor.bench.study.protocol import (
    DATA_KIND,
    UNKNOWN,
    RunProtocol,
    protocol_text,
    read_protocol,
    setting,
    unknown_protocol,
)
from afor.bench.study.roles import Role, role_from_name
from afor.bench.study.schema import parse_study
from afor.bench.training.record import (
    METRICS,
    PROBABILITY_METRICS,
    PROTOCOL_METRICS,
    FinishedRun,
)

LINEAR = tuple(f"linear_{name}" for name in METRICS)  # of the linear model on the same split
_Index = Annotated[int, Field(ge=0, lt=10**9)]
_Flag = Annotated[int, Field(ge=0, le=1)]
_Counts = Annotated[str, Field(pattern=r"^\d{1,12}(;\d{1,12})+$")]
# The columns of `afor export` in their order, and what the reader accepts in them.
ACCEPTED: Mapping[str, Any] = {
    **dict.fromkeys(("study", "dataset", "backbone", "method"), str),
    **dict.fromkeys(("fold", "repetition"), _Index),
    "lr": float,
    **dict.fromkeys(("status", "reason", "finished_at"), str),
    "elapsed_s": Annotated[float, Field(ge=0)],
    "test_subjects": str | tuple[str, ...],
    **dict.fromkeys(METRICS, float),
    **dict.fromkeys((f"trial_{name}" for name in METRICS), float),
    **dict.fromkeys(PROTOCOL_METRICS, float),
    "majority_accuracy": float,
    **dict.fromkeys(("classes", "test_windows"), _Index),
    **dict.fromkeys(("train_counts", "test_counts"), _Counts),
    **dict.fromkeys(("epochs", "best_epoch"), int),
    "best_validation_accuracy": float,
    **dict.fromkeys(("steps", "parameters"), int),
    "device": str,
    "is_search": _Flag,
    "replicate_of": str,
    "seed": Annotated[int, Field(ge=0, lt=2**63)],
    "varied": Annotated[str, Field(pattern=r"^\w+=[0-9.e+-]+$")],
    "control": _Flag,
    "data_kind": str,
    "protocol": str,
    **dict.fromkeys(LINEAR, float),
    "key": str,
}
# The type of each column without its limits. Typed formats keep it even if all values are missing,
# so that files of two stores can be concatenated. A list of subjects is written as text.
COLUMNS = {name: (get_args(accepted) or (accepted,))[0] for name, accepted in ACCEPTED.items()}
# From CSV, all values are text. Other columns are kept: their numbers are metrics.
_FIELDS: dict[str, Any] = {name: (accepted | None, None) for name, accepted in ACCEPTED.items()}
_CheckedRow: Any = create_model(
    "_CheckedRow",
    __config__=ConfigDict(extra="allow", coerce_numbers_to_str=True),
    **_FIELDS,
)
# Columns that are not metrics. Numbers in any other column are metrics.
NO_METRICS = {*COLUMNS} - {*METRICS, *PROTOCOL_METRICS}
Row = dict[str, Any]


def load_results(
    paths: Iterable[Path], studies: Sequence[str] = ()
) -> tuple[list[RunResult], list[ExpectedRuns]]:
    """Read the finished runs of stores and files.

    Args:
        paths: Stores (``.db``), or ``.csv``, ``.json`` or ``.parquet`` files of results.
        studies: Names of the studies to read; empty reads all.

    Returns:
        The finished runs, and how many runs the studies planned.

    Raises:
        StoreError: A path cannot be read, or there is no finished run.

    Example:
        >>> import tempfile
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> path = Path(tempfile.mkdtemp()) / "results.json"
        >>> write_results(path, *simulate_results({"adam": 0.0}, datasets=["bci2a"]))
        >>> results, expected = load_results([path])
        >>> len(results), expected[0].folds, expected[0].repetitions
        (45, 9, 5)
    """
    results: list[RunResult] = []
    expected: list[ExpectedRuns] = []
    for path in paths:
        if not exists(path):
            raise StoreError(
                f"{path} does not exist. Give the store of a study (`afor run` says where it is), "
                "or a .csv, .json or .parquet file of results."
            )
        finished, planned = (_read_store if is_store(path) else _read_file)(path, studies)
        results += finished
        expected += planned
    if not results:
        names = ", ".join(str(path) for path in paths)
        raise StoreError(f"{names}: no finished run yet. Start or go on with `afor run`.")
    return results, expected


def read_rows(path: Path) -> list[Row]:
    """Return the rows that `afor export` wrote to a file, with all their columns and types.

    There is one per planned run; values that a run does not have are None.

    Raises:
        StoreError: The file cannot be read, or is not one of `afor export`.
    """
    if not exists(path):
        raise StoreError(f"{path} does not exist.")
    rows = []
    for number, content in enumerate(_content(path)[0], 1):
        location = f"{path}, run {number}"
        row = _checked(content, location)
        unknown = [name for name in row if name not in COLUMNS]
        if unknown or not row.get("key"):
            fault = f"{', '.join(unknown)} unknown" if unknown else "key missing"
            raise StoreError(f"{location}: {fault}. Expected a file that `afor export` wrote.")
        rows.append(row)
    return rows


def _content(path: Path) -> tuple[list[Any], list[Any]]:
    """Return the rows of a file, and the expected runs that JSON may list beside them."""
    content, _, _ = read_content(path, "results")
    if path.suffix.lower() == ".csv":
        return [{unescape_cell(k): unescape_cell(v) for k, v in row.items()} for row in content], []
    document = content if isinstance(content, dict) else {"runs": content}
    rows, planned = document.get("runs"), document.get("expected", [])
    if not isinstance(rows, list) or not isinstance(planned, list):
        raise StoreError(f'{path}: expected {{"runs": [...], "expected": [...]}}.')
    return rows, planned


def read_content(path: Path, holding: str = "scores") -> tuple[Any, str, int]:
    """Return what a file holds that may be no file of `afor export`.

    Returns:
        The rows as dictionaries, or the document of a JSON file; what messages call a row; the
        number of the first row.

    Raises:
        StoreError: The file cannot be read; the message calls its content as `holding` says.
    """
    file_format, row_name, first = _FILES[path.suffix.lower()]
    try:
        if file_format == "JSON":
            return json.loads(path.read_text("utf-8-sig")), row_name, first
        if file_format == "Parquet":
            return _read_parquet(path), row_name, first
        text = path.read_text("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
        return [{k: v for k, v in row.items() if k is not None} for row in reader], row_name, first
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise StoreError(f"{path} is not a {file_format} file of {holding}: {error}.") from None


def column_names(path: Path) -> list[str]:
    """Return the columns of a file of results; empty if it has none, or cannot be read as one."""
    try:
        content, _, _ = read_content(path)
    except StoreError:
        return []
    if isinstance(content, dict):
        return [] if "runs" in content else [str(name) for name in content]
    rows = content if isinstance(content, list) else []
    return [str(name) for name in rows[0]] if rows and isinstance(rows[0], dict) else []


def _delimiter(text: str) -> str:
    """Return what separates the columns of the first line: a comma, semicolon or tab."""
    header = text.partition("\n")[0]
    return max(",;\t", key=header.count)


def _read_parquet(path: Path) -> list[Any]:
    arrow, parquet = _import_arrow()
    try:
        rows: list[Any] = parquet.read_table(path).to_pylist()
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from None
    return rows


# By suffix: the name of the format, what messages call a row, the first row's number.
_FILES = {
    ".csv": ("CSV", "line", 2),
    ".json": ("JSON", "run", 1),
    ".parquet": ("Parquet", "row", 1),
}


def export_rows(store: Store) -> list[Row]:
    """Return one row per planned run; values that a run does not have are None."""
    fits = store.linear_fits()
    return [_exported(stored, store.finished(stored), fits) for stored in store.runs()]


def _exported(stored: StoredRun, run: FinishedRun | None, fits: LinearFits) -> Row:
    row: Row = {
        **dict.fromkeys(COLUMNS),
        **{name: value for name, value in vars(stored).items() if name in COLUMNS},
        "lr": stored.rate,
        "elapsed_s": stored.elapsed_s if stored.finished_at else None,
        **_role_columns(stored.role or role_from_name(stored.method)),
        **_protocol_columns(read_protocol(stored.protocol)),
    }
    if run:
        row["test_subjects"] = join_subjects(run.spec["split"]["test"])
    if run and (record := run.record):
        row |= {name: getattr(record, name) for name in ("steps", "parameters", "device")}
        row |= {"epochs": len(record.history), "best_epoch": record.best_epoch}
        if record.best_epoch is not None:
            best = record.history[record.best_epoch]
            row["best_validation_accuracy"] = best.validation_accuracy
        for name in METRICS if record.test_trials else ():
            row[f"trial_{name}"] = getattr(record.test_trials, name)
    if run and run.status == "done":
        row |= _result_row(run_result(stored, run, fits))
    return row


def result_rows(results: Iterable[RunResult]) -> list[Row]:
    """Return rows of finished runs, without a status."""
    runs = list(results)
    has_roles = any(run.role for run in runs)
    has_protocols = any(run.protocol and UNKNOWN not in run.protocol for run in runs)
    rows = []
    for run in runs:
        row = _result_row(run)
        if has_roles:
            row |= _role_columns(run.role or role_from_name(run.method))
        if has_protocols:
            row |= _protocol_columns(run.protocol)
        rows.append({**row, "key": run.key})
    return rows


def _result_row(run: RunResult) -> Row:
    """Return the columns of a finished run that it has, without those of role and protocol."""
    known = ("study", *RUN_FIELDS, "majority_accuracy", "classes", "test_windows", "elapsed_s")
    row = {name: getattr(run, name) for name in known if getattr(run, name) is not None}
    row["test_subjects"] = join_subjects(run.test_subjects)
    if run.test_counts:
        row["train_counts"] = ";".join(map(str, run.train_counts))
        row["test_counts"] = ";".join(map(str, run.test_counts))
    linear = {f"linear_{name}": value for name, value in run.linear.items()}
    return {**row, **run.metrics, **linear}


def _role_columns(role: Role) -> Row:
    varied = f"{role.varied[0]}={role.varied[1]!r}" if role.varied else None
    return {
        "replicate_of": role.replicate_of or None,
        "seed": role.seed,
        "varied": varied,
        "control": int(role.control),
    }


def _protocol_columns(protocol: RunProtocol) -> Row:
    """Return the columns that hold a protocol; they are empty if it is not known."""
    if UNKNOWN in protocol:
        return {DATA_KIND: None, "protocol": None}
    return {DATA_KIND: setting(protocol, DATA_KIND), "protocol": protocol_text(protocol)}


def write_export(rows: Sequence[Row], target: Path, expected: Sequence[ExpectedRuns] = ()) -> None:
    """Write rows as .csv, .json or .parquet; raise ConfigError if that is not possible."""
    check_suffix(target)
    if target.suffix.lower() == ".parquet":
        write_output(target, _to_parquet(rows))
    else:
        is_csv = target.suffix.lower() == ".csv"
        write_output(target, to_csv(rows) if is_csv else to_json(rows, expected))


def write_results(
    path: Path, results: Sequence[RunResult], expected: Sequence[ExpectedRuns]
) -> None:
    """Write a file that `load_results` reads; .json alone holds how many runs are expected."""
    write_export(result_rows(results), path, expected)


def results_csv(results: Sequence[RunResult]) -> str:
    """Return CSV with one line per run and one column per metric, floats with all digits."""
    return to_csv(result_rows(results))


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV; floats have all digits, so that they are read back exactly."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    if rows:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(escape_cell, names))
        for row in rows:
            values = (row.get(name) for name in names)
            writer.writerow("" if value is None else escape_cell(value) for value in values)
    return text.getvalue()


def to_json(rows: Sequence[Row], expected: Sequence[ExpectedRuns] = ()) -> str:
    """Return the rows as JSON; values that are not finite become null."""
    content: dict[str, Any] = {"runs": rows}
    if expected:
        content["expected"] = [asdict(runs) for runs in expected]
    return json.dumps(without_nan(content), indent=1, allow_nan=False) + "\n"


def check_suffix(target: Path) -> None:
    """Raise ConfigError unless a file of results can have this name."""
    if target.suffix.lower() not in _FILES:
        raise ConfigError(f"{target}: the name must end in .csv, .json or .parquet.")


def join_subjects(subjects: Iterable[str]) -> str:
    r"""Join subjects with semicolons; a backslash escapes separators within a name.

    >>> join_subjects(["s01", "anna b"])
    's01;anna\\ b'
    """
    return ";".join(re.sub(r"([\\;\s])", r"\\\1", name) for name in subjects)


def split_subjects(text: str) -> tuple[str, ...]:
    r"""Split what `join_subjects` joined.

    >>> split_subjects(join_subjects(["s01", "anna b"]))
    ('s01', 'anna b')
    """
    names = re.findall(r"(?:\\.|[^\\;])+", text, re.DOTALL)
    return tuple(re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL) for name in names)


def is_store(path: Path) -> bool:
    """Tell whether a path is read as a store, not as a file of results."""
    return path.suffix.lower() not in _FILES


def load_studies(paths: Iterable[Path], studies: Sequence[str] = ()) -> dict[str, str]:
    """Return the TOML of each study in these stores."""
    tomls: dict[str, str] = {}
    for path in paths:
        with open_store(path) as store:
            tomls |= store.studies()
    return {name: toml for name, toml in tomls.items() if not studies or name in studies}


def stated_margins(
    tomls: Mapping[str, str], *, except_for: Container[str] = ()
) -> dict[str, float]:
    """Return the margins of equivalence that studies state, by metric, as printed.

    They are in points, or a number for kappa. Raises ConfigError if two studies state different
    margins for a metric, unless it is in `except_for`.
    """
    margins: dict[str, float] = {}
    for name, toml in tomls.items():
        try:
            stated = parse_study(toml).margins
        except ConfigError:  # written by another version
            continue
        for metric, margin in stated.items():
            if metric not in except_for and margins.setdefault(metric, margin) != margin:
                raise ConfigError(
                    f"The studies state two margins of {metric}: {margins[metric]:g} and, in "
                    f"{name}, {margin:g}. Choose one study with --study, or the margin with "
                    f"--margin {metric}={margin:g}."
                )
    return margins


def _read_store(path: Path, studies: Sequence[str]) -> tuple[list[RunResult], list[ExpectedRuns]]:
    results: list[RunResult] = []
    expected: list[ExpectedRuns] = []
    with open_store(path) as store:
        present = store.studies()
        if studies and not any(name in present for name in studies):
            raise ConfigError(
                f"{path}: no study is called {', '.join(studies)}. "
                f"Studies here: {', '.join(present) or 'none'}."
            )
        selected: list[str | None] = [name for name in studies if name in present]
        for study in selected or [None]:
            results += store.results(study)
            expected += store.expected(study)
    return results, expected


def _read_file(path: Path, studies: Sequence[str]) -> tuple[list[RunResult], list[ExpectedRuns]]:
    """Return the runs of the named studies, or of all.

    The column `status` of `afor export` separates finished runs from planned ones. Without it, all
    runs are finished; missing ones are known only from the list `expected`, which has no study.
    """
    _, row_name, first = _FILES[path.suffix.lower()]
    rows, listed = _content(path)
    present: dict[str, None] = {}  # the studies of the file, in its order
    selected = []
    for number, content in enumerate(rows, first):
        row = _checked(content, f"{path}, {row_name} {number}")
        result = _read_result(row, path.name)
        present[result.study] = None
        if not studies or result.study in studies:
            selected.append((row, result))
    if studies and not any(name in present for name in studies):
        raise ConfigError(
            f"{path}: no run belongs to {', '.join(studies)}. "
            f"Studies here: {', '.join(present) or 'none'}."
        )
    # As in a store, a learning rate search counts only if there is nothing else.
    counted = [pair for pair in selected if not pair[0].get("is_search")] or selected
    results = [result for row, result in counted if row.get("status") in (None, "done")]
    expected = count_expected(result for row, result in counted if row.get("status") is not None)
    try:
        return results, expected + [_EXPECTED.validate_python(row) for row in listed]
    except ValidationError as error:
        raise StoreError(f'{path}, "expected": {_first_fault(error)}.') from None


_EXPECTED = TypeAdapter(ExpectedRuns)


def _checked(content: object, location: str) -> Row:
    """Return the values of a row that a file gives, each with the type of its column."""
    if not isinstance(content, dict):
        raise StoreError(f"{location}: expected an object with the fields of a run.")
    given = {str(name): None if value == "" else value for name, value in content.items()}
    if missing := [name for name in RUN_FIELDS if given.get(name) is None]:
        raise StoreError(
            f"{location}: {', '.join(missing)} missing. A run needs {', '.join(RUN_FIELDS)} and "
            "its metrics, such as accuracy and weighted_f1."
        )
    try:
        checked = _CheckedRow.model_validate(given)
    except ValidationError as error:
        raise StoreError(f"{location}: {_first_fault(error)}.") from None
    return {name: getattr(checked, name) for name in given}


def _read_result(row: Row, file: str) -> RunResult:
    has_ended_well = row.get("status") in (None, "done")
    metrics = {k: _number(v) for k, v in row.items() if k not in NO_METRICS}
    subjects, protocol = row.get("test_subjects") or (), row.get("protocol")
    train_counts, test_counts = _counts(row)
    accuracy = row.get("majority_accuracy")
    return RunResult(
        **{name: row[name] for name in RUN_FIELDS},
        study=row.get("study") or "",
        test_subjects=split_subjects(subjects) if isinstance(subjects, str) else subjects,
        # A missing metric of a finished run was not finite; a column of words is not a metric.
        metrics={
            k: math.nan if v is None else v
            for k, v in metrics.items()
            if v is not None or (has_ended_well and k in METRICS and k not in PROBABILITY_METRICS)
        },
        majority_accuracy=math.nan if accuracy is None else accuracy,
        classes=row.get("classes") or 0,
        test_windows=row.get("test_windows") or 0,
        train_counts=train_counts,
        test_counts=test_counts,
        key=row.get("key") or "",
        role=_read_role(row),
        elapsed_s=row.get("elapsed_s"),
        protocol=unknown_protocol(file) if protocol is None else read_protocol(protocol),
        linear={k.removeprefix("linear_"): row[k] for k in LINEAR if row.get(k) is not None},
    )


def _counts(row: Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the training and test windows of each class; nothing if they do not fit the run."""
    train, test = (
        tuple(int(count) for count in (row.get(name) or "").split(";") if count)
        for name in ("train_counts", "test_counts")
    )
    fits = all(len(counts) == row.get("classes") and sum(counts) for counts in (train, test))
    return (train, test) if fits else ((), ())


def _read_role(row: Row) -> Role | None:
    """Return the role of a row's method; None if the file has no columns for it."""
    if "replicate_of" not in row:
        return None
    name, _, value = (row.get("varied") or "").partition("=")
    number = _number(value)
    varied = None if number is None else (name, number)
    return Role(row["replicate_of"] or "", row.get("seed"), varied, bool(row.get("control")))


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    fault = str(first["msg"])
    return f"{first['loc'][0]} = {show_value(first['input'])}: {fault}" if first["loc"] else fault


def _import_arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError(
            "Parquet needs the package pyarrow: pip install 'afor[parquet]'. "
            "A target that ends in .csv or .json needs nothing more."
        ) from error


def _to_parquet(rows: Sequence[Row]) -> bytes:
    """Return the rows as Parquet; raise ConfigError without pyarrow."""
    arrow, parquet = _import_arrow()
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    names = dict.fromkeys(name for row in rows for name in row)
    schema = arrow.schema([(name, types[COLUMNS.get(name, float)]) for name in names])
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), file)
    return file.getvalue()
