"""The interface of engines: jobs go in, in bundles that one worker trains, and events come out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource


# A job that killed this many workers is recorded as failed.
MAX_DEATHS = 3


@dataclass(frozen=True)
class Job:
    """One run to train."""

    key: str
    spec: dict[str, Any]
    dataset: str  # whose windows it needs
    bundle_key: str = ""  # equal for runs that may be trained as one network; empty: none


@dataclass(frozen=True)
class Started:
    """A worker started a job."""

    key: str
    worker: str
    together: int = 1  # jobs that the worker trains at once


@dataclass(frozen=True)
class Died:
    """A worker died or hung; its job waits for another worker."""

    key: str
    reason: str


@dataclass(frozen=True)
class Ended:
    """A job ended, successfully or not; `content` goes into the store."""

    key: str
    content: bytes
    spool: Path | None = None  # to be deleted once the content is in the store


class Engine(Protocol):
    """Executes jobs. Closing the iterator stops all workers."""

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], spool: Path
    ) -> Iterator[Started | Died | Ended]:
        """Yield events until every job has ended; raise EngineError or StoreError."""


Bundle = tuple[Job, ...]


def make_bundles(jobs: Sequence[Job], size: int, workers: int) -> list[Bundle]:
    """Put runs of the same data, network and split together, at most `size` in a bundle.

    Bundles are in the order of their first jobs; the last ones are smaller, so that all workers
    have one. A job that cannot be bundled is one of its own.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(f"{job.dataset} {job.bundle_key or job.key}", []).append(job)
    bundles = [piece for group in groups.values() for piece in _cut(group, size)]
    while len(bundles) % workers:
        last = range(max(len(bundles) - workers, 0), len(bundles))
        position = max(last, key=lambda number: len(bundles[number]))
        if len(bundles[position]) == 1:
            break
        bundles[position : position + 1] = halves(bundles[position])
    return bundles


def halves(bundle: Bundle) -> list[Bundle]:
    """Return the two halves of a bundle."""
    middle = (len(bundle) + 1) // 2
    return [bundle[:middle], bundle[middle:]]


def _cut(group: Sequence[Job], size: int) -> list[Bundle]:
    """Cut a group into pieces of nearly equal size."""
    count = -(-len(group) // max(size, 1))
    edges = [len(group) * number // count for number in range(count + 1)]
    return [tuple(group[a:b]) for a, b in pairwise(edges)]
