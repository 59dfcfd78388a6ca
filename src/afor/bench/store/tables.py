"""The tables of a store: open and create the file, read and check its rows, explain errors.

A run holds the digest of its content, a study that of its TOML and plan, a linear fit that of
its metrics. The columns of a run are compared with its content whenever that is read.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from afor.bench.common.errors import StoreError
from afor.bench.training.record import FinishedRun, decode

SCHEMA_VERSION = 5
APPLICATION_ID = 0x41464F52  # "AFOR" in the file's header, which identifies a store
BUSY_S = 30.0

# The content is the last column, so that reading the others stays fast.
TABLES = {
    "runs": """CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('done', 'diverged', 'failed')),
    reason TEXT NOT NULL,
    elapsed_s REAL NOT NULL,
    finished_at TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    content BLOB NOT NULL
) STRICT, WITHOUT ROWID""",
    "studies": """CREATE TABLE studies (
    name TEXT PRIMARY KEY,
    toml TEXT NOT NULL,
    planned_at TEXT NOT NULL,
    sha256 TEXT NOT NULL
) STRICT, WITHOUT ROWID""",
    "plan": """CREATE TABLE plan (
    study TEXT NOT NULL,
    position INTEGER NOT NULL,
    dataset TEXT NOT NULL,
    backbone TEXT NOT NULL,
    method TEXT NOT NULL,
    fold INTEGER NOT NULL,
    repetition INTEGER NOT NULL,
    key TEXT NOT NULL,
    entry TEXT NOT NULL,
    rate REAL NOT NULL,
    is_search INTEGER NOT NULL,
    protocol TEXT NOT NULL,
    PRIMARY KEY (study, dataset, backbone, method, fold, repetition)
) STRICT, WITHOUT ROWID""",
    "linear": """CREATE TABLE linear (
    fit TEXT PRIMARY KEY,
    metrics TEXT NOT NULL,
    sha256 TEXT NOT NULL
) STRICT, WITHOUT ROWID""",
}


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open an existing store; raise StoreError if the file is not one."""
    if not path.is_file():
        raise StoreError(f"There is no store {path}. `afor run` makes one.")
    if path.stat().st_size == 0:
        raise StoreError(f"{path} is empty, it is not a store. Remove it to begin anew.")
    if write and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreError(f"{path} is read-only. Make file and folder writable, or name another.")
    connection = None
    try:
        connection = sqlite3.connect(
            _address(path, write=write), uri=True, timeout=BUSY_S, isolation_level=None
        )
        _check_identity(path, connection)
        if write:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise damaged(path, verdict)
    except (sqlite3.Error, UnicodeError, StoreError) as error:
        if connection is not None:
            connection.close()
        raise explain(path, error) from error
    return connection


