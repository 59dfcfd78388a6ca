"""Jobs on local processes that outlive their runs but never their driver."""

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
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from afor.bench.common.errors import ConfigError, EngineError, StoreError
from afor.bench.common.module_search import BOOTSTRAP, search_folders
from afor.bench.execution.engines.worker import receive, send
from afor.bench.execution.engines.worker_starts import WorkerStarts
from afor.bench.execution.estimate import clock
from afor.bench.execution.jobs import MAX_DEATHS, Died, Ended, Job, Started
from afor.bench.execution.time_limits import TimeLimits, like_of
from afor.bench.store.spool import SUFFIX, read_spool
from afor.bench.training.execute import failed_run

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# A process that ends closes its lines first: wait that long for its exit code, which tells why.
CLOSING_S = 2.0
KILLED_S = 5.0  # a killed process that waits for a dead file system may never end: leave it then
START_LIMIT_S = 600.0  # for the imports of a worker
LOOK_EVERY_S = 10.0  # for runs that are over their time
LATE_S = 5.0  # this driver was stopped or the machine slept: no fault of the workers
# The signals that come from outside; those of a crash (SIGSEGV, SIGABRT) are the worker's own.
OUTSIDE_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


class LocalEngine:
    """Executes runs in worker processes on this machine.

    Args:
        workers: Number of worker processes.
        threads: Number of torch threads of each worker.
        limits: Maximum time of a run; None uses the default limits.

    Raises:
        ConfigError: ``workers`` is below 1.

    Example:
        >>> LocalEngine(workers=2).workers
        2

    """

    def __init__(self, workers: int, threads: int = 1, limits: TimeLimits | None = None) -> None:
        if workers < 1:
            raise ConfigError(f"-j {workers}: at least one worker is needed.")
        self.workers = workers
        self.threads = threads
        self.limits = limits or TimeLimits()

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], spool: Path
    ) -> Generator[Started | Died | Ended, None, None]:
        """Yield what happens until every job has ended once."""
        spool.mkdir(parents=True, exist_ok=True)
        packed = {name: pickle.dumps(source) for name, source in sources.items()}
        waiting, deaths = deque(jobs), Counter[str]()
        inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        crew: list[_Worker] = []
        numbers = iter(range(1, sys.maxsize))
        starts = WorkerStarts()
        looked = time.monotonic()
        try:
            while waiting or any(worker.job for worker in crew):
                idle = sum(worker.job is None for worker in crew)
                pause_s = starts.pause_s()  # once: the wait below must know why nothing was started
                while len(crew) < self.workers and idle < len(waiting) and not pause_s:
                    crew.append(_Worker(next(numbers), spool, self.threads, inbox))
                    idle += 1
                for worker in crew:
                    if waiting and worker.is_ready and worker.job is None:
                        worker.give(waiting.popleft(), packed)
                looked = _forgive_lateness(crew, looked)
                try:
                    worker, message = inbox.get(timeout=self._wait_s(crew, pause_s))
                except queue.Empty:
                    hanging = [worker for worker in crew if self._left_s(worker) <= 0]
                    if not hanging:
                        continue  # a pause is over
                    worker, message = hanging[0], None
                    worker.end_as_hanging(self._limit_s(worker))
                if worker not in crew:
                    continue  # the last words of one that was ended as hanging
                if message is not None and message[0] == "ready":
                    worker.is_ready = True
                elif message is not None and message[0] == "started":
                    worker.has_started = worker.has_worked = True
                    starts.began_run()
                    yield Started(message[1], worker.name)
                elif message is not None and message[0] == "unwritable":
                    raise StoreError(
                        f"{spool}: a finished run cannot be written ({message[2]}). Free some "
                        f"space or repair the disk and run the same command again; all runs "
                        f"written so far are safe."
                    )
                else:
                    job, started = worker.job, worker.has_started
                    worker.job = None
                    if message is None:  # the line is closed: the worker is gone
                        worker.stop(grace_s=CLOSING_S)
                        crew.remove(worker)
                        if not worker.has_worked:
                            starts.ended_early(was_killed=worker.was_killed)
                            if verdict := starts.verdict():
                                raise EngineError(
                                    f"{verdict} ({worker.cause()}). `afor doctor` may tell why. "
                                    f"Nothing finished is lost: the same command goes on."
                                )
                    if job is None:
                        continue
                    # A worker killed just after its rename has finished the run all the same.
                    path = spool / f"{job.key}{SUFFIX}"
                    content = read_spool(path)
                    if content is not None:
                        self.limits.add(like_of(job.dataset, job.spec), worker.busy_s())
                        yield Ended(job.key, content, path)
                        continue
                    # A worker that never began the run tells nothing about the run.
                    deaths[job.key] += started or worker.hung_s > 0
                    if deaths[job.key] < MAX_DEATHS:
                        waiting.append(job)  # at the end: the others first
                        yield Died(job.key, worker.cause())
                        continue
                    reason = f"its worker died {MAX_DEATHS} times ({worker.cause()})"
                    yield Ended(job.key, failed_run(job.key, job.spec, reason))
        finally:
            for worker in crew:
                worker.stop()

    def _limit_s(self, worker: "_Worker") -> float:
        """Return the seconds a worker may take for what it does; infinite when it is idle."""
        if worker.job is not None:
            return self.limits.limit_s(like_of(worker.job.dataset, worker.job.spec))
        return START_LIMIT_S if not worker.is_ready else math.inf

    def _left_s(self, worker: "_Worker") -> float:
        return self._limit_s(worker) - worker.busy_s()

    def _wait_s(self, crew: "Sequence[_Worker]", pause_s: float) -> float:
        """Return how long to wait for a message before somebody may be hanging."""
        waits = [LOOK_EVERY_S, *(self._left_s(worker) for worker in crew)]
        return max(min([*waits, pause_s] if pause_s else waits), 0.0)


