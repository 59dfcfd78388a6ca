"""The rows of a store, and how they are read and checked.

A run holds the digest of its content, a study the digest of its TOML and its plan. The columns of a
run are compared with its content whenever that is read.
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class DamageError(ValueError):
    """A store was altered or is damaged; the message says where."""


@dataclass(frozen=True)
class Rows:
    """All rows of a store, without the contents of its runs."""

    runs: Mapping[str, RunRow]  # by key
    studies: Mapping[str, str]  # name: TOML
    plans: Mapping[str, Sequence[PlanRow]]  # by study, in the order of the plan


def study_digest(name: str, toml: str, rows: Sequence[PlanRow]) -> str:
    """Return the SHA-256 of a study and its plan."""
    values = (name, toml, *map(tuple, rows))
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


def read_rows(connection: sqlite3.Connection) -> Rows:
    """Read all rows in one transaction; raise DamageError if a study is not what was written."""
    connection.execute("BEGIN")
    try:
        runs = {
            row[0]: RunRow(*row) for row in connection.execute(f"SELECT {RUN_COLUMNS} FROM runs")
        }
        plans: dict[str, list[PlanRow]] = {}
        select = f"SELECT {PLAN_COLUMNS} FROM plan ORDER BY study, position"
        for row in map(PlanRow._make, connection.execute(select)):
            plans.setdefault(row.study, []).append(row)
        studies: dict[str, str] = {}
        for name, toml, sha256 in connection.execute(
            "SELECT name, toml, sha256 FROM studies ORDER BY name"
        ):
            if study_digest(name, toml, plans.get(name, ())) != sha256:
                raise DamageError(
                    f"the study {short_name(name)} or its plan is not what was written"
                )
            studies[name] = toml
    finally:
        connection.execute("ROLLBACK")
    if extra := set(plans) - set(studies):
        raise DamageError(f"it plans runs of a study that is not in it ({short_name(min(extra))})")
    return Rows(runs, studies, plans)


def short_name(text: object) -> str:
    """Return the first 12 characters of a name or key for a message."""
    return ascii(text)[1:-1][:12] if isinstance(text, str) else "?"
