"""Fill in the columns that a file of an earlier version of `afor export` lacks.

Metrics cannot be made anew, but what the study and its data tell can: roles, classes, and the
accuracy of the majority class. Rows and planned runs are matched by key, so a file that was trained
on other data, or by another study, is refused. A run may have been trained before the arithmetic of
its network changed: what the study tells of it is the same.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from afor.bench.common.errors import ConfigError
from afor.bench.data.window_source import WindowSource
from afor.bench.store.files import COLUMNS, Row, role_columns
from afor.bench.study.planned_runs import PlannedRun, StudyPlan, run_key
from afor.bench.study.roles import role_from_name


def complete_rows(rows: Sequence[Row], plans: Sequence[StudyPlan], path: Path) -> list[Row]:
    """Return the rows with the columns of today that their studies tell, in today's order.

    A value that a row already has stays. The plans are those of all studies in the file at `path`,
    made with their data.

    Raises:
        ConfigError: A row belongs to none of the plans.
    """
    planned = {
        plan.study.name: {key: run for run in plan.runs for key in _keys(run)} for plan in plans
    }
    studies = {plan.study.name: plan for plan in plans}
    completed = []
    for number, row in enumerate(rows, 1):
        run = planned.get(row["study"], {}).get(row["key"])
        if run is None:
            raise ConfigError(
                f"{path}, run {number}: {row['study']}, {row['optimizer']}, fold {row['fold']}, "
                f"draw {row['draw']} is not a run of {', '.join(studies) or 'a study'}. Name its "
                "study with --study, and the data it was trained on with --root."
            )
        plan = studies[row["study"]]
        told = {
            "is_search": int(plan.study.search is not None),
            **role_columns(run.role or role_from_name(run.optimizer)),
            **(_task(run, plan) if row.get("status") == "done" else {}),
        }
        merged = told | {name: value for name, value in row.items() if value is not None}
        names = [name for name in COLUMNS if name in row or name in told]
        completed.append({name: merged.get(name) for name in names})
    return completed


def _keys(run: PlannedRun) -> Iterator[str]:
    """Yield the key of a run, and those it had under each earlier arithmetic of its network."""
    yield run.key
    backbone = dict(run.spec["backbone"])
    for code in range(backbone.pop("code", 1) - 1, 0, -1):
        earlier = {**backbone, "code": code} if code > 1 else backbone
        yield run_key({**run.spec, "backbone": earlier})


def _task(run: PlannedRun, plan: StudyPlan) -> Row:
    """Return what the labels of a run's split tell."""
    source = plan.sources[run.dataset]
    if not isinstance(source, WindowSource):
        raise TypeError(f"{run.dataset}: the labels are not known without the data")
    train, test = (
        np.bincount(
            source.labels[source.indices_of(run.spec["split"][side])], minlength=source.n_classes
        )
        for side in ("train", "test")
    )
    return {
        "majority_accuracy": float(test[train.argmax()] / test.sum()),
        "classes": source.n_classes,
    }