def create(path: Path) -> None:
    """Create an empty store atomically."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN")
            for statement in TABLES.values():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        finally:
            connection.close()
        temporary.replace(path)
    except (sqlite3.Error, OSError) as error:
        with contextlib.suppress(OSError):  # the folder itself may be unusable
            temporary.unlink(missing_ok=True)
        raise explain(path, error) from error


def explain(path: Path, error: BaseException) -> StoreError:
    """Turn an error of SQLite or the file system into a StoreError for the user."""
    if isinstance(error, StoreError):
        return error
    text = str(error)
    if isinstance(error, UnicodeError):
        return damaged(path, "a text in it is not UTF-8")
    if isinstance(error, sqlite3.DatabaseError) and any(word in text for word in _DAMAGE):
        return damaged(path, text)
    if "full" in text or getattr(error, "errno", None) in (28, 122):  # ENOSPC, EDQUOT
        return StoreError(
            f"{path}: the disk is full. All runs written so far are safe; free some space and run "
            f"the same command again."
        )
    if "readonly" in text or "read-only" in text.lower():
        return StoreError(f"{path} is read-only. Make file and folder writable, or name another.")
    return StoreError(
        f"{path} cannot be used ({text}). Check the disk and the permissions, then run the same "
        f"command again: nothing finished is lost."
    )


_DAMAGE = (
    *("not a database", "malformed", "no such table", "no such column", "unsupported file format"),
    *("Could not decode", "too big", "unknown encoding", "authorized"),
)


def damaged(path: Path, reason: str) -> StoreError:
    """Return the StoreError for a damaged file."""
    return StoreError(
        f"{path} is damaged: {reason[:300]}. Restore a copy, or extract the sound runs with "
        f"`afor store repair {path} --output NEW.db`, which says what is lost."
    )


def _check_identity(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program. Name another with --store.")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema {version}, this version of afor reads {SCHEMA_VERSION}. "
            f"Use the version of afor that wrote it, or name another store with --store."
        )
    schema = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if schema != TABLES:
        raise damaged(path, "its tables are not those of a store")


def _address(path: Path, *, write: bool) -> str:
    address = path.resolve().as_uri()
    if write:
        return f"{address}?mode=rw"
    # Without a log no process writes the store, and on a read-only disk a reader cannot create one.
    has_log = path.with_name(f"{path.name}-wal").exists()
    is_fixed = not has_log and not os.access(path.parent, os.W_OK)
    return f"{address}?mode=ro&immutable=1" if is_fixed else f"{address}?mode=ro"


class RunRow(NamedTuple):
    """The columns of a run before its content."""

    key: str
    status: str
    reason: str
    elapsed_s: float
    finished_at: str
    sha256: str  # of the content


@dataclass(frozen=True)
class PlanRow:
    """A planned run of a study."""

    study: str
    position: int
    dataset: str
    backbone: str
    method: str
    fold: int
    repetition: int
    key: str
    entry: str
    rate: float
    is_search: int  # 1 when the run tries a learning rate
    protocol: str  # as `protocol_text` writes it

    @property
    def condition(self) -> tuple[str, str, str]:
        """Return data set, backbone and method."""
        return self.dataset, self.backbone, self.method

    def values(self) -> tuple[Any, ...]:
        """Return the columns in their order."""
        return tuple(getattr(self, name) for name in PLAN_FIELDS)


PLAN_FIELDS = tuple(field.name for field in fields(PlanRow))
RUN_COLUMNS, PLAN_COLUMNS = ", ".join(RunRow._fields), ", ".join(PLAN_FIELDS)
LinearFits = dict[str, dict[str, float]]  # metrics of the linear model by `results.fit_key`


class DamageError(ValueError):
    """A store was altered or is damaged; the message says where."""


@dataclass(frozen=True)
class Rows:
    """All rows of a store, without the contents of its runs."""

    runs: Mapping[str, RunRow]  # by key
    studies: Mapping[str, str]  # name: TOML
    plans: Mapping[str, Sequence[PlanRow]]  # by study, in the order of the plan
    linear: LinearFits


def study_digest(name: str, toml: str, rows: Sequence[PlanRow]) -> str:
    """Return the SHA-256 of a study and its plan."""
    return digest(name, toml, *(row.values() for row in rows))


def digest(*values: object) -> str:
    """Return the SHA-256 of the columns of a row."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()  # ascii: the same on every Python


def run_row(run: FinishedRun, content: bytes, sha256: str = "") -> RunRow:
    """Return the columns of a run and its content, whose sum is computed if it is not given."""
    elapsed_s = float(run.elapsed_s) + 0.0  # SQLite knows no -0.0
    sha256 = sha256 or hashlib.sha256(content).hexdigest()
    return RunRow(run.key, run.status, run.reason, elapsed_s, run.finished_at, sha256)


def check_content(row: RunRow, content: bytes) -> FinishedRun:
    """Decode a run; raise DamageError if its content or a column was altered."""
    key = short_name(row.key)
    try:
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 != row.sha256:
            raise DamageError(f"run {key} has other bytes than were written")
        run = decode(content)
        if row != run_row(run, content, sha256):
            raise DamageError(f"the row of run {key} is not what was written")
        return run
    except DamageError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"run {key}: {error}") from None


def read_checked(connection: sqlite3.Connection) -> Rows:
    """Read all rows in one transaction; raise DamageError if a study is not what was written."""
    connection.execute("BEGIN")
    try:
        runs = {
            row[0]: RunRow(*row) for row in connection.execute(f"SELECT {RUN_COLUMNS} FROM runs")
        }
        plans: dict[str, list[PlanRow]] = {}
        select = f"SELECT {PLAN_COLUMNS} FROM plan ORDER BY study, position"
        for columns in connection.execute(select):
            plans.setdefault(columns[0], []).append(PlanRow(*columns))
        studies: dict[str, str] = {}
        for name, toml, sha256 in connection.execute(
            "SELECT name, toml, sha256 FROM studies ORDER BY name"
        ):
            if study_digest(name, toml, plans.get(name, ())) != sha256:
                raise DamageError(
                    f"the study {short_name(name)} or its plan is not what was written"
                )
            studies[name] = toml
        linear = read_linear(connection)
    finally:
        connection.execute("ROLLBACK")
    if extra := set(plans) - set(studies):
        raise DamageError(f"it plans runs of a study that is not in it ({short_name(min(extra))})")
    return Rows(runs, studies, plans, linear)


def read_linear(connection: sqlite3.Connection) -> LinearFits:
    """Return the fits of the linear model; raise DamageError if one is not what was written."""
    fits: LinearFits = {}
    for fit, metrics, sha256 in connection.execute("SELECT fit, metrics, sha256 FROM linear"):
        if digest(fit, metrics) != sha256:
            raise DamageError(f"the linear fit {short_name(fit)} is not what was written")
        fits[fit] = json.loads(metrics)
    return fits


def short_name(text: object) -> str:
    """Return the first 12 characters of a name or key for a message."""
    return ascii(text)[1:-1][:12] if isinstance(text, str) else "?"
