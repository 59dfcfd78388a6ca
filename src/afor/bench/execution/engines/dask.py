"""Execute jobs on a running dask cluster.

A worker that sees the driver's files reads the windows by path; to others, the prepared trials are
sent once. A bundle of runs is one task. Results come back through the scheduler when the task has
ended; a worker that can reach the spool also writes each run there as soon as it ends, so that it
survives the driver and the worker.
"""

import contextlib
import copy
import pickle
import threading
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.common.files import write_atomically
from afor.bench.common.module_search import add_folders, used_folders
from afor.bench.data.prepared import default_cache_dir, samples_path
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.jobs import MAX_DEATHS, Bundle, Ended, Job, Started, halves, make_bundles
from afor.bench.store.spool import SUFFIX, read_spool, write_spool
from afor.bench.study.bundling import MAX_BUNDLE
from afor.bench.training.execute import execute_bundle, failed_run

CONNECT_S = 15.0
TOKEN = "driver.token"  # its content shows whether a worker sees the driver's spool
MAX_LOSSES = 10  # results of one task that were lost with their worker
TASKS_PER_THREAD = 1  # if a task kills the worker, dask also counts a death for those behind it
GPU = "GPU"  # the resource that a worker declares with `dask worker --resources GPU=1`

# In a worker, one task at a time: torch's generators and thread count belong to the process.
_one_task = threading.Lock()
_sources: dict[str, WindowSource] = {}  # fingerprint → windows, unpacked once per worker
_received: dict[str, Path] = {}  # fingerprint → folder of received trials


