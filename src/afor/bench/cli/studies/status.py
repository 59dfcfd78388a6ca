"""The command ``afor status``. It imports little: users call it often, while a study runs."""

from typing import Any

import typer

from afor.bench.cli.terminal import print_facts, print_json, print_next, run_command
from afor.bench.common.text import counted, printable
from afor.bench.execution.run_times import clock
from afor.bench.execution.status import STATUSES, status_of
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store
from afor.bench.study.protocol import KIND_NOTES


def status(results: str, *, as_json: bool = False) -> None:
    """Show the progress of a study, also while it runs.

    Example:
        afor status demo
    """
    path = find_store(results)
    with open_store(path) as opened:
        progress = status_of(opened)
    if as_json:
        print_json(progress)
        return
    print_status(progress)
    studies = progress["studies"]
    unfinished = [row["study"] for row in studies if row["open"]]
    if any(row["failed"] for row in studies):
        print_next(f"afor store failures {results}")
    elif unfinished:
        print_next(run_command(results, path, unfinished[0]))
    else:
        print_next(f"afor judge {path}")


def print_status(status: dict[str, Any]) -> None:
    """Print the counts of each study, and what is under way."""
    for study in status["studies"]:
        counts = ", ".join(f"{study[word]} {word}" for word in STATUSES if study[word])
        left = study["seconds_of_work_left"]
        hint = f"; {clock(left)} of training left" if left else ""
        facts = [
            (printable(dataset), KIND_NOTES[kind])
            for dataset, kind in study["data"].items()
            if kind in KIND_NOTES
        ]
        width = max(len(printable(row["method"])) for row in study["conditions"])
        for row in study["conditions"]:
            ended = [f"{row['done']} of {sum(row[word] for word in STATUSES)} done"]
            ended += [f"{row[word]} {word}" for word in STATUSES[1:] if row[word]]
            task = printable(f"{row['dataset']} × {row['backbone']}")
            facts.append((task, f"{printable(row['method']):<{width}}  {', '.join(ended)}"))
        name, planned = printable(study["study"]), counted(study["planned"], "run")
        print_facts(f"{name}: {planned}: {counts}{hint}", facts)
    typer.echo("\n".join(_driver_lines(status)))
    if not status["studies"]:
        typer.echo(f"{status['store']} holds no study yet.")


def _driver_lines(status: dict[str, Any]) -> list[str]:
    """Return lines about the driver and about runs that take unusually long."""
    if status["driver"] is None:
        return ["No driver is running."]
    lines = [
        f"Driver: process {status['driver']}, {counted(len(status['running']), 'run')} under way."
    ]
    lines += [
        f"UNUSUALLY LONG: {printable(run['run'])} ({printable(run['key'][:12])}), "
        f"{clock(run['seconds'])} on {printable(run['worker'])}; "
        f"usual: {clock(run['usual_seconds'])}."
        for run in status["running"]
        if run["unusually_long"]
    ]
    return lines