def _forgive_lateness(crew: "Sequence[_Worker]", looked: float) -> float:
    """Give workers back the time in which this process did not run; return the time now."""
    moment = time.monotonic()
    late_s = moment - looked - LOOK_EVERY_S
    if late_s > LATE_S:
        for worker in crew:
            worker.since += late_s
    return moment


class _Worker:
    """A worker process as its driver sees it."""

    def __init__(
        self, number: int, spool: Path, threads: int, inbox: "queue.SimpleQueue[Any]"
    ) -> None:
        self.name = f"worker {number}"
        self.job: Job | None = None
        self.is_ready = False
        self.has_started = False  # with the job it has
        self.has_worked = False  # has begun any run at all
        self.since = time.monotonic()  # when it began what it does: its start, or its job
        self.hung_s = 0.0  # the limit that it exceeded
        self.log = spool / f"worker-{number}.log"
        self._sources: set[str] = set()
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: a file in the current folder must not take the place of a package.
                [
                    *(sys.executable, "-P", "-c", BOOTSTRAP, str(os.getpid()), str(spool)),
                    *search_folders(),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._line = cast("BinaryIO", self._process.stdin)
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()
        # A process that hangs does not empty its line: only this thread may wait for it.
        self._outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def give(self, job: Job, packed: Mapping[str, bytes]) -> None:
        """Send a job, before it the windows it needs if they are new to this worker."""
        self.job, self.has_started, self.since = job, False, time.monotonic()
        if job.dataset not in self._sources:
            self._outbox.put(("source", job.dataset, packed[job.dataset]))
            self._sources.add(job.dataset)
        self._outbox.put(("job", job.key, job.spec, job.dataset))

    def busy_s(self) -> float:
        """Return the seconds since it began what it does."""
        return time.monotonic() - self.since

    def end_as_hanging(self, limit_s: float) -> None:
        """Kill a process that has been busy for too long."""
        self.hung_s = limit_s
        self._process.kill()

    @property
    def was_killed(self) -> bool:
        """Tell whether somebody else ended the process: a person, or a system out of memory."""
        return _signal_name(self._process.returncode) in OUTSIDE_SIGNALS

    def cause(self) -> str:
        """Say how the process ended, with the last line it wrote."""
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
        return f"{text}; its last words in {self.log}: {lines[-1][:200]}" if lines else text

    def stop(self, grace_s: float = 0.0) -> None:
        """End the process, whatever it does, and everything that belongs to it."""
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            try:
                self._process.wait(KILLED_S)
            except subprocess.TimeoutExpired:
                return  # it waits inside the kernel; it ends when that does, and we cannot wait
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
        with contextlib.suppress(OSError, ValueError):  # it has just died; the listener says so
            while (message := self._outbox.get()) is not None:
                send(self._line, message)

    def _listen(self, inbox: "queue.SimpleQueue[Any]") -> None:
        stream = cast("BinaryIO", self._process.stdout)
        try:
            while True:
                inbox.put((self, receive(stream)))
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            inbox.put((self, None))


def _signal_name(code: int | None) -> str:
    """Return the signal behind the exit code of a process; empty when it ended by itself."""
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
