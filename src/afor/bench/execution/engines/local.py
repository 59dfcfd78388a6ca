"""Execute jobs in local worker processes, which serve many runs and die with their driver.

A worker that exits by itself before its first run will do so again: a few in a row end the study. A
worker that was killed from outside is replaced, after a pause that grows, up to a time limit.
"""

import contextlib
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from afor.bench.common.devices import VISIBLE_GPUS
from afor.bench.common.errors import ConfigError, EngineError, StoreError
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.engines.worker import BOOTSTRAP, send
from afor.bench.execution.jobs import (
    MAX_DEATHS,
    Bundle,
    Died,
    Ended,
    Job,
    Started,
    halves,
    make_bundles,
)
from afor.bench.execution.run_times import RunTimes, clock, run_kind
from afor.bench.store.spool import SUFFIX, read_spool
from afor.bench.study.bundling import MAX_BUNDLE
from afor.bench.training.execute import failed_run
from afor.bench.training.record import decode

MAX_FALSE_STARTS = 5  # workers in a row that exited by themselves
# A machine out of memory may need minutes to recover.
GIVE_UP_AFTER_S = 600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class WorkerStarts:
    """Counts the workers in a row that never started a run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._exited = self._killed = 0
        self._since = self._not_before = clock()

    def began_run(self) -> None:
        """Reset the failure counters: a worker reached its first run."""
        self._exited = self._killed = 0
        self._not_before = self._clock()

    def ended_early(self, *, was_killed: bool) -> None:
        """Count a worker that ended before its first run."""
        moment = self._clock()
        if not self._exited and not self._killed:
            self._since = moment
        if was_killed:
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._killed, 30), LONGEST_PAUSE_S)
            self._not_before = moment + pause_s
            self._killed += 1
        else:
            self._exited += 1

    def pause_s(self) -> float:
        """Return the seconds until the next worker may start."""
        return max(self._not_before - self._clock(), 0.0)

    def verdict(self) -> str:
        """Return why no further worker is started; empty while one may be."""
        if self._exited >= MAX_FALSE_STARTS:
            return f"{self._exited} workers in a row ended before their first run"
        elapsed_s = self._clock() - self._since
        if self._killed and elapsed_s >= GIVE_UP_AFTER_S:
            return (
                f"{self._killed} workers in a row were killed before their first run, for "
                f"{elapsed_s / 60:.0f} minutes"
            )
        return ""


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# cuBLAS is deterministic only with a workspace of fixed size, set before it is loaded.
DETERMINISTIC_CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
# A process closes its pipes before it exits: wait this long for its exit code.
CLOSING_S = 2.0
KILLED_S = 5.0  # a killed process may hang in a file system: give up on it then
START_LIMIT_S = 600.0  # for the imports of a worker
CHECK_EVERY_S = 10.0  # interval of checks for runs beyond their limit
LATE_S = 5.0  # a longer delay means that this process was stopped or the machine slept
# Signals from outside; those of a crash (SIGSEGV, SIGABRT) are caused by the worker itself.
OUTSIDE_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


class LocalEngine:
    """Executes runs in worker processes on this machine.

    Args:
        workers: Number of worker processes.
        threads: Number of torch threads of each worker.
        limits: Maximum time of a run; None uses the default limits.
        gpus: GPUs over which the workers are spread, as ``CUDA_VISIBLE_DEVICES`` names them; each
            worker sees one. Empty for runs on the CPU.
        bundle: Maximum number of runs that a worker trains as one network, of those that may be.

    Raises:
        ConfigError: ``workers`` is below 1.

    Example:
        >>> LocalEngine(workers=2).workers
        2
    """

    def __init__(
        self,
        workers: int,
        threads: int = 1,
        limits: RunTimes | None = None,
        gpus: Sequence[str] = (),
        bundle: int = MAX_BUNDLE,
    ) -> None:
        if workers < 1:
            raise ConfigError(f"-j {workers}: at least one worker is needed.")
        self.workers = workers
        self.threads = threads
        self.limits = limits or RunTimes()
        self.gpus = tuple(gpus)
        self.bundle = bundle

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, WindowSource], spool: Path
    ) -> Generator[Started | Died | Ended, None, None]:
        """Train jobs in worker processes.

        Args:
            jobs: The runs to train.
            sources: The windows of each data set, by its name in the study.
            spool: Folder to which the workers write finished runs.

        Yields:
            A start, the death of a worker or an end, until every job has ended.

        Raises:
            EngineError: Workers end before their first run, again and again.
            StoreError: A worker cannot write a finished run.
        """
        spool.mkdir(parents=True, exist_ok=True)
        packed = {name: pickle.dumps(source) for name, source in sources.items()}
        waiting, deaths = deque(make_bundles(jobs, self.bundle, self.workers)), Counter[str]()
        inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        processes: list[_Worker] = []
        numbers = iter(range(1, sys.maxsize))
        starts = WorkerStarts()
        checked_at = time.monotonic()
        try:
            while waiting or any(worker.jobs for worker in processes):
                idle = sum(not worker.jobs for worker in processes)
                pause_s = starts.pause_s()  # read once: the wait below must use the same value
                while len(processes) < self.workers and idle < len(waiting) and not pause_s:
                    in_use = [worker.gpu for worker in processes]
                    gpu = min(self.gpus, key=in_use.count, default=None)  # with the fewest workers
                    processes.append(_Worker(next(numbers), spool, self.threads, inbox, gpu))
                    idle += 1
                for worker in processes:
                    if waiting and worker.is_ready and not worker.jobs:
                        worker.give(waiting.popleft(), packed)
                checked_at = _extend_after_sleep(processes, checked_at)
                try:
                    worker, message = inbox.get(timeout=self._wait_s(processes, pause_s))
                except queue.Empty:
                    hanging = [worker for worker in processes if self._left_s(worker) <= 0]
                    if not hanging:
                        continue  # a pause is over
                    worker, message = hanging[0], None
                    worker.end_as_hanging(self._limit_s(worker))
                if worker not in processes:
                    continue  # a late message of a worker that was killed as hanging
                match message:
                    case ("ready",):
                        worker.is_ready = True
                    case ("started", key):
                        worker.has_started = worker.has_worked = True
                        starts.began_run()
                        yield Started(key, worker.name, len(worker.bundle))
                    case ("finished", key):
                        yield self._end_of(worker.jobs.pop(key), worker, spool, deaths, waiting)
                    case ("unwritable", reason):
                        raise StoreError(
                            f"{spool}: a finished run cannot be written ({reason}). Free some "
                            f"space or repair the disk and run the same command again; all runs "
                            f"written so far are safe."
                        )
                    case None:  # the pipe is closed: the worker has exited
                        worker.stop(grace_s=CLOSING_S)
                        processes.remove(worker)
                        _count_early_end(worker, starts)
                        yield from self._after_death(worker, spool, deaths, waiting)
        finally:
            for worker in processes:
                worker.stop()

    def _after_death(
        self, worker: "_Worker", spool: Path, deaths: Counter[str], waiting: deque[Bundle]
    ) -> Iterator[Died | Ended]:
        """Yield what became of the jobs of a worker that exited; put the others back."""
        # A worker killed right after its rename has still finished the run.
        is_open = {key: not (spool / f"{key}{SUFFIX}").exists() for key in worker.jobs}
        unfinished = tuple(job for key, job in worker.jobs.items() if is_open[key])
        if len(unfinished) > 1:
            # Nobody knows which run did it: two halves, in the end one by one. They wait at the
            # end: other jobs first.
            waiting.extend(halves(unfinished) if worker.has_started else [unfinished])
            for job in unfinished:
                del worker.jobs[job.key]
                yield Died(job.key, worker.cause())
        for job in worker.jobs.values():
            yield self._end_of(job, worker, spool, deaths, waiting)

    def _end_of(
        self,
        job: Job,
        worker: "_Worker",
        spool: Path,
        deaths: Counter[str],
        waiting: deque[Bundle],
    ) -> Died | Ended:
        """Return the result of a job whose worker finished it or exited.

        A job without a result, whose worker died or whose file is gone, waits again until it has
        had too many deaths.
        """
        path = spool / f"{job.key}{SUFFIX}"
        content = read_spool(path)
        if content is not None:
            has_one_job = len(worker.bundle) == 1
            spent_s = worker.busy_s() if has_one_job else decode(content).elapsed_s
            self.limits.add(run_kind(job.dataset, job.spec), spent_s)
            return Ended(job.key, content, path)
        # The death of a worker that had not started the job does not count.
        deaths[job.key] += worker.has_started or worker.hung_s > 0
        if deaths[job.key] < MAX_DEATHS:
            waiting.append((job,))
            return Died(job.key, worker.cause())
        reason = f"its worker died {MAX_DEATHS} times ({worker.cause()})"
        return Ended(job.key, failed_run(job.key, job.spec, reason))

    def _limit_s(self, worker: "_Worker") -> float:
        """Return the time limit of what a worker does now; infinite if it is idle."""
        if worker.jobs:
            kinds = [run_kind(job.dataset, job.spec) for job in worker.bundle]
            return self.limits.bundle_limit_s(kinds)
        return START_LIMIT_S if not worker.is_ready else math.inf

    def _left_s(self, worker: "_Worker") -> float:
        return self._limit_s(worker) - worker.busy_s()

    def _wait_s(self, processes: "Sequence[_Worker]", pause_s: float) -> float:
        """Return how long to wait for a message until a worker may exceed its limit."""
        waits = [CHECK_EVERY_S, *(self._left_s(worker) for worker in processes)]
        return max(min([*waits, pause_s] if pause_s else waits), 0.0)


def _count_early_end(worker: "_Worker", starts: WorkerStarts) -> None:
    """Count a worker that ended before its first run; raise EngineError after too many."""
    if worker.has_worked:
        return
    starts.ended_early(was_killed=worker.was_killed)
    if verdict := starts.verdict():
        raise EngineError(
            f"{verdict} ({worker.cause()}). `afor doctor` may tell why. "
            f"Nothing finished is lost: the same command goes on."
        )


def _extend_after_sleep(processes: "Sequence[_Worker]", checked_at: float) -> float:
    """Do not charge workers for time in which this process did not run; return the time now."""
    now = time.monotonic()
    late_s = now - checked_at - CHECK_EVERY_S
    if late_s > LATE_S:
        for worker in processes:
            worker.since += late_s
    return now


class _Worker:
    """The driver's handle of a worker process."""

    def __init__(
        self,
        number: int,
        spool: Path,
        threads: int,
        inbox: "queue.SimpleQueue[Any]",
        gpu: str | None = None,
    ) -> None:
        self.name = f"worker {number}" + (f" on GPU {gpu}" if gpu is not None else "")
        self.gpu = gpu
        self.jobs: dict[str, Job] = {}  # not finished, by key
        self.bundle: Bundle = ()  # all jobs it was given together
        self.is_ready = False
        self.has_started = False  # its current jobs
        self.has_worked = False  # has started any run
        self.since = time.monotonic()  # start of its current jobs, or of the process
        self.hung_s = 0.0  # the time limit that it exceeded
        self.log = spool / f"worker-{number}.log"
        self._sources: set[str] = set()
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        if gpu is not None:
            environment |= {VISIBLE_GPUS: gpu, **DETERMINISTIC_CUBLAS}
        folders = [str(entry) or str(Path.cwd()) for entry in sys.path]
        arguments = [str(os.getpid()), str(spool), *folders]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: a file in the current folder must not shadow a package.
                [sys.executable, "-P", "-c", BOOTSTRAP, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._line = cast("BinaryIO", self._process.stdin)
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()
        # A hanging process does not read its pipe: only this thread may block on it.
        self._outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def give(self, bundle: Bundle, packed: Mapping[str, bytes]) -> None:
        """Send the jobs of a bundle, preceded by their windows if this worker lacks them."""
        self.bundle, self.jobs = bundle, {job.key: job for job in bundle}
        self.has_started, self.since = False, time.monotonic()
        dataset = bundle[0].dataset
        if dataset not in self._sources:
            self._outbox.put(("source", dataset, packed[dataset]))
            self._sources.add(dataset)
        self._outbox.put(("jobs", [(job.key, job.spec) for job in bundle], dataset))

    def busy_s(self) -> float:
        """Return the seconds since the start of its current jobs, or of the process."""
        return time.monotonic() - self.since

    def end_as_hanging(self, limit_s: float) -> None:
        """Kill a process that exceeded its time limit."""
        self.hung_s = limit_s
        self._process.kill()

    @property
    def was_killed(self) -> bool:
        """Whether the process was killed from outside, such as by a system out of memory."""
        return _signal_name(self._process.returncode) in OUTSIDE_SIGNALS

    def cause(self) -> str:
        """Return how the process ended, with the last line of its log."""
        code = self._process.returncode
        if self.hung_s:
            text = f"ended after {clock(self.hung_s)}, its time limit"
        elif name := _signal_name(code):
            text = f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
        else:
            text = f"exit code {code}"
        try:
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{text}; the last line of {self.log}: {lines[-1][:200]}" if lines else text

    def stop(self, grace_s: float = 0.0) -> None:
        """Kill the process if it still runs, and release its threads, pipes and log."""
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            try:
                self._process.wait(KILLED_S)
            except subprocess.TimeoutExpired:
                return  # blocked inside the kernel: it ends when that does
        self._outbox.put(None)
        self._sender.join()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent bytes for a dead process
                    stream.close()
        with contextlib.suppress(OSError):
            if self.log.stat().st_size == 0:
                self.log.unlink()

    def _send(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the process died; the listener reports it
            while (message := self._outbox.get()) is not None:
                send(self._line, message)

    def _listen(self, inbox: "queue.SimpleQueue[Any]") -> None:
        stream = cast("BinaryIO", self._process.stdout)
        try:
            while True:
                inbox.put((self, pickle.load(stream)))
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            inbox.put((self, None))


def _signal_name(code: int | None) -> str:
    """Return the signal that ended a process; empty if it exited by itself."""
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
