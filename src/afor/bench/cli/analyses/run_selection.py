"""Find the run that an analysis trains again."""

from afor.bench.analyses.replay import ChosenRun, find_run
from afor.bench.cli.options import RunOptions
from afor.bench.cli.studies.selection import with_roots
from afor.bench.study.schema import Study


def select_run(study: Study, options: RunOptions, optimizer: str) -> ChosenRun:
    """Return the run of a study that the options of a command name, with its windows."""
    return find_run(
        with_roots(study, options.root),
        dataset=options.dataset,
        backbone=options.backbone,
        optimizer=optimizer,
        fold=options.fold,
        draw=min(study.protocol.only_draws or [0]),
    )
