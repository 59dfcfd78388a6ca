"""The commands ``afor stats | table | figure``: results to read, to print and to publish."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.cost import table as cost_table
from afor.bench.analyses.landscape.figure import landscape_figure
from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.table import landscape_table
from afor.bench.cli.options import (
    AllowDifferent,
    Json,
    OnlyStudies,
    ResultsList,
    TableFormat,
    argument,
    option,
)
from afor.bench.cli.printing import FORMATS, by_suffix, check_figures, choose, render
from afor.bench.cli.results.reading import Margins, find_all, load_conditions, read_json
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output, write_output
from afor.bench.report.figures import curves as curve_figures
from afor.bench.report.figures import results as figures
from afor.bench.report.figures.noise import noise_figure
from afor.bench.report.figures.style import save_figure
from afor.bench.report.tables import main as main_tables
from afor.bench.report.tables import paper as paper_tables
from afor.bench.report.tables import planning as planning_tables
from afor.bench.report.tables import side as side_tables
from afor.bench.report.tables import variants as variant_tables
from afor.bench.report.tables.convergence import convergence_table
from afor.bench.report.tables.formats import Table, to_json
from afor.bench.stats.comparisons import BASELINE, blocks_of, mean_ranks
from afor.bench.stats.curves import loss_curves, run_traces
from afor.bench.stats.design.seed_noise import seed_noise
from afor.bench.stats.groups import Conditions, default_metrics
from afor.bench.stats.labels import PAPER_METRICS, metric_with_unit
from afor.bench.stats.sensitivity import Sensitivity, sensitivity_of
from afor.bench.store.files import load_records

FROM_RESULTS = (
    "main",
    "comparisons",
    "ablation",
    "sensitivity",
    "ranks",
    "noise",
    "datasets",
    "beside-paper",
)
FROM_STORES = ("convergence",)  # files of results hold no curves
FROM_PAPER = ("paper", "paper-ablation", "paper-datasets", "same-method", "published-power")
MEASURED = ("learning-rates", "cost", "landscape")
TABLES = (*FROM_RESULTS, *FROM_STORES, *FROM_PAPER, *MEASURED)
RESULT_FIGURES = ("gain", "folds", "ranks", "ablation", "sensitivity", "noise")
CURVE_FIGURES = ("convergence", "forgetting")
FILE_FIGURES = ("landscape",)  # from --data alone
FIGURES = (*RESULT_FIGURES, *CURVE_FIGURES, *FILE_FIGURES)
DATA_FORMAT = "docs/howto/tables-and-figures.md describes the format"

Metrics = Annotated[
    list[str] | None,
    option(
        "Metric to show: accuracy, weighted_f1, macro_f1, balanced_accuracy, kappa, nll, "
        "brier or calibration_error; repeatable.",
        "--metric",
        "-m",
        show_default="accuracy, weighted_f1, and nll if recorded",
    ),
]
Baseline = Annotated[str, option("The optimizer that all others are compared with.")]
OnlyOptimizers = Annotated[
    list[str] | None,
    option("Use only this optimizer; Holm's correction then covers these alone; repeatable."),
]


@dataclass(frozen=True)
class ResultOptions:
    """Which results a command reads, and what of them it shows."""

    results: ResultsList = None
    metric: Metrics = None
    baseline: Baseline = BASELINE
    optimizer: OnlyOptimizers = None
    study: OnlyStudies = None
    margin: Margins = None
    allow_different: AllowDifferent = None


def selection(options: ResultOptions) -> str:
    """Return the words that make another command read the same results and ask the same of them."""
    words = list(options.results or ["RESULTS"])
    words += ["--baseline", options.baseline] if options.baseline != BASELINE else []
    for name in ("study", "metric", "optimizer", "margin"):
        for value in getattr(options, name) or ():
            words += [f"--{name}", value]
    return shlex.join(words)


def stats(options: ResultOptions, as_json: Json = False) -> None:
    """Compare all optimizers with a baseline: verdicts, tests, ranks.

    Each optimizer is better, worse, equivalent within the margin that the study states, or
    undecided; for the last, the text says what would decide. Prints gains with exact intervals and
    p-values, mean ranks, and how far another seed moves a result where the study has copies.

    Example:
        afor stats demo --baseline adam
    """
    paths = find_all(options.results)
    conditions = load_conditions(paths, options.study, options.margin, options.allow_different)
    metrics = options.metric or default_metrics(conditions)
    names = ["comparisons", "ranks"]
    if any(seed_noise(conditions, *block, m) for block in blocks_of(conditions) for m in metrics):
        names.append("noise")
    tables = [_result_table(name, conditions, options) for name in names]
    if as_json:
        print_json([json.loads(to_json(table)) for table in tables])
        return
    for built in tables:
        typer.echo(render(built, "terminal"))
    print_next(f"afor table main {selection(options)}")


def table(
    name: Annotated[str, argument(f"The table: {', '.join(TABLES)}.")],
    options: ResultOptions,
    form: TableFormat = None,
    output: Annotated[
        Path | None,
        option(
            "A .md, .tex, .csv, .json or .txt file.",
            "--output",
            "-o",
            show_default="standard output",
        ),
    ] = None,
    ours: Annotated[
        Path | None, option("JSON file of measured values, shown beside the paper's.")
    ] = None,
    standalone: Annotated[
        bool, option("Write LaTeX as a whole document instead of a table.", "--standalone")
    ] = False,
) -> None:
    """Print one table for the terminal, a README, LaTeX or a program.

    Example:
        afor table main demo --output main.tex
    """
    if output is not None:
        check_output(output)
    form = choose(form or by_suffix(output), FORMATS, "--format")
    name = choose(name, TABLES, "the table")
    paths = find_all(options.results)
    built = _build_table(name, paths, options, read_json(ours) if ours else None)
    text = render(built, form, standalone=standalone, to_file=output is not None)
    if output is None:
        typer.echo(text.rstrip("\n"))
    else:
        write_output(output, text)
        typer.echo(str(output))
    if name in (*FROM_RESULTS, *FROM_STORES):
        drawn = name if name in (*RESULT_FIGURES, *CURVE_FIGURES) else "gain"
        only_first = replace(options, metric=(options.metric or [])[:1])
        print_next(f"afor figure {drawn} {selection(only_first)} --output {drawn}.pdf")


def figure(
    name: Annotated[str, argument(f"The figure: {', '.join(FIGURES)}.")],
    results: ResultsList = None,
    output: Annotated[
        list[Path] | None,
        option("A .pdf, .svg or .png file; repeatable.", "--output", "-o", show_default="NAME.pdf"),
    ] = None,
    metric: Annotated[str, option("Metric to show.", "--metric", "-m")] = "accuracy",
    baseline: Baseline = BASELINE,
    optimizer: OnlyOptimizers = None,
    dataset: Annotated[str | None, option("Use only this data set.")] = None,
    backbone: Annotated[str | None, option("Use only this backbone.")] = None,
    study: OnlyStudies = None,
    margin: Margins = None,
    allow_different: AllowDifferent = None,
    data: Annotated[
        Path | None,
        option(
            "JSON file to draw instead of results: convergence, sensitivity, forgetting or "
            "landscape."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw one figure, one column (88 mm) wide.

    Example:
        afor figure gain demo --output gain.pdf
    """
    name = choose(name, FIGURES, "the figure")
    targets = output or [Path(f"{name}.pdf")]
    check_figures(targets)
    paths = find_all(results)
    if name in FILE_FIGURES:
        if data is None:
            raise ConfigError(
                "The figure 'landscape' needs --data FILE.json; `afor landscape STUDY` writes one."
            )
        drawn = landscape_figure(read_landscape(read_json(data), str(data)))
    elif data is not None:
        drawn = _draw_file(name, data)
    elif name in CURVE_FIGURES:
        drawn = _draw_curves(name, paths, study, dataset, backbone, optimizer)
    else:
        conditions = load_conditions(paths, study, margin, allow_different)
        drawn = _draw_results(name, conditions, metric, baseline, optimizer, dataset, backbone)
    for target in targets:
        save_figure(drawn, target)
        if not as_json:
            typer.echo(str(target))
    if as_json:
        print_json({"figure": name, "files": [str(target) for target in targets]}, indent=None)
        return
    if not optimizer and results:  # a report shows all optimizers
        chosen = ResultOptions(results, [metric], baseline, None, study, margin)
        print_next(f"afor report {selection(chosen)}")


