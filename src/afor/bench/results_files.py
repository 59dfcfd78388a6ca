"""Read finished runs from stores and from CSV or JSON files, and write such files."""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from afor.bench.errors import ConfigError, StoreError
from afor.bench.results import Expected, RunResult

COLUMNS = tuple(field.name for field in fields(RunResult) if field.name != "metrics")
REQUIRED = ("dataset", "backbone", "optimizer", "fold", "draw")
SEPARATOR = ";"  # between test subjects in a CSV file


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
        reader = {".csv": read_csv, ".json": read_json}.get(path.suffix.lower(), _read_store)
        found, planned = reader(path)
        results += found
        expected += planned
    if studies:
        there = list(dict.fromkeys(run.study for run in results))
        results = [run for run in results if run.study in studies]
        if not results:
            raise ConfigError(
                f"No run belongs to {', '.join(studies)}. Studies here: {', '.join(there)}."
            )
        cells = {(run.dataset, run.backbone, run.optimizer) for run in results}
        expected = [e for e in expected if (e.dataset, e.backbone, e.optimizer) in cells]
    if not results:
        names = ", ".join(str(path) for path in paths)
        raise StoreError(f"{names}: no finished run yet. Start or go on with `afor run`.")
    return results, expected


def read_json(path: Path) -> tuple[list[RunResult], list[Expected]]:
    """Read {"results": [...], "expected": [...]}, or a plain list of results."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path} is not a JSON file of results: {error}.") from None
    whole = content if isinstance(content, dict) else {"results": content}
    rows, planned = whole.get("results"), whole.get("expected", [])
    if not isinstance(rows, list) or not isinstance(planned, list):
        raise StoreError(f'{path}: expected {{"results": [...], "expected": [...]}}.')
    results = [_result(row, f"{path}, result {i + 1}") for i, row in enumerate(rows)]
    try:
        return results, [Expected(**row) for row in planned]
    except TypeError as error:
        raise StoreError(f'{path}, "expected": {error}.') from None


def read_csv(path: Path) -> tuple[list[RunResult], list[Expected]]:
    """Read one run per line; columns that are not fields of a run are metrics if they hold numbers.

    Such a file does not say what is expected.
    """
    results = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                if row.get("status", "done") != "done":  # `afor export` lists the others too
                    continue
                metrics = {k: v for k, v in row.items() if k not in COLUMNS and _is_number(v)}
                given = {k: v for k, v in row.items() if k in COLUMNS and v not in (None, "")}
                subjects = [s for s in given.pop("test_subjects", "").split(SEPARATOR) if s]
                whole = {**given, "test_subjects": subjects, "metrics": metrics}
                results.append(_result(whole, f"{path}, line {line}"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} is not a CSV file of results: {error}.") from None
    return results, []


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
    metrics = list(dict.fromkeys(name for run in results for name in run.metrics))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *metrics])
        for run in results:
            row: dict[str, Any] = {name: getattr(run, name) for name in COLUMNS}
            row["test_subjects"] = SEPARATOR.join(run.test_subjects)
            writer.writerow([*row.values(), *(run.metrics.get(name, "") for name in metrics)])


def _read_store(path: Path) -> tuple[list[RunResult], list[Expected]]:
    store = import_module("afor.bench.store").open_store(path)
    return list(store.results()), list(store.expected())


def _result(row: object, place: str) -> RunResult:
    if not isinstance(row, dict):
        raise StoreError(f"{place}: expected an object with the fields of a run.")
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise StoreError(
            f"{place}: {', '.join(missing)} missing. A run needs {', '.join(REQUIRED)} and "
            "its metrics, such as accuracy and weighted_f1."
        )
    try:
        return RunResult(
            study=str(row.get("study", "")),
            dataset=str(row["dataset"]),
            backbone=str(row["backbone"]),
            optimizer=str(row["optimizer"]),
            fold=int(row["fold"]),
            draw=int(row["draw"]),
            test_subjects=tuple(str(subject) for subject in row.get("test_subjects", ())),
            metrics={str(name): float(value) for name, value in row.get("metrics", {}).items()},
            majority_accuracy=float(row.get("majority_accuracy", math.nan)),
            classes=int(row.get("classes", 0)),
            test_windows=int(row.get("test_windows", 0)),
            key=str(row.get("key", "")),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{place}: {error}.") from None


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
