"""Read finished runs from stores and from CSV or JSON files, and write such files."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from afor.bench.csv_cells import escape_cell, unescape_cell
from afor.bench.errors import ConfigError, StoreError
from afor.bench.results import Expected, RunResult
from afor.bench.runs import RunRecord

COLUMNS = tuple(field.name for field in fields(RunResult) if field.name != "metrics")
REQUIRED = ("dataset", "backbone", "optimizer", "fold", "draw")
SEPARATOR = " "  # between test subjects in a CSV file


def load_results(
    paths: Iterable[Path], studies: Sequence[str] = ()
) -> tuple[list[RunResult], list[Expected]]:
    """Return the runs and the expected cells of all paths together: stores, .csv or .json files.

    `studies` keeps only the runs of these studies.
    """
    results: list[RunResult] = []
    expected: list[Expected] = []
    for path in paths:
        if not path.exists():
            raise StoreError(
                f"{path} does not exist. Give the store of a study (`afor run` says where it is), "
                "or a .csv or .json file of results."
            )
        reader = {".csv": read_csv, ".json": read_json}.get(path.suffix.lower())
        if reader is None:
            found, planned = _read_store(path, studies)
        else:
            found, planned = reader(path, studies)
        results += found
        expected += planned
    if not results:
        names = ", ".join(str(path) for path in paths)
        raise StoreError(f"{names}: no finished run yet. Start or go on with `afor run`.")
    return results, expected


def read_json(path: Path, studies: Sequence[str] = ()) -> tuple[list[RunResult], list[Expected]]:
    """Read {"results": [...], "expected": [...]}, or a list of runs as `afor export` gives.

    The list of what is expected does not say of which study: it is kept whole.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path} is not a JSON file of results: {error}.") from None
    whole = content if isinstance(content, dict) else {"results": content}
    rows, planned = whole.get("results"), whole.get("expected", [])
    if not isinstance(rows, list) or not isinstance(planned, list):
        raise StoreError(f'{path}: expected {{"results": [...], "expected": [...]}}.')
    results, expected = _read_rows(rows, path, "result", 1, studies)
    try:
        return results, expected + [Expected(**row) for row in planned]
    except TypeError as error:
        raise StoreError(f'{path}, "expected": {error}.') from None


