"""The command ``afor status``. It imports little: users call it often, while a study runs."""

from afor.bench.cli.options import Json, Results
from afor.bench.cli.terminal import print_json, print_next, run_command
from afor.bench.execution.status import print_status, status_of
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store


def status(results: Results, as_json: Json = False) -> None:
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
        print_next(f"afor failures {results}")
    elif unfinished:
        print_next(run_command(results, path, unfinished[0]))
    else:
        print_next(f"afor stats {path}")
