"""Define the interface of engines: jobs go in, events come out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    companions: str = ""  # equal for runs that may be trained as one network; empty: none


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
