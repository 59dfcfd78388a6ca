"""Extract the intact part of a damaged store into a new one.

A run is intact if its content has the digest it was written with; its other columns are rebuilt
from the content. The plan of a study is intact if its digest matches; if only the list of runs is
damaged, the study file is kept and the next `afor run` rebuilds the list.
"""

import itertools
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
from afor.bench.store.rows import (
    RUN_COLUMNS,
    SELECT_PLANS,
    PlanRow,
    check_content,
    digest,
    plan_digest,
    plans_by_study,
    run_row,
    short_name,
)

UNREADABLE = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)


@dataclass(frozen=True)
class Repaired:
    """What was recovered from a damaged store, and what was lost."""

    runs: int
    lost_runs: tuple[str, ...]  # keys, as far as they can be read
    studies: tuple[str, ...]
    without_list: tuple[str, ...]  # studies whose list of runs is lost, but not their file
    lost_studies: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing that the damaged store names is missing."""
        return not (self.lost_runs or self.without_list or self.lost_studies)


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
        connection = sqlite3.connect(copy, isolation_level=None)
        with closing(connection):
            connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            contents, lost = _intact_runs(connection)
            plans = _plans(connection)
            if not contents and not plans:
                raise StoreError(
                    f"{source}: no run in it can be read. Restore a copy, or move the file away "
                    f"and run the study again."
                )
            with open_or_create(target) as store:
                for content in contents.values():
                    store.add(content)
                return _restore_plans(store, plans, len(contents), lost)


def _intact_runs(connection: sqlite3.Connection) -> tuple[dict[str, bytes], set[str]]:
    """Return the contents of intact runs by key, and the keys of the others."""
    contents: dict[str, bytes] = {}
    lost: set[str] = set()
    select = f"SELECT {RUN_COLUMNS}, content FROM runs"
    # A damaged page stops a scan from either end; rows behind it may still be found by key.
    keys = {row[0] for row in _read(connection, "SELECT key FROM cells")}
    rows = itertools.chain(
        _read(connection, f"{select} ORDER BY key"),
        _read(connection, f"{select} ORDER BY key DESC"),
        *(_read(connection, f"{select} WHERE key = ?", (key,)) for key in keys),
    )
    for row in rows:
        content = row[-1]
        try:
            rebuilt = run_row(content)
            check_content(rebuilt._replace(sha256=row[5]), content)
        except (ValueError, TypeError, RecursionError):
            lost.add(str(row[0]))
        else:
            contents[rebuilt.key] = content
    missing = {key for key in keys if isinstance(key, str)} - set(contents)
    for key in missing - lost:
        if not _is_readable(connection, key):
            lost.add(key)
    return contents, lost - set(contents)


def _is_readable(connection: sqlite3.Connection, key: str) -> bool:
    """Tell whether a lookup of the key works, so that the run was never there."""
    try:
        connection.execute("SELECT length(content) FROM runs WHERE key = ?", (key,)).fetchall()
    except UNREADABLE:
        return False
    return True


def _read(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield rows up to the first unreadable one."""
    with suppress(*UNREADABLE):
        yield from connection.execute(query, values)


@dataclass(frozen=True)
class _StoredPlan:
    """A study as the damaged store has it."""

    toml: str
    is_sound: bool  # the row of the study is intact
    rows: tuple[PlanRow, ...]
    digest: str  # of the rows


def _plans(connection: sqlite3.Connection) -> dict[str, _StoredPlan]:
    plan_rows = plans_by_study(_read(connection, SELECT_PLANS))
    plans = {}
    for row in _read(
        connection, "SELECT name, toml, planned_at, cells_sha256, row_sha256 FROM studies"
    ):
        is_sound = digest(*row[:4]) == row[4]
        rows = tuple(plan_rows.get(row[0], ()))
        plans[str(row[0])] = _StoredPlan(str(row[1]), is_sound, rows, str(row[3]))
    for name in set(map(str, plan_rows)) - set(plans):
        plans[name] = _StoredPlan("", False, (), "")
    return plans


def _restore_plans(
    store: Store, plans: dict[str, _StoredPlan], runs: int, lost: set[str]
) -> Repaired:
    complete: list[str] = []
    without_list: list[str] = []
    lost_studies: list[str] = []
    for name, plan in sorted(plans.items()):
        if not plan.is_sound:
            lost_studies.append(ascii(name)[1:-1][:80])  # it may hold anything
            continue
        is_listed = plan_digest(plan.rows) == plan.digest
        store.replace_study(name, plan.toml, plan.rows if is_listed else ())
        (complete if is_listed else without_list).append(name)
    return Repaired(
        runs,
        tuple(sorted(short_name(key) for key in lost)),
        tuple(complete),
        tuple(without_list),
        tuple(lost_studies),
    )
