"""Write and read results as CSV, JSON or Parquet: the one format outside a store.

A file holds one flat row per run. `afor export` fills every column and writes a row with a status
for each planned run; other files need the columns `REQUIRED` and the metrics. JSON is
`{"runs": [row, ...]}`, with a list `expected` where rows have no status.
"""

import csv
import importlib
import io
import json
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.common.files import exists, write_output
from afor.bench.common.parameter_checks import show_value
from afor.bench.common.text import escape_cell, unescape_cell, without_nan
from afor.bench.store.database import Store, StoredRun, open_store
from afor.bench.store.results import RunResult
from afor.bench.study.planned_runs import ExpectedRuns, count_expected
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
    RunRecord,
)

Format = Literal["csv", "json", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "json", "parquet")
REQUIRED = ("dataset", "backbone", "optimizer", "fold", "draw")
# The columns of `afor export` in their order. Typed formats keep these types even if all values are
# missing, so that files of two stores can be concatenated.
COLUMNS: Mapping[str, type[int | float | str]] = {
    **dict.fromkeys(("study", "dataset", "backbone", "optimizer"), str),
    **dict.fromkeys(("fold", "draw"), int),
    "lr": float,
    **dict.fromkeys(("status", "reason", "finished_at"), str),
    "elapsed_s": float,
    "test_subjects": str,
    **dict.fromkeys(METRICS, float),
    **dict.fromkeys((f"trial_{name}" for name in METRICS), float),
    **dict.fromkeys(PROTOCOL_METRICS, float),
    "majority_accuracy": float,
    **dict.fromkeys(("classes", "test_windows"), int),
    **dict.fromkeys(("train_counts", "test_counts"), str),
    **dict.fromkeys(("epochs", "best_epoch"), int),
    "best_validation_accuracy": float,
    **dict.fromkeys(("steps", "parameters"), int),
    "device": str,
    "is_search": int,
    "copy_of": str,
    "seed": int,
    "varied": str,
    "control": int,
    "data_kind": str,
    "protocol": str,
    "key": str,
}
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
        >>> len(results), expected[0].folds, expected[0].draws
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
    for number, row in enumerate(_content(path)[0], 1):
        location = f"{path}, run {number}"
        key = _row(row, location).key
        assert isinstance(row, dict)  # `_row` refuses anything else
        unknown = [name for name in row if name not in COLUMNS]
        if unknown or not key:
            fault = f"{', '.join(unknown)} unknown" if unknown else "key missing"
            raise StoreError(f"{location}: {fault}. Expected a file that `afor export` wrote.")
        rows.append({name: _typed(name, value, location) for name, value in row.items()})
    return rows


def _typed(name: str, value: Any, location: str) -> int | float | str | None:
    try:
        return None if value is None else COLUMNS[name](value)
    except (TypeError, ValueError):
        raise StoreError(f"{location}: {name} = {show_value(value)}: expected a number.") from None


def _content(path: Path) -> tuple[list[Any], list[Any]]:
    """Return the rows of a file, and the expected runs that JSON may list beside them."""
    file_format, _, _, read = _FILES[path.suffix.lower()]
    try:
        return read(path)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise StoreError(f"{path} is not a {file_format} file of results: {error}.") from None


