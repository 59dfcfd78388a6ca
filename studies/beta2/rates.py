"""Write into a study on beta2 the learning rate of every method, chosen on other people.

    python studies/beta2/rates.py results/awake-choose.db studies/beta2/awake.toml

The first file holds the runs of the study `awake-choose`: its store, or the runs exported from it
as CSV. A method is given the rate with the smallest mean NLL on the test people there.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from statistics import fmean

import tomlkit
from methods import Method, main_metric, method_of, runs_by_method, study_of

from afor.bench.study.schema import load_study

Means = dict[Method, dict[float, float]]


def mean_nll(runs: Path) -> Means:
    """Return the mean NLL by method and learning rate.

    Raises:
        SystemExit: The learning rates do not have the same folds.
    """
    metric = main_metric(study_of(runs.stem))
    grouped = runs_by_method(runs)
    if (
        len({frozenset((run.fold, run.repetition) for run in group) for group in grouped.values()})
        > 1
    ):
        sys.exit(f"{runs}: the methods have different folds. Finish the study with `afor run`.")
    means: Means = {}
    for (method, rate), group in grouped.items():
        means.setdefault(method, {})[rate] = fmean(run.metrics[metric] for run in group)
    return means


def chosen_rates(runs: Path, among: Collection[float] | None = None) -> dict[Method, float]:
    """Return the learning rate with the smallest mean NLL of every method.

    Args:
        runs: Runs of a choosing study.
        among: Only these learning rates; None takes all of the study.
    """
    chosen = {}
    for method, rates in mean_nll(runs).items():
        grid = [rate for rate in rates if among is None or rate in among]
        chosen[method] = min(grid, key=lambda rate: rates[rate])
    return chosen


def rate_table(runs: Path) -> str:
    """Return the mean NLL by method and learning rate as Markdown, the smallest in bold."""
    means = mean_nll(runs)
    grid = sorted({rate for rates in means.values() for rate in rates})
    lines = [
        f"| NLL at the learning rate | {' | '.join(f'{rate:g}' for rate in grid)} |",
        "|---|" + "---:|" * len(grid),
    ]
    for method, rates in means.items():
        best = min(rates.values())
        cells = [f"{rates[rate]:.4f}" for rate in grid]
        marked = [f"**{c}**" if rates[r] == best else c for r, c in zip(grid, cells, strict=True)]
        lines.append(f"| {method.label} | {' | '.join(marked)} |")
    return "\n".join(lines) + "\n"


def main(runs: Path, file: Path) -> None:
    """Write the rates into the study's file and print the table."""
    entries = {entry.name: entry for entry in load_study(str(file)).optimizers}
    rates = chosen_rates(runs)
    document = tomlkit.parse(file.read_text("utf-8"))
    for table in document["optimizers"]:  # type: ignore[union-attr]
        table["lr"] = rates[method_of(entries[table["name"]])]  # type: ignore[index, call-overload]
    file.write_text(tomlkit.dumps(document), "utf-8")
    sys.stdout.write(rate_table(runs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
