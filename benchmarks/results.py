"""What was measured: records of samples, ratios between them, and their JSON form."""

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from contenders import YARDSTICK

from afor.native.binding import instruction_set

SCHEMA = 1
USEFUL_BYTES = 28  # Adam's minimum per float32 parameter: read p, g, m, v and write p, m, v


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise samples."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass
class Record:
    """One contender on one workload; either samples, or the reason why there are none."""

    workload: str
    title: str
    threads: int
    gradients: str  # "kept", "fresh" or "backward"
    contender: str
    label: str
    parameters: int
    tensors: int
    session: str = ""  # records of one session have their rounds in common
    samples_us: list[float] = field(default_factory=list)
    yardstick_us: list[float] = field(default_factory=list)  # of the same rounds
    whole_us: list[float] = field(default_factory=list)  # with forward and backward, if any
    state_bytes: int = 0
    missing: str = ""

    @property
    def group(self) -> tuple[str, int, str]:
        """Return the table this record belongs to."""
        return self.workload, self.threads, self.gradients

    @property
    def time_us(self) -> Spread:
        """Return the time of the optimizer's step."""
        return Spread.of(self.samples_us)

    @property
    def useful_gb_s(self) -> float:
        """Return the rate of a step that moves no more than Adam must."""
        return self.parameters * USEFUL_BYTES / self.time_us.median / 1e3


@dataclass
class Results:
    """Everything one run of the benchmark has measured."""

    machine: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    copy_gb_s: dict[int, list[float]] = field(default_factory=dict)  # by threads

    def find(
        self, workload: str, threads: int, contender: str, gradients: str | None = None
    ) -> Record | None:
        """Return the record with samples, if there is one."""
        for record in self.records:
            at = (record.workload, record.threads, record.contender)
            if at == (workload, threads, contender) and gradients in (None, record.gradients):
                return record if record.samples_us else None
        return None

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "schema": SCHEMA,
            "machine": self.machine,
            "copy_gb_s": self.copy_gb_s,
            "records": [
                {**asdict(r), "median_us": r.time_us.median if r.samples_us else None}
                for r in self.records
            ],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read what `save` wrote."""
        content = json.loads(path.read_text())
        if content.get("schema") != SCHEMA:
            raise SystemExit(f"{path}: expected schema {SCHEMA}, found {content.get('schema')}")
        for record in content["records"]:
            del record["median_us"]
        copies = {int(threads): samples for threads, samples in content["copy_gb_s"].items()}
        return cls(content["machine"], [Record(**r) for r in content["records"]], copies)


def join(runs: Iterable[Results]) -> list[Results]:
    """Put runs on the same processor with the same instruction set and versions together."""
    joined: dict[tuple[Any, ...], Results] = {}
    for run in runs:
        names = ("cpu", "kernel_isa", "clock", "python", "torch")
        first = joined.setdefault(tuple(run.machine.get(name) for name in names), run)
        if first is not run:
            first.records += run.records
            first.copy_gb_s.update(run.copy_gb_s)
            busy = [r.machine.get("cores_used_by_others") or 0.0 for r in (first, run)]
            first.machine["cores_used_by_others"] = max(busy)
    return list(joined.values())


def ratio(record: Record, other: Record, *, whole: bool = False) -> Spread:
    """Return how many times the other's time a record takes, from rounds they have in common.

    Contenders that were never in memory together are compared through the yardstick.
    """
    if whole:
        return _paired(record.whole_us, other.whole_us)
    if record.session == other.session:
        return _paired(record.samples_us, other.samples_us)
    if other.contender == YARDSTICK:
        return _paired(record.samples_us, record.yardstick_us)
    if record.contender == YARDSTICK:
        return _paired(other.yardstick_us, other.samples_us)
    ours = _paired(record.samples_us, record.yardstick_us)
    theirs = _paired(other.samples_us, other.yardstick_us).median
    return Spread(*(value / theirs for value in ours))


def _paired(ours: Iterable[float], theirs: Iterable[float]) -> Spread:
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])


def describe_machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return {
        "cpu": model,
        "kernel_isa": instruction_set(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


class Bystanders:
    """Counts the processor time that others use from now on; on Linux only."""

    def __init__(self) -> None:
        self._start = self._seconds()

    def cores(self) -> float | None:
        """Return how many cores others have kept busy on average."""
        now = self._seconds()
        if now is None or self._start is None:
            return None
        wall, all_busy, own = (a - b for a, b in zip(now, self._start, strict=True))
        return round(max(all_busy - own, 0.0) / max(wall, 1e-9), 3)

    @staticmethod
    def _seconds() -> tuple[float, float, float] | None:
        stat = Path("/proc/stat")
        if not stat.exists():
            return None
        fields = [int(x) for x in stat.read_text().split("\n", 1)[0].split()[1:9]]
        idle, iowait = fields[3], fields[4]
        busy = (sum(fields) - idle - iowait) / os.sysconf("SC_CLK_TCK")
        own = sum(os.times()[:4])  # user and system, with the compilers it has started
        return time.perf_counter(), busy, own
