"""How far a store is: counts per cell of the grid, failures, and the time that is left."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from afor.bench.estimate import Pace, clock
from afor.bench.plan import Cell
from afor.bench.store import Store, StoredCell

WORDS = ("done", "diverged", "failed", "open")


def status_of(store: Store) -> dict[str, Any]:
    """Count the runs of every study of a store."""
    cells = store.cells()
    studies = []
    for name in dict.fromkeys(cell.study for cell in cells):
        mine = [cell for cell in cells if cell.study == name]
        grid: dict[tuple[str, str, str], Counter[str]] = {}
        for cell in mine:
            place = (cell.dataset, cell.backbone, cell.optimizer)
            grid.setdefault(place, Counter())[cell.status] += 1
        counts = Counter(cell.status for cell in mine)
        studies.append(
            {
                "study": name,
                "planned": len(mine),
                **{word: counts[word] for word in WORDS},
                "seconds_of_work_left": _left(mine),
                "last_finished_at": max((cell.finished_at for cell in mine), default=""),
                "cells": [
                    {
                        "dataset": place[0],
                        "backbone": place[1],
                        "optimizer": place[2],
                        **{word: count[word] for word in WORDS},
                    }
                    for place, count in grid.items()
                ],
            }
        )
    return {"store": str(store.path), "studies": studies}


def remaining_s(store: Store, cells: Sequence[Cell]) -> float | None:
    """Return the seconds of training that a plan still needs, from the runs in the store."""
    statuses = store.statuses()
    waiting = {
        cell.key: (cell.dataset, cell.backbone, cell.optimizer)
        for cell in cells
        if cell.key not in statuses
    }
    return _pace(store.cells()).total(list(waiting.values()))


def print_status(found: dict[str, Any]) -> None:
    """Print the counts as tables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for study in found["studies"]:
        counts = ", ".join(f"{study[word]} {word}" for word in WORDS if study[word])
        left = study["seconds_of_work_left"]
        hint = f"; {clock(left)} of training left" if left else ""
        console.print(f"{study['study']}: {study['planned']} runs: {counts}{hint}", markup=False)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
        for heading in ("dataset", "backbone", "optimizer"):
            table.add_column(heading)
        shown = [word for word in WORDS if study[word]]
        for word in shown:
            table.add_column(word, justify="right")
        for cell in study["cells"]:
            numbers = [str(cell[word]) for word in shown]
            table.add_row(cell["dataset"], cell["backbone"], cell["optimizer"], *numbers)
        console.print(table)
    if not found["studies"]:
        console.print(f"{found['store']} holds no study yet.", markup=False)


def _pace(cells: Sequence[StoredCell]) -> Pace:
    pace = Pace()
    for cell in cells:
        if cell.status in ("done", "diverged"):
            pace.add(cell.dataset, cell.backbone, cell.optimizer, cell.elapsed_s)
    return pace


def _left(cells: Sequence[StoredCell]) -> float | None:
    waiting = [(c.dataset, c.backbone, c.optimizer) for c in cells if c.status == "open"]
    return _pace(cells).total(waiting)