def _read_csv(path: Path) -> tuple[list[Any], list[Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {unescape_cell(k): unescape_cell(v) if v else None for k, v in row.items() if k}
            for row in csv.DictReader(file)
        ], []


def read_content(path: Path) -> tuple[Any, str, int]:
    """Return what a file holds that may be no file of `afor export`.

    Returns:
        The rows as dictionaries, or the document of a JSON file; what messages call a row; the
        number of the first row.

    Raises:
        StoreError: The file cannot be read.
    """
    file_format, row_name, first, _ = _FILES[path.suffix.lower()]
    try:
        if file_format == "JSON":
            return json.loads(path.read_text("utf-8-sig")), row_name, first
        if file_format == "Parquet":
            return _read_parquet(path)[0], row_name, first
        text = path.read_text("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
        return [{k: v for k, v in row.items() if k is not None} for row in reader], row_name, first
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise StoreError(f"{path} is not a {file_format} file of scores: {error}.") from None


def column_names(path: Path) -> list[str]:
    """Return the columns of a file of results; empty if it has none, or cannot be read as one."""
    try:
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                line = file.readline(1 << 16)
            return next(csv.reader([line], delimiter=_delimiter(line)), [])
        if path.suffix.lower() == ".parquet":
            return list(_import_arrow()[1].read_schema(path).names)
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError, csv.Error):
        return []
    if isinstance(content, dict):
        return [] if "runs" in content else [str(name) for name in content]
    rows = content if isinstance(content, list) else []
    return [str(name) for name in rows[0]] if rows and isinstance(rows[0], dict) else []


def _delimiter(text: str) -> str:
    """Return what separates the columns of the first line: a comma, semicolon or tab."""
    header = text.partition("\n")[0]
    return max(",;\t", key=header.count)


def _read_parquet(path: Path) -> tuple[list[Any], list[Any]]:
    arrow, parquet = _import_arrow()
    try:
        return parquet.read_table(path).to_pylist(), []
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from None


def _read_json(path: Path) -> tuple[list[Any], list[Any]]:
    """Read {"runs": [...], "expected": [...]}, or a list of rows alone."""
    content = json.loads(path.read_text("utf-8"))
    document = content if isinstance(content, dict) else {"runs": content}
    rows, planned = document.get("runs"), document.get("expected", [])
    if not isinstance(rows, list) or not isinstance(planned, list):
        raise StoreError(f'{path}: expected {{"runs": [...], "expected": [...]}}.')
    return rows, planned


# By suffix: the name of the format, what messages call a row, the first row's number, the reader.
_FILES: Mapping[str, tuple[str, str, int, Callable[[Path], tuple[list[Any], list[Any]]]]] = {
    ".csv": ("CSV", "line", 2, _read_csv),
    ".json": ("JSON", "run", 1, _read_json),
    ".parquet": ("Parquet", "row", 1, _read_parquet),
}


def export_rows(store: Store) -> list[Row]:
    """Return one row per planned run; values that a run does not have are None."""
    results = {result.key: result for name in store.studies() for result in store.results(name)}
    rows = []
    for stored in store.runs():
        run = store.run(stored.key) if stored.status != "open" else None
        rows.append(_exported(stored, run, results.get(stored.key)))
    return rows


def _exported(stored: StoredRun, run: FinishedRun | None, result: RunResult | None) -> Row:
    record = run.record if run else None
    test = record.test if record else None
    trials = record.test_trials if record else None
    history = record.history if record else ()
    best = record.best_epoch if record else None
    return {
        **{name: getattr(stored, name) for name in ("study", *REQUIRED)},
        "lr": stored.rate,
        **{name: getattr(stored, name) for name in ("status", "reason", "finished_at")},
        "elapsed_s": stored.elapsed_s if stored.finished_at else None,
        "test_subjects": join_subjects(run.spec["split"]["test"]) if run else None,
        **{name: getattr(test, name) if test else None for name in METRICS},
        **{f"trial_{name}": getattr(trials, name) if trials else None for name in METRICS},
        **{name: result.metrics.get(name) if result else None for name in PROTOCOL_METRICS},
        "majority_accuracy": result.majority_accuracy if result else None,
        "classes": result.classes if result else None,
        "test_windows": test.n if test else None,
        "train_counts": join_counts(result.train_counts) if result else None,
        "test_counts": join_counts(result.test_counts) if result else None,
        "epochs": len(history) if record else None,
        "best_epoch": best,
        "best_validation_accuracy": history[best].validation_accuracy if best is not None else None,
        "steps": record.steps if record else None,
        "parameters": record.parameters if record else None,
        "device": record.device if record else None,
        "is_search": stored.is_search,
        **role_columns(stored.role or role_from_name(stored.optimizer)),
        **protocol_columns(read_protocol(stored.protocol)),
        "key": stored.key,
    }


def result_rows(results: Iterable[RunResult]) -> list[Row]:
    """Return rows of finished runs, without a status."""
    runs = list(results)
    has_roles = any(run.role for run in runs)
    has_protocols = any(run.protocol and UNKNOWN not in run.protocol for run in runs)
    rows = []
    for run in runs:
        left_out = {"metrics", "key", "role", "protocol"}
        left_out |= {"elapsed_s"} if run.elapsed_s is None else set()
        left_out |= set() if run.test_counts else {"train_counts", "test_counts"}
        row = {k: v for k, v in vars(run).items() if k not in left_out}
        row["test_subjects"] = join_subjects(run.test_subjects)
        if run.test_counts:
            row |= {name: join_counts(row[name]) for name in ("train_counts", "test_counts")}
        if has_roles:
            row |= role_columns(run.role or role_from_name(run.optimizer))
        if has_protocols:
            row |= protocol_columns(run.protocol)
        rows.append({**row, **run.metrics, "key": run.key})
    return rows


def role_columns(role: Role) -> Row:
    """Return the columns that hold a role."""
    varied = f"{role.varied[0]}={role.varied[1]!r}" if role.varied else None
    return {
        "copy_of": role.copy_of or None,
        "seed": role.seed,
        "varied": varied,
        "control": int(role.control),
    }


def protocol_columns(protocol: RunProtocol) -> Row:
    """Return the columns that hold a protocol; they are empty if it is not known."""
    if UNKNOWN in protocol:
        return {DATA_KIND: None, "protocol": None}
    return {DATA_KIND: setting(protocol, DATA_KIND), "protocol": protocol_text(protocol)}


def write_export(rows: Sequence[Row], target: Path, file_format: Format) -> None:
    """Write rows from `export_rows` or `read_rows`; raise ConfigError if that is not possible."""
    if file_format == "parquet":
        write_output(target, _to_parquet(rows))
    else:
        write_output(target, to_csv(rows) if file_format == "csv" else to_json(rows))


def write_results(
    path: Path, results: Sequence[RunResult], expected: Sequence[ExpectedRuns]
) -> None:
    """Write a .csv or .json file that `load_results` reads."""
    if path.suffix.lower() not in (".csv", ".json"):
        raise ConfigError(f"{path}: results are written as .csv or .json.")
    rows = result_rows(results)
    write_output(path, to_csv(rows) if path.suffix.lower() == ".csv" else to_json(rows, expected))


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


def format_of(target: Path) -> Format:
    """Return the format by the suffix of a file name; raise ConfigError for other suffixes."""
    for file_format in FORMATS:
        if target.suffix == f".{file_format}":
            return file_format
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


def join_counts(counts: Iterable[int]) -> str:
    """Join the numbers of windows of each class with semicolons.

    >>> join_counts((30, 28))
    '30;28'
    """
    return ";".join(map(str, counts))


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
    """Return the margins of equivalence that studies state, by metric.

    They are as printed: in points, or as a number for kappa.

    Args:
        tomls: The TOML of each study by its name.
        except_for: Metrics in whose margins studies may differ.

    Raises:
        ConfigError: Two studies state different margins for another metric.
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


def load_records(
    paths: Iterable[Path], studies: Sequence[str] = ()
) -> list[tuple[RunResult, RunRecord]]:
    """Return the runs of stores with their complete records: history and traces."""
    records = []
    for path in paths:
        if not is_store(path):
            raise ConfigError(
                f"{path} holds results only. Curves are in the store of a study; give that."
            )
        runs, _ = load_results([path], studies)
        with open_store(path) as store:
            for run in runs:
                finished = store.run(run.key)
                if finished is not None and finished.record is not None:
                    records.append((run, finished.record))
    return records


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
    _, row_name, first, _ = _FILES[path.suffix.lower()]
    rows, listed = _content(path)
    present: dict[str, None] = {}  # the studies of the file, in its order
    selected = []
    for number, content in enumerate(rows, first):
        row = _row(content, f"{path}, {row_name} {number}")
        result = _result(row, path.name)
        present[result.study] = None
        if not studies or result.study in studies:
            selected.append((row, result))
    if studies and not any(name in present for name in studies):
        raise ConfigError(
            f"{path}: no run belongs to {', '.join(studies)}. "
            f"Studies here: {', '.join(present) or 'none'}."
        )
    # As in a store, a learning rate search counts only if there is nothing else.
    counted = [pair for pair in selected if not pair[0].is_search] or selected
    results = [result for row, result in counted if row.status in (None, "done")]
    expected = count_expected(result for row, result in counted if row.status is not None)
    try:
        return results, expected + [_EXPECTED.validate_python(row) for row in listed]
    except ValidationError as error:
        raise StoreError(f'{path}, "expected": {_first_fault(error)}.') from None


Counts = Annotated[str, Field(pattern=r"^\d{1,12}(;\d{1,12})+$")]


class _Row(BaseModel):
    """The columns that the reader uses; from CSV, all of them are text."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    study: str | None = None
    dataset: str
    backbone: str
    optimizer: str
    fold: Annotated[int, Field(ge=0, lt=10**9)]
    draw: Annotated[int, Field(ge=0, lt=10**9)]
    status: str | None = None
    test_subjects: str | tuple[str, ...] | None = None
    majority_accuracy: float | None = None
    classes: Annotated[int, Field(ge=0, lt=10**9)] | None = None
    test_windows: Annotated[int, Field(ge=0)] | None = None
    train_counts: Counts | None = None
    test_counts: Counts | None = None
    is_search: Annotated[int, Field(ge=0, le=1)] | None = None
    elapsed_s: Annotated[float, Field(ge=0)] | None = None
    key: str | None = None
    copy_of: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    varied: Annotated[str, Field(pattern=r"^\w+=[0-9.e+-]+$")] | None = None
    control: Annotated[int, Field(ge=0, le=1)] | None = None
    protocol: str | None = None


_EXPECTED = TypeAdapter(ExpectedRuns)


def _row(content: object, location: str) -> _Row:
    if not isinstance(content, dict):
        raise StoreError(f"{location}: expected an object with the fields of a run.")
    missing = [name for name in REQUIRED if content.get(name) is None]
    if missing:
        raise StoreError(
            f"{location}: {', '.join(missing)} missing. A run needs {', '.join(REQUIRED)} and "
            "its metrics, such as accuracy and weighted_f1."
        )
    try:
        return _Row.model_validate({str(name): value for name, value in content.items()})
    except ValidationError as error:
        raise StoreError(f"{location}: {_first_fault(error)}.") from None


def _result(row: _Row, file: str) -> RunResult:
    extra = row.model_extra or {}
    metrics = {k: _number(v) for k, v in extra.items() if k not in NO_METRICS}
    subjects = row.test_subjects or ()
    if isinstance(subjects, str):
        subjects = split_subjects(subjects)
    is_done = row.status in (None, "done")
    train_counts, test_counts = _counts(row)
    return RunResult(
        *(row.study or "", row.dataset, row.backbone, row.optimizer, row.fold, row.draw),
        test_subjects=subjects,
        # A missing metric of a finished run was not finite; a column of words is not a metric.
        metrics={
            k: math.nan if v is None else v
            for k, v in metrics.items()
            if v is not None or (is_done and k in METRICS and k not in PROBABILITY_METRICS)
        },
        majority_accuracy=math.nan if row.majority_accuracy is None else row.majority_accuracy,
        classes=row.classes or 0,
        test_windows=row.test_windows or 0,
        train_counts=train_counts,
        test_counts=test_counts,
        key=row.key or "",
        role=_role(row),
        elapsed_s=row.elapsed_s,
        protocol=unknown_protocol(file) if row.protocol is None else read_protocol(row.protocol),
    )


def _counts(row: _Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the training and test windows of each class; nothing if they do not fit the run."""
    train, test = (
        tuple(int(count) for count in (text or "").split(";") if count)
        for text in (row.train_counts, row.test_counts)
    )
    fits = all(len(counts) == row.classes and sum(counts) for counts in (train, test))
    return (train, test) if fits else ((), ())


def _role(row: _Row) -> Role | None:
    """Return the role of a row's optimizer; None if the file has no columns for it."""
    if "copy_of" not in row.model_fields_set:
        return None
    setting, _, value = (row.varied or "").partition("=")
    number = _number(value)
    varied = None if number is None else (setting, number)
    return Role(row.copy_of or "", row.seed, varied, bool(row.control))


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
    names = list(rows[0]) if rows else []
    schema = arrow.schema([(name, types[COLUMNS[name]]) for name in names])
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), file)
    return file.getvalue()
