"""Run a worker process: receive jobs from the driver, train them, write results to the spool.

The driver starts it by `BOOTSTRAP` with the arguments PARENT, SPOOL and the
folders of its own `sys.path`. It exchanges pickled messages over standard input and output, serves
many runs because importing torch takes seconds, and exits when its driver does.
"""

import contextlib
import faulthandler
import os
import pickle
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

from afor.bench.common.devices import keep_freed_memory

PR_SET_PDEATHSIG = 1  # of Linux' prctl
# The code of the process (`python -c`): it appends the missing folders of the driver.
BOOTSTRAP = (
    "import sys; sys.path += [p for p in sys.argv[3:] if p not in sys.path]; "
    f"from {__name__} import main; main()"
)


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message, which `pickle.load` reads."""
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def die_with(parent: int) -> None:
    """Ask the system to kill this process with the driver; exit if the driver died already."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.name != "nt" and os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve one driver until it closes the pipe."""
    parent, spool = int(sys.argv[1]), Path(sys.argv[2])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the driver
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text goes to the log, not between the messages
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox,), daemon=True).start()

    from afor.bench.store.spool import write_spool
    from afor.bench.training.execute import execute_bundle

    def finished(key: str, result: bytes) -> None:
        try:
            write_spool(spool, key, result)
        except OSError as error:
            send(answers, ("unwritable", f"{error}"))
        else:
            send(answers, ("finished", key))

    keep_freed_memory()
    sources: dict[str, Any] = {}
    send(answers, ("ready",))
    while True:
        message, *rest = inbox.get()
        if message == "source":
            name, content = rest
            sources[name] = pickle.loads(content)
            continue
        jobs, dataset = rest
        for key, _ in jobs:
            send(answers, ("started", key))
        execute_bundle(jobs, sources[dataset], finished)


def _listen(inbox: "queue.SimpleQueue[Any]") -> None:
    """Forward messages, and exit immediately if the driver has exited.

    On systems without a death signal, this ends the process even during training.
    """
    stream = os.fdopen(os.dup(0), "rb")
    try:
        while True:
            inbox.put(pickle.load(stream))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)
