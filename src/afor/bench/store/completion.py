"""Fill in the columns that a file of an earlier version of `afor export` lacks.

Metrics cannot be recomputed, but roles, classes and the accuracy of the majority class follow from
the study and its data. Rows and planned runs are matched by key: a file that was trained on other
data, or by another study, is refused. A run may have been trained before the arithmetic of its
network changed; these columns do not depend on it.
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
    """Return the rows with all columns that follow from their studies, in the current order.

    Values that a row has are kept. The plans are those of all studies in the file at `path`, made
    with their data.

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
        derived = {
            "is_search": int(plan.study.search is not None),
            **role_columns(run.role or role_from_name(run.optimizer)),
            **(_task(run, plan) if row.get("status") == "done" else {}),
        }
        merged = derived | {name: value for name, value in row.items() if value is not None}
        names = [name for name in COLUMNS if name in row or name in derived]
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
    """Return the columns that follow from the labels of a run's split."""
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