class DaskEngine:
    """Executes jobs on the workers of a dask scheduler.

    Args:
        scheduler: Address of the scheduler.
        bundle: Maximum number of runs that a worker trains as one network.
    """

    trains_elsewhere = True  # the driver need not have the device of the study

    def __init__(self, scheduler: str, bundle: int = MAX_BUNDLE) -> None:
        if not scheduler:
            raise ConfigError("A dask cluster needs --scheduler tcp://HOST:PORT.")
        self.scheduler = scheduler
        self.bundle = bundle

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, WindowSource], spool: Path
    ) -> Iterator[Started | Ended]:
        """Yield events until every job has ended."""
        distributed = _import_distributed()
        token = _write_token(spool)
        try:
            client = distributed.Client(
                self.scheduler, timeout=CONNECT_S, set_as_default=False, name="afor"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise EngineError(
                f"No dask scheduler answers at {self.scheduler} ({error}). Start one with "
                f"`dask scheduler` and workers with `dask worker {self.scheduler} --nthreads 1`."
            ) from error
        try:
            session = _Session(client, distributed, sources, spool, token)
            yield from session.run(make_bundles(jobs, self.bundle, session.room()))
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.close(timeout=CONNECT_S)


class _Session:
    """One list of bundles on one cluster."""

    def __init__(
        self,
        client: Any,
        distributed: Any,
        sources: Mapping[str, WindowSource],
        spool: Path,
        token: str,
    ) -> None:
        self.client = client
        self.distributed = distributed
        self.sources = sources
        self.spool = spool
        self.token = token
        self._packed: dict[str, bytes] = {}
        self._tasks: dict[Any, Bundle] = {}
        self._losses: Counter[str] = Counter()

    def run(self, bundles: Sequence[Bundle]) -> Iterator[Started | Ended]:
        waiting = deque(bundles)
        done = self.distributed.as_completed(loop=self.client.loop)
        while waiting or self._tasks:
            while waiting and len(self._tasks) < self.room():
                bundle = waiting.popleft()
                done.add(self._submit(bundle))
                yield from (Started(job.key, "dask", len(bundle)) for job in bundle)
            future = next(done)
            bundle = self._tasks.pop(future)
            first = bundle[0]
            try:
                outcome, content = future.result()
            except self.distributed.KilledWorker as error:
                yield from self._after_deaths(bundle, str(error)[:200], waiting)
                continue
            except (OSError, TimeoutError, self.distributed.CancelledError) as error:
                self._losses[first.key] += 1
                if self.client.status != "running" or self._losses[first.key] > MAX_LOSSES:
                    raise EngineError(
                        f"The dask cluster was lost ({type(error).__name__}: {error}). Start it "
                        f"again and run the same command: nothing finished is lost."
                    ) from error
                waiting.append(bundle)  # its results were lost with the worker
                continue
            if outcome == "absent":
                self._ship(first.dataset, content)
                waiting.appendleft(bundle)
                continue
            yield from (self._ended(job, content[job.key]) for job in bundle)

    def _after_deaths(self, bundle: Bundle, reason: str, waiting: deque[Bundle]) -> Iterator[Ended]:
        """Yield the runs of a bundle that ended before its workers died; put the others back.

        Nobody knows which run did it: they are tried in two halves, in the end one by one.
        """
        contents = {job.key: read_spool(self.spool / f"{job.key}{SUFFIX}") for job in bundle}
        unfinished = tuple(job for job in bundle if contents[job.key] is None)
        if len(bundle) == 1 and unfinished:
            died = f"its worker died {MAX_DEATHS} times ({reason})"
            yield Ended(bundle[0].key, failed_run(bundle[0].key, bundle[0].spec, died))
            return
        waiting.extend(half for half in halves(unfinished) if half)
        for job in bundle:
            if (content := contents[job.key]) is not None:
                yield self._ended(job, content)

    def _ended(self, job: Job, content: bytes) -> Ended:
        path = self.spool / f"{job.key}{SUFFIX}"
        return Ended(job.key, content, path if path.exists() else None)

    def room(self) -> int:
        """Return the number of tasks that the cluster may have at a time."""
        threads = int(sum(self.client.nthreads().values()))
        return max(1, TASKS_PER_THREAD * threads)

    def _resources(self, job: Job) -> dict[str, float] | None:
        """Ask for a GPU if the run needs one and workers declare theirs."""
        if job.spec.get("device") != "cuda":
            return None
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return {GPU: 1} if any(worker["resources"].get(GPU) for worker in workers) else None

    def _submit(self, bundle: Bundle) -> Any:
        first = bundle[0]
        if first.dataset not in self._packed:
            self._packed[first.dataset] = pack_source(self.sources[first.dataset])
        future = self.client.submit(
            run_remotely,
            [(job.key, job.spec) for job in bundle],
            # Sent with the task, not scattered: scattered data is lost with its worker.
            self._packed[first.dataset],
            str(self.spool.resolve()),
            self.token,
            used_folders,
            key=f"afor-{first.key}-{uuid.uuid4().hex[:8]}",
            pure=False,
            retries=0,
            resources=self._resources(first),
        )
        self._tasks[future] = bundle
        return future

    def _ship(self, dataset: str, worker: str) -> None:
        """Send the prepared trials of a data set to one worker, subject by subject."""
        source = self.sources[dataset]
        for prepared in source.prepared:
            path = samples_path(source.folder, prepared.key)
            future = self.client.submit(
                receive_file,
                source.fingerprint,
                path.name,
                path.read_bytes(),
                workers=[worker],
                pure=False,
            )
            future.result()


def run_remotely(
    jobs: Sequence[tuple[str, dict[str, Any]]],
    packed: bytes,
    spool: str,
    token: str,
    folders: Sequence[str],
) -> tuple[str, Any]:
    """Train the runs of a bundle, given by key and spec, in a dask worker.

    Modules are also searched for in `folders`, those of the driver's study files. Returns
    ``("ended", contents by key)``, or ``("absent", worker)`` if the worker lacks the windows.
    """
    from distributed import get_worker

    add_folders(folders)
    folder = Path(spool)
    sees_spool = _sees(folder, token)
    contents: dict[str, bytes] = {}

    def finished(key: str, content: bytes) -> None:
        contents[key] = content
        if sees_spool:
            with contextlib.suppress(OSError):  # the result is returned in any case
                write_spool(folder, key, content)

    for key, _ in jobs if sees_spool else ():
        # Finished by a worker that died before it answered.
        if (content := read_spool(folder / f"{key}{SUFFIX}")) is not None:
            contents[key] = content
    missing = [(key, spec) for key, spec in jobs if key not in contents]
    if not missing:
        return "ended", contents
    with _one_task:
        source = _locate(_unpack(packed, missing[0][1]["data"]["fingerprint"]))
        if source is None:
            return "absent", get_worker().address
        execute_bundle(missing, source, finished)
    return "ended", contents


def _sees(spool: Path, token: str) -> bool:
    """Tell whether this machine sees the driver's spool, not another folder of that name."""
    try:
        return (spool / TOKEN).read_text("utf-8") == token
    except OSError:
        return False


def pack_source(source: WindowSource) -> bytes:
    """Return a description of the windows that is small enough to send with every task."""
    slim = copy.copy(source)
    # The hashes find duplicate subjects, which the driver has done.
    prepared = tuple(replace(p, trial_hashes=()) for p in source.prepared)
    slim.__dict__.update(source.__getstate__(), prepared=prepared)
    return zlib.compress(pickle.dumps(slim))


def _unpack(packed: bytes, fingerprint: str) -> WindowSource:
    if fingerprint not in _sources:
        _sources[fingerprint] = pickle.loads(zlib.decompress(packed))
    return _sources[fingerprint]


def receive_file(fingerprint: str, name: str, content: bytes) -> None:
    """Write a file of prepared trials to this worker's cache."""
    folder = default_cache_dir() / "received" / fingerprint[:32]
    write_atomically(folder / name, content)
    _received[fingerprint] = folder


def _locate(source: WindowSource) -> WindowSource | None:
    """Return the source with a folder that this process can read, or None if there is none."""
    import numpy as np

    received = default_cache_dir() / "received" / source.fingerprint[:32]
    for folder in (source.folder, _received.get(source.fingerprint, received)):
        try:
            sizes = [samples_path(folder, p.key).stat().st_size for p in source.prepared]
        except OSError:
            continue
        if sizes == [4 * int(np.prod(p.shape)) for p in source.prepared]:
            if folder == source.folder:
                return source
            moved = copy.copy(source)
            moved.__dict__.update(source.__getstate__(), folder=folder)
            return moved
    return None


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ConfigError(
            "--scheduler needs the packages dask and distributed: pip install 'afor[dask]'."
        ) from error
    return distributed


def _write_token(spool: Path) -> str:
    token = uuid.uuid4().hex
    spool.mkdir(parents=True, exist_ok=True)
    (spool / TOKEN).write_text(token, "utf-8")
    return token
