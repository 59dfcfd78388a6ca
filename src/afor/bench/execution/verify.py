"""Train finished runs again and compare every number bit for bit."""

import random
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from afor.bench.common.errors import ConfigError, DataError, StoreError
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Ended, Job
from afor.bench.store.database import Store, StoredRun
from afor.bench.study.named_code import list_names, names_in_spec
from afor.bench.study.planned_runs import run_key
from afor.bench.training.execute import cut_for, environment
from afor.bench.training.record import FinishedRun, decode


@dataclass(frozen=True)
class RepeatedRun:
    """The comparison of a stored run with its repetition."""

    stored: StoredRun
    is_same: bool
    differs_in: tuple[str, ...]
    note: str  # what differs between the two environments


def sample_runs(
    store: Store, count: int, seed: int, leave_out: Container[str] = ()
) -> list[StoredRun]:
    """Choose finished runs to repeat at random, without duplicates; 0 returns all.

    Runs whose keys are in `leave_out` are not chosen.
    """
    stored_runs = {run.key: run for run in store.runs() if run.status in ("done", "diverged")}
    stored_runs = {key: stored for key, stored in stored_runs.items() if key not in leave_out}
    sample = list(stored_runs.values())
    return random.Random(seed).sample(sample, count) if 0 < count < len(sample) else sample


def runs_with_code(store: Store, stored_runs: Sequence[StoredRun]) -> dict[str, tuple[str, ...]]:
    """Return the custom code that each run refers to, by key; import nothing.

    Raises StoreError if the key of a run is not that of its spec, which was then altered.
    """
    names = {}
    for stored in stored_runs:
        run = store.run(stored.key)
        if run is None:
            continue
        check_key(run, store.path)
        if custom_code := names_in_spec(run.spec):
            names[stored.key] = custom_code
    return names


def check_key(run: FinishedRun, path: Path) -> None:
    """Raise StoreError unless the key of a run is the hash of its spec."""
    try:
        key = run_key(run.spec)
    except (TypeError, ValueError, RecursionError):
        key = ""
    if key != run.key:
        raise StoreError(
            f"{path}: the spec of run {run.key[:12]} is not the one its key was made from. The "
            f"store was changed after the run; do not use it, and get the original from where "
            f"it came."
        )


def verify_runs(
    store: Store,
    stored_runs: Sequence[StoredRun],
    sources: Mapping[str, WindowSource],
    spool: Path,
    workers: int,
    *,
    trust: bool = False,
) -> Generator[RepeatedRun, None, None]:
    """Repeat runs and yield each with its comparison; closing the generator stops the workers.

    The store is only read. With `trust`, code that a run names and that is not part of afor is run.

    Raises:
        ConfigError: A run names custom code and `trust` is not set.
        DataError: The data differ from those of a run.
        StoreError: The spec of a run was altered.
    """
    by_key = {stored.key: stored for stored in stored_runs}
    finished: dict[str, FinishedRun] = {}
    for key, stored in by_key.items():
        run = store.run(key)
        if run is None:
            continue
        check_key(run, store.path)
        if not trust and (names := names_in_spec(run.spec)):
            raise ConfigError(
                f"{store.path}: run {key[:12]} names code that is not part of afor: "
                f"{list_names(names)}. Pass trust=True to train it."
            )
        fingerprint = run.spec["data"]["fingerprint"]
        here = cut_for(run.spec, sources[stored.dataset]).fingerprint
        if here != fingerprint:
            raise DataError(
                f"{stored.dataset}: the data here is not the data run {key[:12]} was trained on "
                f"(fingerprint {here[:12]}, then {fingerprint[:12]}). "
                f"Use the same files and options."
            )
        finished[key] = run
    jobs = [Job(key, run.spec, by_key[key].dataset) for key, run in finished.items()]
    threads = max((run.spec["threads"] for run in finished.values()), default=1)
    with closing(LocalEngine(workers, threads).run(jobs, sources, spool)) as events:
        for event in events:
            if isinstance(event, Ended):
                if event.spool is not None:
                    event.spool.unlink(missing_ok=True)
                yield _compare(by_key[event.key], finished[event.key], decode(event.content))


def _compare(stored: StoredRun, before: FinishedRun, after: FinishedRun) -> RepeatedRun:
    if before.record is None or after.record is None:
        return RepeatedRun(stored, is_same=False, differs_in=(after.reason,), note="")
    stored_numbers, new_numbers = before.record.numbers(), after.record.numbers()
    # As text, NaN equals NaN, and every bit of a float counts.
    differing = tuple(
        name for name in stored_numbers if repr(stored_numbers[name]) != repr(new_numbers[name])
    )
    here = {**after.environment, "torch": after.environment["torch"] or environment()["torch"]}
    changed = [
        f"{name} {before.environment.get(name, '?')} then, {value} now"
        for name, value in here.items()
        if name != "host" and before.environment.get(name) != value
    ]
    if differing and not changed and before.spec.get("device") == "cuda":
        changed.append(
            "the same GPU and versions: on CUDA torch gives the same bits only where it has "
            "deterministic algorithms"
        )
    return RepeatedRun(stored, not differing, differing, "; ".join(changed))