def _build_table(name: str, paths: list[Path], options: ResultOptions, measured: Any) -> Table:
    without_results: dict[str, Callable[[], Table]] = {
        "paper": lambda: paper_tables.published_table("results"),
        "paper-ablation": lambda: paper_tables.published_table("ablation"),
        "paper-datasets": paper_tables.paper_datasets_table,
        "same-method": paper_tables.same_method_table,
        "published-power": planning_tables.published_power_table,
        "learning-rates": lambda: paper_tables.learning_rates_table(measured),
        "cost": lambda: (
            cost_table.cost_table(measured) if measured else paper_tables.paper_cost_table()
        ),
        "landscape": lambda: landscape_table(measured),
    }
    if name in without_results:
        return without_results[name]()
    if name in FROM_STORES:
        if not paths:
            raise ConfigError(
                f"The table {name!r} needs a store: name a study, its TOML file or a store file."
            )
        records = load_records(paths, options.study or ())
        return convergence_table(loss_curves(records, options.optimizer))
    return _result_table(
        name,
        load_conditions(paths, options.study, options.margin, options.allow_different),
        options,
    )


def _result_table(name: str, conditions: Conditions, options: ResultOptions) -> Table:
    metrics = options.metric or default_metrics(conditions)
    as_paper = options.metric or PAPER_METRICS
    only: dict[str, Any] = {"optimizers": options.optimizer}
    compared = {"baseline": options.baseline, **only}
    tables: dict[str, Callable[[], Table]] = {
        "main": lambda: main_tables.main_table(conditions, metrics, **compared),
        "comparisons": lambda: main_tables.comparison_table(conditions, metrics, **compared),
        "ablation": lambda: variant_tables.ablation_table(conditions, metrics),
        "sensitivity": lambda: variant_tables.sensitivity_table(conditions, metrics),
        "ranks": lambda: side_tables.ranks_table(conditions, metrics, **only),
        "noise": lambda: side_tables.noise_table(conditions, metrics),
        "datasets": lambda: side_tables.datasets_table(conditions),
        "beside-paper": lambda: paper_tables.beside_paper_table(conditions, as_paper),
    }
    return tables[name]()


