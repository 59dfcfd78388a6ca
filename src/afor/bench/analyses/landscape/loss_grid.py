"""Make a grid in a plane, and evaluate a function at many points on all cores.

    values = evaluate(function, 2601, workers=4)  # function(0), function(1), ...

Each point is one call on one thread, so the values do not depend on the number of workers.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from afor.bench.common.devices import repeatable
from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.common.module_search import safe_start
from afor.bench.execution.engines.worker import die_with

Function = Callable[[int], float]  # of a point's number; picklable if there are several workers
Watch = Callable[[int, int], None]  # points done, points in all

LEAST_GRID = 3
CHUNK = 4  # points a worker takes at once; Ctrl-C waits until they are done


def grid_axis(points: int, span: float) -> NDArray[np.float64]:
    """Return the coordinates of a grid from -span to span; an odd number has 0 among them.

    >>> grid_axis(5, 1.0).tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    if points < LEAST_GRID:
        raise ConfigError(f"a grid of {points} x {points}: at least {LEAST_GRID} are needed.")
    if not 0 < span < float("inf"):
        raise ConfigError(f"span {span}: it must be a number above 0, in units of the directions.")
    numbers = np.arange(points, dtype=np.float64) - (points - 1) / 2
    return numbers * np.float64(2 * span / (points - 1))


def grid_coordinates(axis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all (x, y) of a grid, row by row: x runs fastest."""
    x, y = np.meshgrid(axis, axis)
    return np.stack([x.ravel(), y.ravel()], axis=1)


def evaluate(
    function: Function, count: int, *, workers: int = 1, watch: Watch | None = None
) -> NDArray[np.float64]:
    """Return function(0) … function(count - 1).

    Workers are spawned, not forked: a script that asks for several needs `if __name__ ==
    "__main__":`. `watch` is called with the points done and the points in all.
    """
    if workers < 1:
        raise ConfigError(f"-j {workers}: at least one worker is needed.")
    if workers == 1:
        with repeatable(1):
            return _collect(map(function, range(count)), count, watch)
    with _pool(workers, function) as pool:
        return _collect(pool.map(_evaluate, range(count), chunksize=CHUNK), count, watch)


def _collect(values: Iterable[float], count: int, watch: Watch | None) -> NDArray[np.float64]:
    collected = np.empty(count)
    for i, value in enumerate(values):
        collected[i] = value
        if watch is not None:
            watch(i + 1, count)
    return collected


@contextmanager
def _pool(workers: int, function: Function) -> Iterator[ProcessPoolExecutor]:
    with safe_start():  # the pool and its first piece of work start processes
        pool = ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("spawn"),  # a forked torch may hang on its own threads
            initializer=_start,
            initargs=(os.getpid(), function),
        )
        try:
            yield pool
        except BrokenProcessPool as error:
            raise EngineError(
                "A worker died while it computed losses, perhaps for lack of memory. Use fewer "
                "workers (-j) or fewer windows (--windows)."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_function: Function  # in a worker: the function it evaluates


def _start(parent: int, function: Function) -> None:
    global _function
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us
    torch.set_num_threads(1)
    _function = function


def _evaluate(number: int) -> float:
    return _function(number)
