"""Read all rows of a store in one transaction and check them before use.

Every row of `runs` and `studies` holds a digest of its columns, a study also one of its plan, and
the store the XOR of all of these: a row that was changed, added or removed by anything but `Store`
is noticed.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from afor.bench.store.schema import EMPTY_TOTAL
from afor.bench.training.record import FinishedRun, decode


class RunRow(NamedTuple):
    """The columns of a run before its content."""

    key: str
    status: str
    reason: str
    elapsed_s: float
    finished_at: str
    sha256: str  # of the content


class PlanRow(NamedTuple):
    """A planned run of a study."""

    study: str
    position: int
    dataset: str
    backbone: str
    optimizer: str
    fold: int
    draw: int
    key: str
    entry: str
    rate: float
    is_search: int
    protocol: str  # as `protocol_text` writes it


RUN_COLUMNS, PLAN_COLUMNS = ", ".join(RunRow._fields), ", ".join(PlanRow._fields)
SELECT_PLANS = f"SELECT {PLAN_COLUMNS} FROM cells ORDER BY study, position"


class DamageError(ValueError):
    """A store was altered or is damaged; the message says where."""


@dataclass(frozen=True)
class Rows:
    """All rows of a store, without the contents of its runs."""

    runs: Mapping[str, RunRow]  # by key
    studies: Mapping[str, str]  # name: TOML
    plans: Mapping[str, Sequence[PlanRow]]  # by study, in the order of the plan


def digest(*values: object) -> str:
    """Return the SHA-256 of values as SQLite returns them.

    >>> digest("a", 1.0) == digest("a", 1)
    False
    """
    return hashlib.sha256(ascii(values).encode()).hexdigest()  # ascii: the same on every Python


def plan_digest(rows: Iterable[PlanRow]) -> str:
    """Return the SHA-256 of the list of runs of a study."""
    return digest(*map(tuple, rows))


def run_row(content: bytes) -> RunRow:
    """Return the columns of a run's content; raise ValueError if it is not a finished run."""
    run = decode(content)
    elapsed_s = float(run.elapsed_s) + 0.0  # SQLite knows no -0.0
    sha256 = hashlib.sha256(content).hexdigest()
    return RunRow(run.key, run.status, run.reason, elapsed_s, run.finished_at, sha256)


def combine(total: str, row_digest: str) -> str:
    """Add a row's digest to the total of a store, or remove it."""
    return f"{int(total, 16) ^ int(row_digest, 16):064x}"


def read_rows(connection: sqlite3.Connection) -> Rows:
    """Read and check all rows in one transaction; raise DamageError if one is wrong."""
    connection.execute("BEGIN")
    try:
        rows = _read(connection)
    finally:
        connection.execute("ROLLBACK")
    if extra := set(rows.plans) - set(rows.studies):
        raise DamageError(f"it lists runs of a study that is not in it ({short_name(min(extra))})")
    return rows


def plans_by_study(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[PlanRow]]:
    """Return the rows of each study's plan."""
    plans: dict[Any, list[PlanRow]] = {}
    for row in map(PlanRow._make, rows):
        plans.setdefault(row.study, []).append(row)
    return plans


def _read(connection: sqlite3.Connection) -> Rows:
    total = EMPTY_TOTAL
    runs: dict[str, RunRow] = {}
    last_key = ""
    for *columns, row_digest in connection.execute(f"SELECT {RUN_COLUMNS}, row_sha256 FROM runs"):
        row = RunRow(*columns)
        if digest(*row) != row_digest:
            raise DamageError(f"the row of run {short_name(row.key)} is not what was written")
        if row.key <= last_key:
            raise DamageError("its runs are out of order")
        last_key = row.key
        runs[last_key] = row
        total = combine(total, row_digest)
    plans = plans_by_study(connection.execute(SELECT_PLANS))
    studies: dict[str, str] = {}
    for name, toml, planned_at, cells_sha256, row_digest in connection.execute(
        "SELECT name, toml, planned_at, cells_sha256, row_sha256 FROM studies ORDER BY name"
    ):
        if digest(name, toml, planned_at, cells_sha256) != row_digest:
            raise DamageError(f"the study {short_name(name)} is not what was written")
        if plan_digest(plans.get(name, ())) != cells_sha256:
            raise _altered_plan(name)
        studies[name] = toml
        total = combine(total, row_digest)
    if connection.execute("SELECT sha256 FROM total").fetchall() != [(total,)]:
        raise DamageError("runs or studies are missing or were added by something else than afor")
    return Rows(runs, studies, plans)


def check_content(row: RunRow, content: bytes) -> FinishedRun:
    """Decode a run; raise DamageError if its content or a column was altered."""
    key = short_name(row.key)
    try:
        if hashlib.sha256(content).hexdigest() != row.sha256:
            raise DamageError(f"run {key} has other bytes than were written")
        if row != run_row(content):
            raise DamageError(f"the row of run {key} is not what was written")
        return decode(content)
    except DamageError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"run {key}: {error}") from None


def _altered_plan(study: str) -> DamageError:
    return DamageError(f"the list of runs of study {short_name(study)} is not what was written")


def short_name(text: object) -> str:
    """Return the first 12 characters of a name or key for a message."""
    return ascii(text)[1:-1][:12] if isinstance(text, str) else "?"
