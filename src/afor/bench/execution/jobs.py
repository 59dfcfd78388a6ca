"""What an engine is given and what it reports; every engine takes the same list of jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource

# A job that took down this many workers is recorded as failed, and the rest goes on.
MAX_DEATHS = 3


@dataclass(frozen=True)
class Job:
    """One run to be trained."""

    key: str
    spec: dict[str, Any]
    dataset: str  # whose windows it needs


@dataclass(frozen=True)
class Started:
    """A worker has begun a job."""

    key: str
    worker: str


@dataclass(frozen=True)
class Died:
    """A worker died or hung with a job, which waits for another worker."""

    key: str
    reason: str


@dataclass(frozen=True)
class Ended:
    """A job has ended, well or not; `content` is what the store takes."""

    key: str
    content: bytes
    spool: Path | None = None  # to be removed once the content is in the store


class Engine(Protocol):
    """Runs jobs somewhere. Closing the iterator stops everything that was started."""

    def run(
        self, jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], spool: Path
    ) -> Iterator[Started | Died | Ended]:
        """Yield what happens until every job has ended once; raise EngineError or StoreError."""
