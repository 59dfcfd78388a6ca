"""All finished runs in one SQLite file, written by the driver alone.

    with open_store(Path("results/demo.db")) as store:
        table = store.results()

`runs` holds each run once, by its key; `cells` says which runs a study consists of. Every write is
one transaction, synced to the disk before it counts.
"""

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from afor.bench.execute import FinishedRun, decode
from afor.bench.plan import Cell, Plan, count_expected
from afor.bench.results import Expected, RunResult
from afor.bench.store_file import connect, create, damaged, explain

METRICS = ("accuracy", "weighted_f1", "macro_f1", "balanced_accuracy", "kappa")


@dataclass(frozen=True)
class StoredCell:
    """A planned run and how it stands: done, diverged, failed or open."""

    study: str
    dataset: str
    backbone: str
    optimizer: str
    fold: int
    draw: int
    key: str
    entry: str
    rate: float
    is_search: int  # 1 when the run tries a learning rate
    status: str
    reason: str
    elapsed_s: float
    finished_at: str


class Store:
    """An open store. Use `open_store` or `open_or_create`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the last to close folds the write-ahead log into it."""
        self._connection.close()

    def add(self, content: bytes, *, replace_failed: bool = False) -> bool:
        """Write a finished run, as `execute` returns it; return False when it is already here."""
        run = decode(content)
        row = (
            run.key,
            run.status,
            run.reason,
            run.elapsed_s,
            run.finished_at,
            content,
            hashlib.sha256(content).hexdigest(),
        )
        with self._writing():
            if replace_failed:
                self._connection.execute(
                    "DELETE FROM runs WHERE key = ? AND status = 'failed'", (run.key,)
                )
            added = self._connection.execute(
                "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row
            )
        return added.rowcount > 0

    def set_plan(self, plan: Plan, toml: str) -> None:
        """Write which runs a study consists of; an older plan of the same name is replaced."""
        self.set_cells(plan.study.name, toml, plan.cells, is_search=plan.study.search is not None)

    def set_cells(self, study: str, toml: str, cells: Sequence[Cell], *, is_search: bool) -> None:
        """Replace the cells of a study."""
        rows = [
            (study, position, *_place(c), c.key, c.entry, c.rate, int(is_search))
            for position, c in enumerate(cells)
        ]
        self._replace_study(study, toml, rows)

    def _replace_study(self, study: str, toml: str, rows: Sequence[tuple[Any, ...]]) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._writing():
            self._connection.execute("DELETE FROM cells WHERE study = ?", (study,))
            self._connection.executemany(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO studies VALUES (?, ?, ?)", (study, toml, moment)
            )

    def statuses(self) -> dict[str, str]:
        """Return the status of every run by its key."""
        with self._reading():
            return dict(self._connection.execute("SELECT key, status FROM runs"))

    def studies(self) -> dict[str, str]:
        """Return the TOML of every study planned here."""
        with self._reading():
            return dict(self._connection.execute("SELECT name, toml FROM studies ORDER BY name"))

    def cells(self, study: str | None = None) -> list[StoredCell]:
        """Return the planned runs in their order, of one study or of all."""
        query = (
            "SELECT study, dataset, backbone, optimizer, fold, draw, cells.key, entry, rate,"
            " is_search, coalesce(status, 'open'), coalesce(reason, ''), coalesce(elapsed_s, 0.0),"
            " coalesce(finished_at, '') FROM cells LEFT JOIN runs ON runs.key = cells.key"
            " WHERE ?1 IS NULL OR study = ?1 ORDER BY study, position"
        )
        with self._reading():
            rows = self._connection.execute(query, (study,)).fetchall()
        return [StoredCell(*row) for row in rows]

    def run(self, key: str) -> FinishedRun | None:
        """Return one run; StoreError when its content is not what was written."""
        with self._reading():
            row = self._connection.execute(
                "SELECT content, sha256 FROM runs WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else self._checked(key, *row)

    def keys_like(self, prefix: str) -> list[str]:
        """Return the keys of runs and cells that start with these digits."""
        query = (
            "SELECT key FROM runs WHERE substr(key, 1, ?1) = ?2"
            " UNION SELECT key FROM cells WHERE substr(key, 1, ?1) = ?2"
        )
        with self._reading():
            return [key for (key,) in self._connection.execute(query, (len(prefix), prefix))]

    def contents(self) -> Iterator[bytes]:
        """Yield every run as it was written."""
        for key in sorted(self.statuses()):
            with self._reading():
                content, digest = self._connection.execute(
                    "SELECT content, sha256 FROM runs WHERE key = ?", (key,)
                ).fetchone()
            self._checked(key, content, digest)
            yield content

    def results(self, study: str | None = None) -> list[RunResult]:
        """Return what the statistics need of every done run, in the order of the plan.

        A search for learning rates counts only when it is asked for, or when there is nothing else.
        """
        found = []
        for cell in self._judged(study):
            run = self.run(cell.key) if cell.status == "done" else None
            if run is not None:
                found.append(_result(cell, run))
        return found

    def expected(self, study: str | None = None) -> list[Expected]:
        """Count the planned folds and draws of each cell of the tables."""
        return count_expected([_place(cell) for cell in self._judged(study)])

    def _judged(self, study: str | None) -> list[StoredCell]:
        cells = self.cells(study)
        return [cell for cell in cells if not cell.is_search] or cells

    def forget_failed(self, study: str | None = None) -> int:
        """Remove failed runs, so that the next `afor run` repeats them; return how many."""
        query = (
            "DELETE FROM runs WHERE status = 'failed' AND (?1 IS NULL OR key IN"
            " (SELECT key FROM cells WHERE study = ?1))"
        )
        with self._writing():
            return self._connection.execute(query, (study,)).rowcount

    def merge(self, other: "Store") -> tuple[int, int, int]:
        """Take over runs and plans of another store: (new, already here, of these different).

        A run done in one store and failed in the other counts as done. Of two runs with the same
        key and other numbers the one that is here stays.
        """
        new = known = differing = 0
        for content in other.contents():
            if self.add(content, replace_failed=True):
                new += 1
                continue
            known += 1
            theirs = decode(content)
            ours = self.run(theirs.key)
            if ours and ours.record and theirs.record:
                differing += repr(ours.record.numbers()) != repr(theirs.record.numbers())
        for study, toml in other.studies().items():
            rows = other.raw_cells(study)
            merged = {tuple(row[2:7]): row for row in (*self.raw_cells(study), *rows)}
            ordered = sorted(merged.values(), key=lambda row: row[1])
            numbered = [(row[0], n, *row[2:]) for n, row in enumerate(ordered)]
            self._replace_study(study, toml, numbered)
        return new, known, differing

    def raw_cells(self, study: str) -> list[tuple[Any, ...]]:
        """Return the rows of a study's plan."""
        with self._reading():
            return self._connection.execute(
                "SELECT * FROM cells WHERE study = ? ORDER BY position", (study,)
            ).fetchall()

    def check(self) -> None:
        """Read everything; StoreError when a page or a run is damaged."""
        with self._reading():
            (verdict,) = self._connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise damaged(self.path, verdict)
        for _ in self.contents():
            pass

    def _checked(self, key: str, content: bytes, digest: str) -> FinishedRun:
        if hashlib.sha256(content).hexdigest() != digest:
            raise damaged(self.path, f"run {key[:12]} has other bytes than were written")
        try:
            return decode(content)
        except ValueError as error:
            raise damaged(self.path, f"run {key[:12]}: {error}") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
        except sqlite3.Error as error:
            raise explain(self.path, error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain(self.path, error) from error


def open_store(path: Path, *, write: bool = False) -> Store:
    """Open an existing store; StoreError says what is wrong with the file and what to do."""
    return Store(path, connect(path, write=write))


def open_or_create(path: Path) -> Store:
    """Open a store for writing and make it first if there is none."""
    if not path.exists():
        create(path)
    return open_store(path, write=True)


def _place(cell: Cell | StoredCell) -> tuple[str, str, str, int, int]:
    return (cell.dataset, cell.backbone, cell.optimizer, cell.fold, cell.draw)


def _result(cell: StoredCell, run: FinishedRun) -> RunResult:
    record = run.record
    if record is None or record.test is None:
        raise ValueError(f"run {cell.key[:12]} is done but was never tested")
    truth = [sum(row) for row in record.test.confusion]
    majority = record.train_class_counts.index(max(record.train_class_counts))
    return RunResult(
        study=cell.study,
        dataset=cell.dataset,
        backbone=cell.backbone,
        optimizer=cell.optimizer,
        fold=cell.fold,
        draw=cell.draw,
        test_subjects=tuple(run.spec["split"]["test"]),
        metrics={name: getattr(record.test, name) for name in METRICS},
        majority_accuracy=truth[majority] / sum(truth),
        classes=len(truth),
        test_windows=record.test.n,
        key=cell.key,
    )
