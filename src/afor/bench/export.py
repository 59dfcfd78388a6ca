"""The results of a store as a flat table, one row per planned run, for other programs."""

import csv
import importlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from afor.bench.csv_cells import escape_cell
from afor.bench.datasets.checksums import write_atomically
from afor.bench.errors import ConfigError
from afor.bench.execute import FinishedRun
from afor.bench.store import METRICS, Store

Format = Literal["csv", "json", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "json", "parquet")
# Columns that are not text. A format with types keeps them also where every value is missing, so
# that the files of two stores can be put together.
WHOLE = ("fold", "draw", "test_windows", "epochs", "best_epoch", "steps", "parameters")
FLOATING = (
    *("lr", "elapsed_s", "best_validation_accuracy"),
    *METRICS,
    *(f"trial_{name}" for name in METRICS),
)


def export_rows(store: Store, study: str | None = None) -> list[dict[str, Any]]:
    """Return one row per planned run; what a run does not have is None."""
    rows = []
    for cell in store.cells(study):
        row: dict[str, Any] = {
            "study": cell.study,
            "dataset": cell.dataset,
            "backbone": cell.backbone,
            "optimizer": cell.optimizer,
            "fold": cell.fold,
            "draw": cell.draw,
            "lr": cell.rate,
            "status": cell.status,
            "reason": cell.reason,
            "finished_at": cell.finished_at,
            "elapsed_s": cell.elapsed_s if cell.finished_at else None,
        }
        run = store.run(cell.key) if cell.status != "open" else None
        rows.append({**row, **_numbers(run), "key": cell.key})
    return rows


def write_export(store: Store, target: Path, kind: Format) -> int:
    """Write the runs of a store to a file and return how many there are."""
    encode = _parquet_encoder() if kind == "parquet" else None
    rows = export_rows(store)
    if encode is not None:
        content = encode(rows)
    else:
        content = (to_csv(rows) if kind == "csv" else to_json(store, rows)).encode()
    write_atomically(target, content)
    return len(rows)


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV; floats in full, so that they come back bit by bit."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: "" if v is None else escape_cell(v) for k, v in row.items()})
    return text.getvalue()


def to_json(store: Store, rows: list[dict[str, Any]]) -> str:
    """Return all runs, and what `afor stats`, `table` and `figure` read; not finite means null."""
    content = {
        "runs": rows,
        "results": [{**asdict(r), "metrics": dict(r.metrics)} for r in store.results()],
        "expected": [asdict(cell) for cell in store.expected()],
    }
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def kind_of(target: Path) -> Format:
    """Return the format a file name asks for; ConfigError for another ending."""
    for kind in FORMATS:
        if target.suffix == f".{kind}":
            return kind
    raise ConfigError(f"{target}: the name must end in .csv, .json or .parquet.")


def _numbers(run: FinishedRun | None) -> dict[str, Any]:
    record = run.record if run else None
    test = record.test if record else None
    trials = record.test_trials if record else None
    history = record.history if record else ()
    best = record.best_epoch if record else None
    return {
        "test_subjects": ";".join(run.spec["split"]["test"]) if run else None,
        **{name: getattr(test, name) if test else None for name in METRICS},
        **{f"trial_{name}": getattr(trials, name) if trials else None for name in METRICS},
        "test_windows": test.n if test else None,
        "epochs": len(history) if record else None,
        "best_epoch": best,
        "best_validation_accuracy": history[best].validation_accuracy if best is not None else None,
        "steps": record.steps if record else None,
        "parameters": record.parameters if record else None,
        "device": record.device if record else None,
    }


def _parquet_encoder() -> Callable[[list[dict[str, Any]]], bytes]:
    """Return what turns rows into a Parquet file; ConfigError, before any work, without pyarrow."""
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError(
            "Parquet needs the package pyarrow: pip install 'afor[parquet]'. "
            "A target that ends in .csv or .json needs nothing more."
        ) from error

    def encode(rows: list[dict[str, Any]]) -> bytes:
        kinds = dict.fromkeys(WHOLE, arrow.int64()) | dict.fromkeys(FLOATING, arrow.float64())
        names = list(rows[0]) if rows else []
        schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in names])
        file = io.BytesIO()
        parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), file)
        return file.getvalue()

    return encode
