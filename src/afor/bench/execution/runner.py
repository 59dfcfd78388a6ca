"""Run a study: give the planned runs that the store lacks to an engine, and store the results.

    summary = run_study(load_study("demo"), text, Path("results/demo.db"), LocalEngine(2))

Called again, it continues where it was interrupted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from afor.bench.common.devices import pick_device
from afor.bench.common.errors import EngineError, StoreError
from afor.bench.common.files import write_atomically
from afor.bench.data.splits import manifest_text
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.jobs import Died, Ended, Engine, Job, Started
from afor.bench.execution.linear_reference import fit_references
from afor.bench.execution.run_times import RunTimes, run_kind
from afor.bench.execution.sources import PreparationWatcher, open_sources
from afor.bench.execution.status import RunningFile
from afor.bench.store.database import Store, open_or_create
from afor.bench.store.lock import locked
from afor.bench.store.spool import leftovers, quarantine, read_spool, spool_folder
from afor.bench.store.tables import explain
from afor.bench.study.plan import make_plan, shard
from afor.bench.study.planned_runs import FindRate, PlannedRun, StudyPlan
from afor.bench.study.schema import Study
from afor.bench.training.record import FinishedRun, decode
from afor.bench.training.run_spec import DEFAULT_TRAINER


class Watcher(PreparationWatcher, Protocol):
    """Observes the execution of a study, such as `Progress` of the command `run`."""

    def planned(self, runs: tuple[PlannedRun, ...], statuses: Mapping[str, str]) -> None:
        """Receive all planned runs and the statuses of those that ended."""

    def started(self, key: str, worker: str, together: int = 1) -> None:
        """Receive the start of a run, one of several that its worker trains at once."""

    def ended(self, run: FinishedRun) -> None:
        """Receive a run that was stored."""


@dataclass(frozen=True)
class Summary:
    """Numbers of runs of a study by status."""

    planned: int
    done: int
    diverged: int
    failed: int
    trained: int  # by this call

    @property
    def open(self) -> int:
        """Number of runs that are not finished."""
        return self.planned - self.done - self.diverged - self.failed


def run_study(
    study: Study,
    toml: str,
    path: Path,
    engine: Engine,
    *,
    part: tuple[int, int] | None = None,
    find_rate: FindRate | None = None,
    cache_dir: Path | None = None,
    watch: Watcher | None = None,
) -> Summary:
    """Train every run of a study that the store does not contain yet.

    Called again after an interruption, it continues with the missing runs.

    Args:
        study: The study.
        toml: The text of the study, kept in the store.
        path: The store, created if it does not exist.
        engine: Executes the runs, such as `LocalEngine`.
        part: ``(i, n)`` trains only the i-th of n parts of the study, counted from 1.
        find_rate: Returns the learning rate from a search; None uses the rates of the study.
        cache_dir: Folder of the prepared data; None uses ``$AFOR_CACHE`` or the user's cache.
        watch: Is told about progress.

    Returns:
        The numbers of planned, finished and failed runs.

    Raises:
        AforError: The study, its data, the store or the workers cannot be used.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from afor.bench import LocalEngine, parse_study
        >>> text = '''
        ... name = "small"
        ... backbones = ["eegnet"]
        ... optimizers = ["afor"]
        ... training = { max_epochs = 1, batch_size = 16 }
        ... protocol = { repetitions = 1, only_folds = [0] }
        ... datasets = [{ name = "synthetic", options = { n_subjects = 3, trials = 4 } }]
        ... '''
        >>> folder = Path(tempfile.mkdtemp())
        >>> store = folder / "small.db"
        >>> run_study(parse_study(text), text, store, LocalEngine(1), cache_dir=folder).done
        1
    """
    if study.trainer == DEFAULT_TRAINER and not getattr(engine, "trains_elsewhere", False):
        pick_device(study.device)
    sources = open_sources(study, cache_dir, watch)
    whole = make_plan(study, sources, find_rate)
    plan = whole if part is None else replace(whole, runs=shard(whole.runs, *part))
    try:
        with locked(path), open_or_create(path) as store:
            take_leftovers(store)
            store.set_plan(whole, toml)  # of a part too, so that it is known to be incomplete
            write_manifests(plan, path)
            summary = _complete(plan, sources, store, engine, watch)
            fit_references(plan, sources, store)
            return summary
    except OSError as error:  # a full disk can fail any write
        raise explain(path, error) from error


def take_leftovers(store: Store) -> int:
    """Store the runs that a killed driver left in the spool; return their number."""
    taken = 0
    for path in leftovers(spool_folder(store.path)):
        content = read_spool(path)
        if content is None:
            continue
        try:
            taken += store.add(content)
        except ValueError:  # complete, but written by another version of afor
            quarantine(path)
        else:
            path.unlink(missing_ok=True)
    return taken


def write_manifests(plan: StudyPlan, store: Path) -> None:
    """Write the splits of each data set to a JSON file next to the store."""
    for name, manifest in plan.manifests.items():
        target = store.with_name(f"{store.name}.splits") / f"{name.replace(':', '-')}.json"
        text = manifest_text(manifest).encode()
        if not target.is_file() or target.read_bytes() != text:
            write_atomically(target, text)


def _complete(
    plan: StudyPlan,
    sources: Mapping[str, WindowSource],
    store: Store,
    engine: Engine,
    watch: Watcher | None,
) -> Summary:
    statuses = store.statuses()
    if watch:
        watch.planned(plan.runs, statuses)
    trained = 0
    jobs = open_jobs(plan.runs, statuses)
    if jobs:
        measure_limits(getattr(engine, "limits", None), plan.runs, store)
        events = engine.run(jobs, sources, spool_folder(store.path))
        running = RunningFile(spool_folder(store.path))
        try:
            trained = _collect(events, store, watch, running)
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
            running.close()
        if not store.is_in_place():
            raise rescue(store)
        take_leftovers(store)  # a cluster may have finished a run twice
    statuses = store.statuses()
    # Two planned runs of one study may share a key: count planned runs, as the tables do.
    counts = Counter(statuses.get(planned.key, "open") for planned in plan.runs)
    return Summary(len(plan.runs), counts["done"], counts["diverged"], counts["failed"], trained)


def measure_limits(limits: RunTimes | None, runs: tuple[PlannedRun, ...], store: Store) -> None:
    """Give the times of stored runs to the time limits of an engine."""
    if limits is None:
        return
    specs = {planned.key: (planned.dataset, planned.spec) for planned in runs}
    for stored in {stored.key: stored for stored in store.runs()}.values():
        if stored.key in specs and stored.status in ("done", "diverged"):
            limits.add(run_kind(*specs[stored.key]), stored.elapsed_s)


def rescue(store: Store, *contents: bytes) -> StoreError:
    """Copy the open store to a new file after its path was deleted or replaced.

    The open file still holds every run, although no path leads to it.
    """
    path = store.path
    target, number = path, 0
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}.rescued-{number}.db")
    with open_or_create(target) as new:
        new.merge(store)
        for content in contents:
            new.add(content)
        count = len(new.statuses())
    if target == path:
        return StoreError(
            f"{path} was removed while its study ran. All {count} finished runs were written to it "
            f"anew. The same command goes on."
        )
    return StoreError(
        f"{path} was replaced by another file while its study ran. All {count} finished runs are "
        f"in {target}. Move one of the two away, or bring them together with `afor store merge`, "
        "then run the same command again."
    )


def open_jobs(runs: tuple[PlannedRun, ...], statuses: Mapping[str, str]) -> list[Job]:
    """Return one job for each run that has not ended, in the order of the plan."""
    jobs = {
        planned.key: Job(planned.key, planned.spec, planned.dataset, planned.bundle_key)
        for planned in runs
        if planned.key not in statuses
    }
    return list(jobs.values())


def _collect(
    events: Iterator[Started | Died | Ended],
    store: Store,
    watch: Watcher | None,
    running: RunningFile,
) -> int:
    trained = 0
    for event in events:
        if isinstance(event, Started):
            running.began(event.key, event.worker, event.together)
            if watch:
                watch.started(event.key, event.worker, event.together)
            continue
        running.ended(event.key)
        if isinstance(event, Died):
            continue
        if not store.is_in_place():
            raise rescue(store, event.content)
        try:
            store.add(event.content)
        except ValueError as error:  # afor was updated during the study
            raise EngineError(
                f"A worker returned a run that this process cannot read ({error}): it uses another "
                f"version of afor. Run the same command again, with one version everywhere; "
                f"nothing finished is lost."
            ) from error
        if event.spool is not None:
            event.spool.unlink(missing_ok=True)  # now that the store has it
        trained += 1
        if watch:
            watch.ended(decode(event.content))
    return trained
