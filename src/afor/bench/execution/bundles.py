"""Put jobs together that one worker trains as one network."""

from collections.abc import Sequence
from itertools import pairwise

from afor.bench.execution.jobs import Job

Bundle = tuple[Job, ...]


def make_bundles(jobs: Sequence[Job], size: int, workers: int) -> list[Bundle]:
    """Put runs of the same data, network and split together, at most `size` in a bundle.

    Args:
        jobs: The jobs in the order of the plan.
        size: Maximum number of runs of a bundle.
        workers: Number of workers; the last bundles are made smaller so that all have one.

    Returns:
        The bundles, in the order of their first jobs. A job that cannot be bundled is one of its
        own.
    """
    companions: dict[str, list[Job]] = {}
    for job in jobs:
        companions.setdefault(f"{job.dataset} {job.companions or job.key}", []).append(job)
    bundles = [piece for group in companions.values() for piece in _cut(group, size)]
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
