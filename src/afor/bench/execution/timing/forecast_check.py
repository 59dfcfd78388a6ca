"""Compare the forecast of a study with the runs that were trained."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afor.bench.common.errors import ConfigError
from afor.bench.execution.timing.forecast import Source, forecast
from afor.bench.execution.timing.step_timing import StepTimer
from afor.bench.store.database import Store
from afor.bench.study.planned_runs import PlannedRun

Condition = tuple[str, str, str]  # data set, backbone, optimizer


@dataclass(frozen=True)
class Checked:
    """Forecast and measured seconds of some finished runs, all on one worker."""

    runs: int
    forecast_s: float  # with the mean epochs of the finished runs
    before_s: float  # with the epochs that are assumed before the first run
    measured_s: float

    @property
    def ratio(self) -> float:
        """Return the forecast divided by what was measured."""
        return self.forecast_s / self.measured_s

    @property
    def ratio_before(self) -> float:
        """Return the same for the forecast before the first run."""
        return self.before_s / self.measured_s


@dataclass(frozen=True)
class ForecastCheck:
    """The check of each condition, and whether the measured times are processor times."""

    by_condition: Mapping[Condition, Checked]
    processor_time: bool

    @property
    def total(self) -> Checked:
        """Return the check of all runs together."""
        rows = self.by_condition.values()
        return Checked(
            sum(row.runs for row in rows),
            sum(row.forecast_s for row in rows),
            sum(row.before_s for row in rows),
            sum(row.measured_s for row in rows),
        )


def check_forecast(
    runs: Sequence[PlannedRun],
    sources: Mapping[str, Source],
    timer: StepTimer,
    store: Store,
) -> ForecastCheck:
    """Forecast the finished runs of a store and compare with the time they took.

    Processor time is compared if every run has it, which other programs on the machine do not
    change; otherwise the time on the clock.

    Args:
        runs: The runs of the study.
        sources: The windows of each data set.
        timer: Measures steps, on this machine.
        store: Finished runs, whose mean number of epochs the forecast takes.

    Returns:
        The comparison, for each condition.

    Raises:
        ConfigError: The store has no finished run of the study.
    """
    statuses = store.statuses()
    done = [run for run in runs if statuses.get(run.key) == "done"]
    clock_s: dict[Condition, float] = defaultdict(float)
    processor_s: dict[Condition, float] = defaultdict(float)
    processor_time = True
    for run in done:
        finished = store.run(run.key)
        assert finished is not None
        record = finished.record
        clock_s[run.condition] += finished.elapsed_s
        if record is None or record.processor_s is None:
            processor_time = False
        else:
            processor_s[run.condition] += record.processor_s
    measured = processor_s if processor_time else clock_s
    if not sum(measured.values()) > 0.0:
        raise ConfigError(
            f"{store.path} has no finished run of this study to check its forecast with. Run it "
            f"first, or name the store of another result."
        )
    informed, before = forecast(done, sources, timer, store), forecast(done, sources, timer)
    rows = {
        condition: Checked(
            sum(run.condition == condition for run in done),
            informed.by_condition[condition].middle,
            before.by_condition[condition].middle,
            seconds,
        )
        for condition, seconds in measured.items()
    }
    return ForecastCheck(rows, processor_time)


def describe_check(check: ForecastCheck) -> list[str]:
    """Return the lines that `afor plan --check` prints."""
    measure = "processor time" if check.processor_time else "time on the clock"
    total = check.total
    lines = [
        f"  {' × '.join(condition)}: {_describe(row)}"
        for condition, row in check.by_condition.items()
    ]
    return [
        *lines,
        f"forecast against {total.runs} finished runs, {measure}: {_describe(total)}",
        f"before their number of epochs was known: {total.before_s:.0f} s, "
        f"ratio {total.ratio_before:.2f}",
    ]


def _describe(row: Checked) -> str:
    return f"{row.forecast_s:.0f} s, measured {row.measured_s:.0f} s, ratio {row.ratio:.2f}"
