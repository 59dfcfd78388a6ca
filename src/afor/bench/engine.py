"""Jobs on local processes that outlive their runs but never their driver."""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from afor.bench.errors import ConfigError, EngineError, StoreError
from afor.bench.execute import failed_run
from afor.bench.jobs import MAX_DEATHS, Ended, Job, Started
from afor.bench.spool import SUFFIX, read_spool
from afor.bench.worker import receive, send

if TYPE_CHECKING:
    from afor.bench.window_source import WindowSource

# Workers in a row that end before they can say a word: by themselves, or killed by another.
MAX_FALSE_STARTS, MAX_KILLED_STARTS = 5, 50
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LocalEngine:
    """Runs jobs in `workers` processes on this machine."""

    def __init__(self, workers: int, threads: int = 1) -> None:
        if workers < 1:
            raise ConfigError(f"-j {workers}: at least one worker is needed.")
        self.workers = workers
        self.threads = threads

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], spool: Path
    ) -> Iterator[Started | Ended]:
        """Yield what happens until every job has ended once."""
        spool.mkdir(parents=True, exist_ok=True)
        packed = {name: pickle.dumps(source) for name, source in sources.items()}
        waiting, deaths = deque(jobs), Counter[str]()
        inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        crew: list[_Worker] = []
        numbers = iter(range(1, sys.maxsize))
        false_starts = Counter[bool]()
        try:
            while waiting or any(worker.job for worker in crew):
                idle = sum(worker.job is None for worker in crew)
                while len(crew) < self.workers and idle < len(waiting):
                    crew.append(_Worker(next(numbers), spool, self.threads, inbox))
                    idle += 1
                for worker in crew:
                    if waiting and worker.is_ready and worker.job is None:
                        worker.give(waiting.popleft(), packed)
                worker, message = inbox.get()
                if message is not None and message[0] == "ready":
                    worker.is_ready = True
                    false_starts.clear()
                elif message is not None and message[0] == "started":
                    worker.has_started = True
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
                        worker.stop()
                        crew.remove(worker)
                        false_starts[worker.was_killed] += not worker.is_ready
                        limits = {False: MAX_FALSE_STARTS, True: MAX_KILLED_STARTS}
                        if any(false_starts[kind] >= limit for kind, limit in limits.items()):
                            raise EngineError(
                                f"{false_starts.total()} workers in a row died before their first "
                                f"run ({worker.cause()}). `afor doctor` may tell why; all of it is "
                                f"in {worker.log}."
                            )
                    if job is None:
                        continue
                    # A worker killed just after its rename has finished the run all the same.
                    path = spool / f"{job.key}{SUFFIX}"
                    content = read_spool(path)
                    if content is not None:
                        yield Ended(job.key, content, path)
                        continue
                    deaths[job.key] += started
                    if deaths[job.key] < MAX_DEATHS:
                        waiting.append(job)  # at the end: the others first
                        continue
                    reason = f"its worker died {MAX_DEATHS} times ({worker.cause()})"
                    yield Ended(job.key, failed_run(job.key, job.spec, reason))
        finally:
            for worker in crew:
                worker.stop()


class _Worker:
    """A worker process as its driver sees it."""

    def __init__(
        self, number: int, spool: Path, threads: int, inbox: "queue.SimpleQueue[Any]"
    ) -> None:
        self.name = f"worker {number}"
        self.job: Job | None = None
        self.is_ready = False
        self.has_started = False
        self.log = spool / f"worker-{number}.log"
        self._sources: set[str] = set()
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "afor.bench.worker", str(os.getpid()), str(spool)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._line = cast("BinaryIO", self._process.stdin)
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()

    def give(self, job: Job, packed: Mapping[str, bytes]) -> None:
        """Send a job, before it the windows it needs if they are new to this worker."""
        self.job, self.has_started = job, False
        try:
            if job.dataset not in self._sources:
                send(self._line, ("source", job.dataset, packed[job.dataset]))
                self._sources.add(job.dataset)
            send(self._line, ("job", job.key, job.spec, job.dataset))
        except OSError:
            pass  # it has just died; the listener says so

    @property
    def was_killed(self) -> bool:
        """Tell whether somebody else ended the process: a person, or a system out of memory."""
        return self._process.returncode == -9  # SIGKILL, a name Windows does not have

    def cause(self) -> str:
        """Say how the process ended, with the last line it wrote."""
        code = self._process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            text = f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
        else:
            text = f"exit code {code}"
        try:
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{text}; its last words: {lines[-1][:200]}" if lines else text

    def stop(self) -> None:
        """End the process, whatever it does, and everything that belongs to it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent bytes for a dead process
                    stream.close()
        with contextlib.suppress(OSError):
            if self.log.stat().st_size == 0:
                self.log.unlink()

    def _listen(self, inbox: "queue.SimpleQueue[Any]") -> None:
        stream = cast("BinaryIO", self._process.stdout)
        try:
            while True:
                inbox.put((self, receive(stream)))
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            inbox.put((self, None))