def read_csv(path: Path, studies: Sequence[str] = ()) -> tuple[list[RunResult], list[Expected]]:
    """Read one run per line; columns that are not fields of a run are metrics if they hold numbers.

    A column `status`, as `afor export` writes it, says which lines are done and which are only
    expected. Without it nothing is said of what is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                {unescape_cell(k): unescape_cell(v) for k, v in row.items() if k and v}
                for row in csv.DictReader(file)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} is not a CSV file of results: {error}.") from None
    return _read_rows(rows, path, "line", 2, studies)


def write_results(path: Path, results: Sequence[RunResult], expected: Sequence[Expected]) -> None:
    """Write a .csv or .json file that `load_results` reads."""
    if path.suffix.lower() == ".json":
        content = {
            "results": [{**asdict(run), "metrics": dict(run.metrics)} for run in results],
            "expected": [asdict(cell) for cell in expected],
        }
        path.write_text(json.dumps(content, indent=1), "utf-8")
        return
    if path.suffix.lower() != ".csv":
        raise ConfigError(f"{path}: results are written as .csv or .json.")
    path.write_text(results_csv(results), "utf-8")


def results_csv(results: Sequence[RunResult]) -> str:
    """Return one line per run, every metric a column, floats in full."""
    metrics = list(dict.fromkeys(name for run in results for name in run.metrics))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*COLUMNS, *map(escape_cell, metrics)])
    for run in results:
        row: dict[str, Any] = {name: getattr(run, name) for name in COLUMNS}
        row["test_subjects"] = SEPARATOR.join(run.test_subjects)
        cells = [*row.values(), *(run.metrics.get(name, "") for name in metrics)]
        writer.writerow(map(escape_cell, cells))
    return file.getvalue()


def is_store(path: Path) -> bool:
    """Say whether a path is read as a store, not as a file of results."""
    return path.suffix.lower() not in (".csv", ".json")


def load_studies(paths: Iterable[Path], studies: Sequence[str] = ()) -> dict[str, str]:
    """Return the TOML of each study in these stores."""
    found: dict[str, str] = {}
    for path in paths:
        with _open(path) as store:
            found |= store.studies()
    return {name: toml for name, toml in found.items() if not studies or name in studies}


def load_records(
    paths: Iterable[Path], studies: Sequence[str] = ()
) -> list[tuple[RunResult, RunRecord]]:
    """Return the runs of stores with their whole records: history and traces."""
    found = []
    for path in paths:
        if not is_store(path):
            raise ConfigError(
                f"{path} holds results only. Curves are in the store of a study; give that, or "
                "the curves themselves with --data."
            )
        runs, _ = load_results([path], studies)
        with _open(path) as store:
            for run in runs:
                finished = store.run(run.key)
                if finished is not None and finished.record is not None:
                    found.append((run, finished.record))
    return found


def _read_store(path: Path, studies: Sequence[str]) -> tuple[list[RunResult], list[Expected]]:
    results: list[RunResult] = []
    expected: list[Expected] = []
    with _open(path) as store:
        known = store.studies()
        if studies and not any(name in known for name in studies):
            raise ConfigError(
                f"{path}: no study is called {', '.join(studies)}. "
                f"Studies here: {', '.join(known) or 'none'}."
            )
        chosen: list[str | None] = [name for name in studies if name in known]
        for study in chosen or [None]:
            results += store.results(study)
            expected += store.expected(study)
    return results, expected


def _open(path: Path) -> Any:
    return import_module("afor.bench.store").open_store(path)


def _read_rows(
    rows: Sequence[object], path: Path, kind: str, first: int, studies: Sequence[str]
) -> tuple[list[RunResult], list[Expected]]:
    """Return the runs of these studies, or of all; `kind` and `first` number rows in messages."""
    results: list[RunResult] = []
    planned: dict[tuple[str, str, str], set[tuple[int, int]]] = {}
    there: dict[str, None] = {}
    for number, row in enumerate(rows, first):
        result = _result(row, f"{path}, {kind} {number}")
        there[result.study] = None
        if studies and result.study not in studies:
            continue
        status = row.get("status") if isinstance(row, dict) else None
        if status is not None:
            cell = (result.dataset, result.backbone, result.optimizer)
            planned.setdefault(cell, set()).add((result.fold, result.draw))
        if status in (None, "done"):
            results.append(result)
    if studies and not any(name in there for name in studies):
        raise ConfigError(
            f"{path}: no run belongs to {', '.join(studies)}. "
            f"Studies here: {', '.join(there) or 'none'}."
        )
    expected = [
        Expected(*cell, folds=len({f for f, _ in places}), draws=len({d for _, d in places}))
        for cell, places in planned.items()
    ]
    return results, expected


def _result(row: object, place: str) -> RunResult:
    if not isinstance(row, dict):
        raise StoreError(f"{place}: expected an object with the fields of a run.")
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise StoreError(
            f"{place}: {', '.join(missing)} missing. A run needs {', '.join(REQUIRED)} and "
            "its metrics, such as accuracy and weighted_f1."
        )
    given = {name: value for name, value in row.items() if value is not None}
    others = {k: v for k, v in given.items() if k not in (*COLUMNS, "status") and _is_number(v)}
    subjects = given.get("test_subjects", ())
    try:
        return RunResult(
            study=str(given.get("study", "")),
            dataset=str(given["dataset"]),
            backbone=str(given["backbone"]),
            optimizer=str(given["optimizer"]),
            fold=int(given["fold"]),
            draw=int(given["draw"]),
            test_subjects=tuple(subjects.split() if isinstance(subjects, str) else subjects),
            metrics={str(k): float(v) for k, v in given.get("metrics", others).items()},
            majority_accuracy=float(given.get("majority_accuracy", math.nan)),
            classes=int(given.get("classes", 0)),
            test_windows=int(given.get("test_windows", 0)),
            key=str(given.get("key", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{place}: {error}.") from None


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True
