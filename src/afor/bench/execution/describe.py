"""Describe one run as text."""

import json
from collections.abc import Sequence

from afor.bench.common.text import printable
from afor.bench.store.database import StoredRun
from afor.bench.study.planned_runs import describe
from afor.bench.training.record import METRICS, FinishedRun, Metrics

EPOCHS_SHOWN = 5


def describe_run(key: str, run: FinishedRun | None, stored_runs: Sequence[StoredRun]) -> str:
    """Return the studies, the specification and the results of a run as text."""
    lines = [f"key        {key}"]
    lines += [f"study      {stored.study}: {describe(stored)}" for stored in stored_runs]
    kinds = dict.fromkeys(stored.data_kind for stored in stored_runs)
    lines += [f"data       {kind}" for kind in kinds]
    if run is None:
        return _text([*lines, "status     open: not trained yet"])
    status = f"{run.status}: {run.reason}" if run.reason else run.status
    lines.append(f"status     {status}")
    lines.append(f"finished   {run.finished_at}, after {run.elapsed_s:.2f} s")
    made_with = ", ".join(f"{name} {value}" for name, value in run.environment.items() if value)
    lines.append(f"made with  {made_with}")
    lines.append("spec")
    for name, value in sorted(run.spec.items()):
        lines.append(f"  {name:<11}{json.dumps(value, ensure_ascii=False)}")
    if run.record is not None:
        record = run.record
        lines.append(
            f"training   {len(record.history)} epochs, {record.steps} steps, "
            f"{record.parameters} parameters, on {record.device}"
        )
        for number, epoch in enumerate(record.history):
            is_best = number == record.best_epoch
            if is_best or number >= len(record.history) - EPOCHS_SHOWN:
                lines.append(
                    f"  epoch {number + 1:>3}  train loss {epoch.train_loss:.4f}  validation loss "
                    f"{epoch.validation_loss:.4f}  accuracy {epoch.validation_accuracy:.4f}"
                    f"{'  best' if is_best else ''}"
                )
        for label, metrics in (("windows", record.test), ("trials", record.test_trials)):
            if metrics is not None:
                lines += _metrics(label, metrics)
        if record.prequential:
            scores = record.metrics()
            lines.append(
                f"stream     {len(record.prequential)} subjects before the training on them: "
                f"accuracy {scores['prequential_accuracy']:.4f}  "
                f"nll {scores['prequential_nll']:.4f}"
            )
        if record.before_adaptation is not None:
            lines += _metrics("windows before the adaptation", record.before_adaptation)
        for group, trace in record.traces.items():
            beta2 = trace.get("beta2") or [float("nan")]
            lines.append(f"  beta2 of {group}: {beta2[0]:.5f} at first, {beta2[-1]:.5f} at last")
    if run.traceback:
        lines += ["traceback", *run.traceback.rstrip().expandtabs().split("\n")]
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(map(printable, lines))


def _metrics(label: str, metrics: Metrics) -> list[str]:
    scores = {name: getattr(metrics, name) for name in METRICS}
    values = "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if value is not None)
    matrix = "; ".join(" ".join(map(str, row)) for row in metrics.confusion)
    return [f"test       {metrics.n} {label}: {values}", f"  confusion (rows: truth)  {matrix}"]
