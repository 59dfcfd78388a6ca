"""Order the runs for many workers, so that no long run begins when the others have ended."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from afor.bench.common.devices import is_available
from afor.bench.execution.jobs import Job
from afor.bench.execution.timing.forecast import expected_seconds
from afor.bench.execution.timing.step_timing import StepTimer

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource


def longest_first(
    jobs: Sequence[Job], sources: Mapping[str, "WindowSource"], timer: StepTimer
) -> list[Job]:
    """Return the jobs draw by draw, within a draw by their expected time, the longest first.

    A study that is stopped early has whole draws. Workers take the next job whenever they are free,
    so that faster ones take more of them.

    Args:
        jobs: The jobs in the order of the plan. Those of a custom trainer keep it: the time that
            its runs take is not known.
        sources: The windows of each data set.
        timer: Measures steps on this machine. Only their proportions matter; what trains on a
            device that this machine does not have is timed on its processor.
    """
    if any("trainer" in job.spec for job in jobs):
        return list(jobs)
    seconds = {job.key: _seconds(job, sources[job.dataset], timer) for job in jobs}
    ordered: list[Job] = []
    for _, draw in itertools.groupby(jobs, key=lambda job: job.spec["split"]["draw"]):
        ordered += sorted(draw, key=lambda job: -seconds[job.key])
    return ordered


def _seconds(job: Job, source: "WindowSource", timer: StepTimer) -> float:
    spec = job.spec if is_available(job.spec["device"]) else {**job.spec, "device": "cpu"}
    return expected_seconds(spec, source, timer)