def _draw_results(
    name: str,
    conditions: Conditions,
    metric: str,
    baseline: str,
    optimizer: list[str] | None,
    dataset: str | None,
    backbone: str | None,
) -> Any:
    if name == "gain":
        return figures.gain_figure(conditions, metric, baseline=baseline, optimizers=optimizer)
    if name == "ranks":
        return figures.rank_figure(mean_ranks(conditions, metric, optimizer))
    selected = {
        key: condition
        for key, condition in conditions.items()
        if dataset in (None, key[0]) and backbone in (None, key[1])
    }
    if not selected:
        available = ", ".join(dict.fromkeys(f"{d}/{b}" for d, b, _ in conditions))
        raise ConfigError(f"No result for {dataset or '*'}/{backbone or '*'}. Here: {available}.")
    if name == "sensitivity":
        curves = sensitivity_of(selected, metric)
        return curve_figures.sensitivity_figure(curves, metric_with_unit(metric))
    if name == "ablation":
        variant_tables.ablation_table(selected, [metric])  # refuses results without variants
        variants = optimizer or variant_tables.variants_of(selected)
        return figures.gain_figure(selected, metric, baseline="afor", optimizers=variants)
    if name == "noise":
        return noise_figure(selected, metric, baseline=baseline, optimizers=optimizer)
    first_dataset, first_backbone, _ = next(iter(selected))
    compared = (optimizer or ["afor"])[0]
    return figures.folds_figure(
        conditions, first_dataset, first_backbone, compared, metric, baseline=baseline
    )


def _draw_curves(
    name: str,
    paths: list[Path],
    study: list[str] | None,
    dataset: str | None,
    backbone: str | None,
    optimizer: list[str] | None,
) -> Any:
    if not paths:
        raise ConfigError(f"The figure {name!r} needs a store, or --data FILE.json; {DATA_FORMAT}.")
    records = [
        (run, record)
        for run, record in load_records(paths, study or ())
        if dataset in (None, run.dataset) and backbone in (None, run.backbone)
    ]
    if name == "convergence":
        return curve_figures.convergence_figure(loss_curves(records, optimizer))
    return curve_figures.forgetting_figure(*run_traces(records, (optimizer or ["afor"])[0]))


def _draw_file(name: str, data: Path) -> Any:
    content = read_json(data)
    try:
        if name == "convergence":
            return curve_figures.convergence_figure(content)
        if name == "sensitivity":
            return curve_figures.sensitivity_figure([Sensitivity(**row) for row in content])
        return curve_figures.forgetting_figure(
            content["runs"], content.get("train_loss"), content.get("title", "")
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{data} does not hold what the figure {name!r} needs ({error!r}); {DATA_FORMAT}."
        ) from error
