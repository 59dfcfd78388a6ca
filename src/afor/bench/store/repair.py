"""Extract the intact part of a damaged store into a new one.

A run is intact if its content has the digest it was written with; its other columns are rebuilt
from the content. A study is intact if its digest matches; the next `afor run` of its file plans
another one anew.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.database import Store, open_or_create
from afor.bench.store.tables import (
    PLAN_COLUMNS,
    RUN_COLUMNS,
    DamageError,
    PlanRow,
    RunRow,
    read_linear,
    run_row,
    short_name,
    study_digest,
)
from afor.bench.training.record import decode

UNREADABLE = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)


@dataclass(frozen=True)
class Repaired:
    """What was recovered from a damaged store, and what was lost."""

    runs: int
    lost_runs: tuple[str, ...]  # keys, as far as they can be read
    studies: tuple[str, ...]
    lost_studies: tuple[str, ...]


def repair(source: Path, target: Path) -> Repaired:
    """Write the intact part of a store to a new one; the damaged file is only read.

    Raises:
        ConfigError: The target exists.
        StoreError: The source is missing, or nothing in it can be read.
    """
    if target.exists():
        raise ConfigError(f"{target} exists already. Name a new file with --output.")
    if not source.is_file():
        raise StoreError(f"There is no store {source}.")
    with tempfile.TemporaryDirectory(prefix="afor-repair-") as folder:
        copy = Path(folder) / "damaged.db"  # SQLite may write to a file it opens
        for suffix in ("", "-wal"):
            if (file := source.with_name(source.name + suffix)).is_file():
                shutil.copyfile(file, copy.with_name(copy.name + suffix))
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            contents, lost = _intact_runs(connection)
            rows = [PlanRow(*r) for r in _read(connection, f"SELECT {PLAN_COLUMNS} FROM plan")]
            studies = list(_read(connection, "SELECT name, toml, sha256 FROM studies"))
            if not contents and not studies:
                raise StoreError(
                    f"{source}: no run in it can be read. Restore a copy, or move the file away "
                    f"and run the study again."
                )
            with open_or_create(target) as store:
                for content in contents.values():
                    store.add(content)
                kept, lost_studies = _restore(store, studies, rows)
                with suppress(DamageError, *UNREADABLE):  # the next `afor run` fits them anew
                    store.add_linear_fits(read_linear(connection))
    lost_runs = tuple(sorted(short_name(key) for key in lost - set(contents)))
    return Repaired(len(contents), lost_runs, kept, lost_studies)


def _intact_runs(connection: sqlite3.Connection) -> tuple[dict[str, bytes], set[str]]:
    """Return the contents of intact runs by key, and the keys of the others."""
    contents: dict[str, bytes] = {}
    lost: set[str] = set()
    select = f"SELECT {RUN_COLUMNS}, content FROM runs ORDER BY key"
    for direction in ("ASC", "DESC"):  # a damaged page stops a scan from either end
        for *columns, content in _read(connection, f"{select} {direction}"):
            try:
                run = decode(content)
                is_intact = run_row(run, content).sha256 == RunRow(*columns).sha256
            except (ValueError, TypeError, RecursionError):
                is_intact = False
            if is_intact:
                contents[run.key] = content
            else:
                lost.add(str(columns[0]))
    return contents, lost


def _read(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows up to the first unreadable one."""
    with suppress(*UNREADABLE):
        yield from connection.execute(query)


def _restore(
    store: Store, studies: list[tuple[Any, ...]], rows: list[PlanRow]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the intact studies; return their names and those of the others."""
    kept, lost = [], {str(row.study) for row in rows}
    for name, toml, sha256 in studies:
        plan = sorted((row for row in rows if row.study == name), key=lambda row: row.position)
        if study_digest(name, toml, plan) == sha256:
            store.replace_study(name, toml, plan)
            kept.append(name)
        else:
            lost.add(str(name))
    printable = (
        ascii(name)[1:-1][:80] for name in sorted(lost - set(kept))
    )  # it may hold anything
    return tuple(sorted(kept)), tuple(printable)
