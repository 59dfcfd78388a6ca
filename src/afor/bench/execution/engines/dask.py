"""Execute jobs on a running dask cluster.

A worker that sees the driver's files reads the windows by path; to others, the prepared trials are
sent once. Results come back through the scheduler; a worker that can reach the spool also writes
them there, so that they survive the driver.
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
from typing import TYPE_CHECKING, Any

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.common.files import write_atomically
from afor.bench.common.module_search import add_folders, used_folders
from afor.bench.data.preparation.cache import default_cache_dir, samples_path
from afor.bench.execution.jobs import MAX_DEATHS, Ended, Job, Started
from afor.bench.execution.timing.order import longest_first
from afor.bench.execution.timing.step_timing import StepTimer
from afor.bench.store.spool import SUFFIX, read_spool, write_spool
from afor.bench.training.execute import execute, failed_run

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource

CONNECT_S = 15.0
TOKEN = "driver.token"  # its content shows whether a worker sees the driver's spool
MAX_LOSSES = 10  # results of one job that were lost with their worker
JOBS_PER_THREAD = 1  # if a job kills the worker, dask also counts a death for jobs behind it
GPU = "GPU"  # the resource that a worker declares with `dask worker --resources GPU=1`

# In a worker, one run at a time: torch's generators and thread count belong to the process.
_one_run = threading.Lock()
_sources: dict[str, "WindowSource"] = {}  # fingerprint → windows, unpacked once per worker
_received: dict[str, Path] = {}  # fingerprint → folder of received trials


class DaskEngine:
    """Executes jobs on the workers of a dask scheduler, the longest of each draw first.

    Args:
        scheduler: Address of the scheduler.
        timer: Measures steps, from which the time of a job is expected; None makes one that keeps
            its times in the user's cache.
    """

    trains_elsewhere = True  # the driver need not have the device of the study

    def __init__(self, scheduler: str, timer: StepTimer | None = None) -> None:
        if not scheduler:
            raise ConfigError("--engine dask needs --scheduler tcp://HOST:PORT.")
        self.scheduler = scheduler
        self.timer = timer

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], spool: Path
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
            ordered = longest_first(jobs, sources, self.timer or StepTimer())
            yield from _Session(client, distributed, sources, spool, token).run(ordered)
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.close(timeout=CONNECT_S)


class _Session:
    """One list of jobs on one cluster."""

    def __init__(
        self,
        client: Any,
        distributed: Any,
        sources: Mapping[str, "WindowSource"],
        spool: Path,
        token: str,
    ) -> None:
        self.client = client
        self.distributed = distributed
        self.sources = sources
        self.spool = spool
        self.token = token
        self._packed: dict[str, bytes] = {}
        self._jobs: dict[Any, Job] = {}
        self._losses: Counter[str] = Counter()

    def run(self, jobs: Sequence[Job]) -> Iterator[Started | Ended]:
        waiting = deque(jobs)
        done = self.distributed.as_completed(loop=self.client.loop)
        while waiting or self._jobs:
            while waiting and len(self._jobs) < self._room():
                job = waiting.popleft()
                done.add(self._submit(job))
                yield Started(job.key, "dask")
            future = next(done)
            job = self._jobs.pop(future)
            try:
                outcome, content = future.result()
            except self.distributed.KilledWorker as error:
                reason = f"its worker died {MAX_DEATHS} times ({str(error)[:200]})"
                yield Ended(job.key, failed_run(job.key, job.spec, reason))
                continue
            except (OSError, TimeoutError, self.distributed.CancelledError) as error:
                self._losses[job.key] += 1
                if self.client.status != "running" or self._losses[job.key] > MAX_LOSSES:
                    raise EngineError(
                        f"The dask cluster was lost ({type(error).__name__}: {error}). Start it "
                        f"again and run the same command: nothing finished is lost."
                    ) from error
                waiting.append(job)  # its result was lost with the worker
                continue
            if outcome == "absent":
                self._ship(job.dataset, content)
                waiting.appendleft(job)
                continue
            path = self.spool / f"{job.key}{SUFFIX}"
            yield Ended(job.key, content, path if path.exists() else None)

    def _room(self) -> int:
        threads = int(sum(self.client.nthreads().values()))
        return max(1, JOBS_PER_THREAD * threads)

    def _resources(self, job: Job) -> dict[str, float] | None:
        """Ask for a GPU if the run needs one and workers declare theirs."""
        if job.spec.get("device") != "cuda":
            return None
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return {GPU: 1} if any(worker["resources"].get(GPU) for worker in workers) else None

    def _submit(self, job: Job) -> Any:
        if job.dataset not in self._packed:
            self._packed[job.dataset] = pack_source(self.sources[job.dataset])
        future = self.client.submit(
            run_remotely,
            job.key,
            job.spec,
            # Sent with the task, not scattered: scattered data is lost with its worker.
            self._packed[job.dataset],
            str(self.spool.resolve()),
            self.token,
            used_folders(),
            key=f"afor-{job.key}-{uuid.uuid4().hex[:8]}",
            pure=False,
            retries=0,
            resources=self._resources(job),
        )
        self._jobs[future] = job
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
    key: str, spec: dict[str, Any], packed: bytes, spool: str, token: str, folders: Sequence[str]
) -> tuple[str, Any]:
    """Train one run in a dask worker; return ("absent", worker) if it lacks the windows.

    Custom modules are also searched for in `folders`, those of the driver's study files.
    """
    from distributed import get_worker

    add_folders(folders)
    folder = Path(spool)
    sees_spool = _sees(folder, token)
    if sees_spool and (finished := read_spool(folder / f"{key}{SUFFIX}")) is not None:
        return "ended", finished  # finished by a worker that died before it answered
    with _one_run:
        source = _locate(_unpack(packed, spec["data"]["fingerprint"]))
        if source is None:
            return "absent", get_worker().address
        content = execute(key, spec, source)
    if sees_spool:
        with contextlib.suppress(OSError):  # the result is returned in any case
            write_spool(folder, key, content)
    return "ended", content


def _sees(spool: Path, token: str) -> bool:
    """Tell whether this machine sees the driver's spool, not another folder of that name."""
    try:
        return (spool / TOKEN).read_text("utf-8") == token
    except OSError:
        return False


def pack_source(source: "WindowSource") -> bytes:
    """Return a description of the windows that is small enough to send with every task."""
    slim = copy.copy(source)
    # The hashes find duplicate subjects, which the driver has done.
    prepared = tuple(replace(p, trial_hashes=()) for p in source.prepared)
    slim.__dict__.update(source.__getstate__(), prepared=prepared)
    return zlib.compress(pickle.dumps(slim))


def _unpack(packed: bytes, fingerprint: str) -> "WindowSource":
    if fingerprint not in _sources:
        _sources[fingerprint] = pickle.loads(zlib.decompress(packed))
    return _sources[fingerprint]


def receive_file(fingerprint: str, name: str, content: bytes) -> None:
    """Write a file of prepared trials to this worker's cache."""
    folder = default_cache_dir() / "received" / fingerprint[:32]
    write_atomically(folder / name, content)
    _received[fingerprint] = folder


def _locate(source: "WindowSource") -> "WindowSource | None":
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
            "--engine dask needs the packages dask and distributed: pip install 'afor[dask]'."
        ) from error
    return distributed


def _write_token(spool: Path) -> str:
    token = uuid.uuid4().hex
    spool.mkdir(parents=True, exist_ok=True)
    (spool / TOKEN).write_text(token, "utf-8")
    return token
