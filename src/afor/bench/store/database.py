"""Store all finished runs in one SQLite file, which only the driver writes.

    with open_store(Path("results/demo.db")) as store:
        table = store.results()

The table `runs` holds each run once, by its key; the table `plan` lists the planned runs of each
study. Every write is one transaction, synced to the disk before it counts. A run or a study is
checked against its digest before it is returned.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.results import RunResult, fit_key
from afor.bench.store.tables import (
    PLAN_COLUMNS,
    PLAN_FIELDS,
    RUN_COLUMNS,
    DamageError,
    LinearFits,
    PlanRow,
    Rows,
    RunRow,
    check_content,
    connect,
    create,
    damaged,
    digest,
    explain,
    read_checked,
    run_row,
    study_digest,
)
from afor.bench.study.planned_runs import (
    RUN_FIELDS,
    ExpectedRuns,
    PlannedRun,
    StudyPlan,
    count_expected,
)
from afor.bench.study.protocol import (
    DATA_KIND,
    SCORED,
    Difference,
    differences,
    protocol_text,
    read_protocol,
    setting,
    study_difference,
)
from afor.bench.study.roles import Role, roles_of, run_role
from afor.bench.study.schema import Study, parse_study
from afor.bench.training.record import FinishedRun, decode


@dataclass(frozen=True)
class StoredRun(PlanRow):
    """A planned run and its status: done, diverged, failed or open."""

    role: Role | None  # of its method; None if the study file cannot be read
    status: str = "open"
    reason: str = ""
    elapsed_s: float = 0.0
    finished_at: str = ""

    @property
    def data_kind(self) -> str:
        """Whether its data are recorded, a stand-in or synthetic."""
        return setting(read_protocol(self.protocol), DATA_KIND)


class Store:
    """An open store. Use `open_store` or `open_or_create`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._execute = connection.execute
        self._identity = _identity(path)
        self._checked_rows: tuple[int, Rows] | None = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the last connection to close merges the write-ahead log into it."""
        self._connection.close()

    def add(self, content: bytes, *, replace_failed: bool = False) -> bool:
        """Write a finished run as `execute` returns it; return False if it is stored already.

        A failed run of the same key stays, unless `replace_failed` is set.
        """
        row = run_row(decode(content), content)
        with self._writing():
            present = self._execute("SELECT status FROM runs WHERE key = ?", (row.key,)).fetchone()
            if present == ("failed",) and replace_failed:
                self._execute("DELETE FROM runs WHERE key = ?", (row.key,))
            elif present is not None:
                return False
            self._execute(
                f"INSERT INTO runs ({RUN_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*row, content),
            )
        return True

    def set_plan(self, plan: StudyPlan, toml: str) -> None:
        """Write the plan of a study; an older plan of the same name is replaced."""
        study, is_search = plan.study.name, int(plan.study.search is not None)
        shared = [name for name in PLAN_FIELDS if name in PlannedRun.__dataclass_fields__]
        rows = []
        for position, run in enumerate(plan.runs):
            values = {name: getattr(run, name) for name in shared}
            values |= {"rate": float(run.rate), "protocol": protocol_text(run.protocol)}
            rows.append(PlanRow(study=study, position=position, is_search=is_search, **values))
        self.replace_study(study, toml, rows)

    def replace_study(self, study: str, toml: str, rows: Sequence[PlanRow]) -> None:
        """Write a study and the rows of its plan; an older study of the same name is replaced."""
        planned_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._writing():
            self._execute("DELETE FROM studies WHERE name = ?", (study,))
            self._execute("DELETE FROM plan WHERE study = ?", (study,))
            places = ", ".join("?" * len(PLAN_FIELDS))
            self._connection.executemany(
                f"INSERT INTO plan ({PLAN_COLUMNS}) VALUES ({places})",
                [row.values() for row in rows],
            )
            self._execute(
                "INSERT INTO studies (name, toml, planned_at, sha256) VALUES (?, ?, ?, ?)",
                (study, toml, planned_at, study_digest(study, toml, rows)),
            )

    def statuses(self) -> dict[str, str]:
        """Return the status of every run by its key."""
        return {key: row.status for key, row in self._rows().runs.items()}

    def studies(self) -> dict[str, str]:
        """Return the TOML of every study planned here."""
        return dict(self._rows().studies)

    def runs(self, study: str | None = None) -> list[StoredRun]:
        """Return the planned runs in their order, of one study or of all."""
        rows = self._rows()
        stored = []
        for name in sorted(rows.plans) if study is None else [study]:
            roles = _stored_roles(rows.studies.get(name, ""))
            for planned in rows.plans.get(name, ()):
                role = run_role(roles, planned.entry, label=planned.method)
                outcome = rows.runs[planned.key]._asdict() if planned.key in rows.runs else {}
                values = {**outcome, **vars(planned), "role": role}
                values.pop("sha256", None)
                stored.append(StoredRun(**values))
        return stored

    def run(self, key: str) -> FinishedRun | None:
        """Return one run, or None; raise StoreError if its content was altered."""
        stored = self._read_run(key)
        return stored[0] if stored else None

    def _read_run(self, key: str) -> tuple[FinishedRun, bytes] | None:
        """Return a run and its bytes."""
        with self._reading():
            select = f"SELECT {RUN_COLUMNS}, content FROM runs WHERE key = ?"
            row = self._execute(select, (key,)).fetchone()
            return (check_content(RunRow(*row[:-1]), row[-1]), row[-1]) if row else None

    def keys_like(self, prefix: str) -> list[str]:
        """Return the keys of finished and planned runs that start with these digits."""
        rows = self._rows()
        keys = set(rows.runs) | {row.key for plan in rows.plans.values() for row in plan}
        return sorted(key for key in keys if key.startswith(prefix))

    def contents(self) -> Iterator[bytes]:
        """Yield the bytes of every run as they were written."""
        for key in sorted(self._rows().runs):
            if stored := self._read_run(key):
                yield stored[1]

    def results(self, study: str | None = None) -> list[RunResult]:
        """Return the results of all finished runs, in the order of the plan.

        A learning rate search counts only if it is named or if the store holds nothing else.
        """
        results, fits = [], self.linear_fits()
        for stored in self._counted_runs(study):
            run = self.finished(stored)  # also if not done: its status is checked with it
            if run is not None and run.status == "done":
                results.append(run_result(stored, run, fits))
        return results

    def finished(self, stored: StoredRun) -> FinishedRun | None:
        """Return what a planned run left, or None if it is open; raise StoreError if it is gone."""
        if stored.status == "open":
            return None
        run = self.run(stored.key)
        if run is None:
            raise damaged(self.path, f"run {stored.key[:12]} cannot be found by its key")
        return run

    def linear_fits(self) -> LinearFits:
        """Return the metrics of the linear model by the data and split of a run."""
        return self._rows().linear

    def add_linear_fits(self, fits: LinearFits) -> None:
        """Write fits of the linear model; one of the same data and split is replaced."""
        with self._writing():
            for row in ((fit, json.dumps(metrics)) for fit, metrics in fits.items()):
                self._execute(
                    "INSERT OR REPLACE INTO linear (fit, metrics, sha256) VALUES (?, ?, ?)",
                    (*row, digest(*row)),
                )

    def expected(self, study: str | None = None) -> list[ExpectedRuns]:
        """Count the planned folds and repetitions of each condition."""
        return count_expected(self._counted_runs(study))

    def _counted_runs(self, study: str | None) -> list[StoredRun]:
        """Return the runs of studies that are no search; those of searches if there is no other."""
        stored = self.runs(study)
        return [run for run in stored if not run.is_search] or stored

    def forget(self, keys: Sequence[str]) -> None:
        """Delete runs, so that the next `afor run` repeats them."""
        with self._writing():
            for key in keys:
                self._execute("DELETE FROM runs WHERE key = ?", (key,))

    def merge(self, other: "Store") -> tuple[int, int, int]:
        """Copy runs, plans and linear fits of another store into this one.

        Nothing is copied if the two hold different studies under one name.

        A run that is done in one store and failed in the other is stored as done. If both have a
        run with different numbers, this store keeps its version. Returns the numbers of new runs,
        of runs that were here already, and of those that differ.
        """
        check_mergeable([self, other])
        new = present = differing = 0
        for content in other.contents():
            if self.add(content, replace_failed=True):
                new += 1
                continue
            present += 1
            theirs = decode(content)
            ours = self.run(theirs.key)
            if ours and ours.record and theirs.record:
                differing += repr(ours.record.numbers()) != repr(theirs.record.numbers())
        for study, toml in other.studies().items():
            rows = other.plan_rows(study)
            merged = {row.values()[2:7]: row for row in (*self.plan_rows(study), *rows)}
            ordered = sorted(merged.values(), key=lambda row: row.position)
            numbered = [replace(row, position=n) for n, row in enumerate(ordered)]
            self.replace_study(study, toml, numbered)
        if fits := other.linear_fits():
            self.add_linear_fits({**fits, **self.linear_fits()})
        return new, present, differing

    def plan_rows(self, study: str) -> list[PlanRow]:
        """Return the rows of a study's plan."""
        return list(self._rows().plans.get(study, ()))

    def check(self) -> None:
        """Read the whole file; raise StoreError if a page, a row or a run is damaged."""
        with self._reading():
            (verdict,) = self._execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(self.path, verdict)
        for key in self.statuses():
            if self._read_run(key) is None:
                raise damaged(self.path, f"run {key[:12]} cannot be found by its key")

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to the file that was opened."""
        return _identity(self.path) == self._identity

    def _rows(self) -> Rows:
        """Return all checked rows without contents; they are read again only after a write."""
        with self._reading():
            (version,) = self._execute("PRAGMA data_version").fetchone()
            if self._checked_rows is None or self._checked_rows[0] != version:
                self._checked_rows = (version, read_checked(self._connection))
            return self._checked_rows[1]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._checked_rows = None
        try:
            with self._connection:
                self._execute("BEGIN IMMEDIATE")
                yield
        except (sqlite3.Error, UnicodeError) as error:
            raise explain(self.path, error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except DamageError as error:
            raise damaged(self.path, str(error)) from None
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise explain(self.path, error) from error


def open_store(path: Path, *, write: bool = False) -> Store:
    """Open an existing store.

    Args:
        path: The store of a study, a ``.db`` file.
        write: Open for writing.

    Returns:
        The store, to be closed or used in a ``with`` statement.

    Raises:
        StoreError: The file is missing, damaged or not a store.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "study.db"
        >>> open_or_create(path).close()
        >>> with open_store(path) as store:
        ...     print(store.results())
        []
    """
    store = Store(path, connect(path, write=write))
    if write:
        try:
            store.statuses()  # nothing is written to a damaged store
        except BaseException:
            store.close()
            raise
    return store


def open_or_create(path: Path) -> Store:
    """Open a store for writing; create it if it does not exist."""
    if not path.exists():
        create(path)
    return open_store(path, write=True)


def check_mergeable(stores: Sequence[Store]) -> None:
    """Raise StoreError if two stores hold studies of one name whose runs do not belong together.

    Their runs of one condition, fold and repetition must be the same, and all runs of a
    fold and repetition must have one protocol.
    """
    planned: dict[tuple[object, ...], tuple[Store, PlanRow]] = {}
    for store in stores:
        for row in (row for study in store.studies() for row in store.plan_rows(study)):
            condition = (row.study, row.dataset, row.backbone, row.fold, row.repetition)
            first, known = planned.setdefault((*condition, row.method), (store, row))
            other, beside = planned.setdefault(condition, (store, row))
            if known.key != row.key:
                raise StoreError(_conflict(first, known, store, row))
            if any(differences([read_protocol(beside.protocol), read_protocol(row.protocol)])):
                raise StoreError(_conflict(other, beside, store, row))


def _conflict(first: Store, known: PlanRow, store: Store, row: PlanRow) -> str:
    """Say in what two studies of one name differ."""
    difference = None
    with suppress(ConfigError):  # a study of another version
        one, other = (parse_study(s.studies()[row.study]) for s in (first, store))
        difference = study_difference(one, other)
    protocols = [read_protocol(known.protocol), read_protocol(row.protocol)]
    difference = difference or next(differences(protocols), None)
    values = difference.values if difference else (known.key[:12], row.key[:12])
    return (
        f"{first.path} and {store.path} hold different studies of the name {row.study}: "
        f"{difference.key if difference else 'the key of a run'} is {values[0]} in the first and "
        f"{values[1]} in the second. Give one of them another name and run it again, or merge the "
        f"stores of each study by themselves."
    )


def stored_difference(study: Study, path: Path) -> Difference | None:
    """Return the first setting in which a study differs from the one of its name in a store.

    Returns None also if the store does not exist or does not hold a study of this name.
    """
    if not path.is_file():
        return None
    with open_store(path) as store:
        toml = store.studies().get(study.name)
    if toml is None:
        return None
    try:
        return study_difference(study, parse_study(toml))
    except ConfigError:  # a study of another version
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@cache
def _stored_roles(toml: str) -> Mapping[str, Role]:
    """Return the roles of a study's methods; none if its file cannot be read."""
    try:
        return roles_of(parse_study(toml))
    except (ConfigError, RecursionError):  # written by another version
        return {}


def run_result(stored: StoredRun, run: FinishedRun, fits: LinearFits) -> RunResult:
    """Return the result of a run that is done, scored as its protocol says."""
    record = run.record
    if record is None or record.test is None:
        raise ValueError(f"run {stored.key[:12]} is done but was never tested")
    protocol = read_protocol(stored.protocol)
    test, metrics = record.test, record.metrics()
    if setting(protocol, SCORED) == "trials" and record.test_trials is not None:
        test = record.test_trials
        metrics = {name: getattr(test, name) for name in metrics}
    truth = [sum(row) for row in test.confusion]
    majority = record.train_class_counts.index(max(record.train_class_counts))
    same = ("study", *RUN_FIELDS, "key", "role", "elapsed_s")
    return RunResult(
        **{name: getattr(stored, name) for name in same},
        test_subjects=tuple(run.spec["split"]["test"]),
        metrics=metrics,
        majority_accuracy=truth[majority] / sum(truth),
        classes=len(truth),
        test_windows=test.n,
        train_counts=record.train_class_counts,
        test_counts=tuple(truth),
        protocol=protocol,
        linear=fits.get(fit_key(protocol), {}),
    )
