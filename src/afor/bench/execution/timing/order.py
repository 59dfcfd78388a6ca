"""Order the work for many workers, so that no long bundle begins when the others have ended."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from afor.bench.common.devices import is_available
from afor.bench.execution.bundles import Bundle
from afor.bench.execution.timing.forecast import expected_seconds
from afor.bench.execution.timing.step_timing import StepTimer

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource


def longest_first(
    bundles: Sequence[Bundle], sources: Mapping[str, "WindowSource"], timer: StepTimer
) -> list[Bundle]:
    """Return the bundles draw by draw, within a draw by their expected time, the longest first.

    A study that is stopped early has whole draws. Workers take the next bundle whenever they are
    free, so that faster ones take more of them.

    Args:
        bundles: The bundles in the order of the plan; a run by itself is one. Those of a custom
            trainer keep it: the time that its runs take is not known.
        sources: The windows of each data set.
        timer: Measures steps on this machine. Only their proportions matter; what trains on a
            device that this machine does not have is timed on its processor.
    """
    if any("trainer" in job.spec for bundle in bundles for job in bundle):
        return list(bundles)
    seconds = {b[0].key: _seconds(b, sources[b[0].dataset], timer) for b in bundles}
    ordered: list[Bundle] = []
    for _, draw in itertools.groupby(bundles, key=lambda bundle: bundle[0].spec["split"]["draw"]):
        ordered += sorted(draw, key=lambda bundle: -seconds[bundle[0].key])
    return ordered


def _seconds(bundle: Bundle, source: "WindowSource", timer: StepTimer) -> float:
    """Return the sum of the expected times of its runs, each its share of the whole."""
    device = bundle[0].spec["device"]
    here = {"device": device if is_available(device) else "cpu"}
    return sum(expected_seconds({**job.spec, **here}, source, timer, len(bundle)) for job in bundle)
