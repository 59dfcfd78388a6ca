"""``afor stats | table | figure``: what the results say, to read, to print and to publish."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afor.bench.cli.printing import FORMATS, by_suffix, choose, render
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.report.tables.formats import Table
    from afor.bench.stats.groups import Conditions

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
FROM_STORES = ("convergence",)  # needs whole records: files of results hold no curves
FROM_PAPER = ("paper", "paper-ablation", "paper-datasets", "same-method")
MEASURED = ("learning-rates", "cost", "landscape")
TABLES = (*FROM_RESULTS, *FROM_STORES, *FROM_PAPER, *MEASURED)
RESULT_FIGURES = ("gain", "folds", "ranks", "ablation", "sensitivity", "noise")
CURVE_FIGURES = ("convergence", "forgetting")
FILE_FIGURES = ("landscape",)  # from --data alone
FIGURES = (*RESULT_FIGURES, *CURVE_FIGURES, *FILE_FIGURES)

Paths = Annotated[list[Path] | None, typer.Argument(help="Stores, or .csv/.json files of results.")]
Metric = Annotated[
    list[str] | None,
    typer.Option("--metric", "-m", help="accuracy, weighted_f1, macro_f1, ... [default: both]"),
]
Baseline = Annotated[str, typer.Option(help="The optimizer all others are compared with.")]
Optimizer = Annotated[
    list[str] | None,
    typer.Option("--optimizer", help="Only these; Holm corrects over them."),
]
Study = Annotated[list[str] | None, typer.Option(help="Only runs of these studies.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("stats")(stats)
    app.command("table")(table)
    app.command("figure")(figure)


def stats(
    paths: Paths = None,
    metric: Metric = None,
    baseline: Baseline = "adam",
    optimizer: Optimizer = None,
    study: Study = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare all optimizers with the baseline: gains, p-values, effect sizes, ranks, noise."""
    import json

    from afor.bench.report.tables.formats import to_json
    from afor.bench.report.tables.main import comparison_table
    from afor.bench.report.tables.side import noise_table, ranks_table

    conditions = _cells(paths, study)
    metrics = _metrics(metric)
    found = [
        comparison_table(conditions, metrics, baseline=baseline, optimizers=optimizer),
        ranks_table(conditions, metrics, optimizers=optimizer),
    ]
    if _has_controls(conditions, metrics):
        found.append(noise_table(conditions, metrics))
    if as_json:
        typer.echo(json.dumps([json.loads(to_json(t)) for t in found], indent=1))
        return
    for one in found:
        typer.echo(render(one, "terminal", standalone=False))
    _next(f"afor table main {_names(paths)}")


def table(
    name: Annotated[str, typer.Argument(help=", ".join(TABLES))],
    paths: Paths = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}. [default: by --output]"),
    ] = None,
    output: Output = None,
    metric: Metric = None,
    baseline: Baseline = "adam",
    optimizer: Optimizer = None,
    study: Study = None,
    ours: Annotated[
        Path | None, typer.Option(help="JSON of measured values, beside the paper's.")
    ] = None,
    standalone: Annotated[bool, typer.Option(help="LaTeX: a whole document.")] = False,
) -> None:
    """Print one table for reading (terminal), a README, a paper (LaTeX) or a program."""
    from afor.bench.common.output_files import check_output, write_output

    if output is not None:
        check_output(output)
    wanted = choose(form or by_suffix(output), FORMATS, "--format")
    built = _build(
        choose(name, TABLES, "the table"), paths, metric, baseline, optimizer, study, ours
    )
    text = render(built, wanted, standalone=standalone, to_file=output is not None)
    if output is None:
        typer.echo(text.rstrip("\n"))
    else:
        write_output(output, text)
        typer.echo(str(output))
    if name in (*FROM_RESULTS, *FROM_STORES):
        drawn = name if name in (*RESULT_FIGURES, *CURVE_FIGURES) else "gain"
        _next(f"afor figure {drawn} {_names(paths)} --output {drawn}.pdf")


def figure(
    name: Annotated[str, typer.Argument(help=", ".join(FIGURES))],
    paths: Paths = None,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help=".pdf, .svg or .png; repeatable.")
    ] = None,
    metric: Annotated[str, typer.Option("--metric", "-m", help="What is shown.")] = "accuracy",
    baseline: Baseline = "adam",
    optimizer: Optimizer = None,
    dataset: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Only this backbone.")] = None,
    study: Study = None,
    data: Annotated[
        Path | None,
        typer.Option(help="JSON of convergence, sensitivity, forgetting or landscape."),
    ] = None,
) -> None:
    """Draw one figure, one column (88 mm) wide, as PDF, SVG or PNG."""
    from afor.bench.common.output_files import check_output
    from afor.bench.report.figures.style import FORMATS as FIGURE_FORMATS
    from afor.bench.report.figures.style import save_figure

    name = choose(name, FIGURES, "the figure")
    targets = output or [Path(f"{name}.pdf")]
    for target in targets:  # before the work, not after it
        if target.suffix.lower() not in FIGURE_FORMATS:
            accepted = ", ".join(FIGURE_FORMATS)
            raise ConfigError(f"--output {target}: a figure is written as {accepted}.")
        check_output(target)
    if name in FILE_FIGURES:
        drawn = _draw_landscape(data)
    elif data is not None or name in CURVE_FIGURES:
        drawn = _draw_curves(name, data, paths, study, dataset, backbone, optimizer)
    else:
        conditions = _cells(paths, study)
        drawn = _draw_results(name, conditions, metric, baseline, optimizer, dataset, backbone)
    for target in targets:
        save_figure(drawn, target)
        typer.echo(str(target))
    _next(f"afor report {_names(paths)}")


def _build(
    name: str,
    paths: list[Path] | None,
    metric: list[str] | None,
    baseline: str,
    optimizer: list[str] | None,
    study: list[str] | None,
    ours: Path | None,
) -> "Table":
    from afor.bench.analyses.cost import table as cost_table
    from afor.bench.analyses.landscape.table import landscape_table
    from afor.bench.report.tables import (
        main as tables,
    )
    from afor.bench.report.tables import (
        paper as paper_tables,
    )
    from afor.bench.report.tables import (
        side as side_tables,
    )
    from afor.bench.report.tables import (
        variants as variant_tables,
    )

    measured = _read_json(ours) if ours else None
    needs_no_results: dict[str, Callable[[], Table]] = {
        "paper": lambda: paper_tables.published_table("results"),
        "paper-ablation": lambda: paper_tables.published_table("ablation"),
        "paper-datasets": paper_tables.paper_datasets_table,
        "same-method": paper_tables.same_method_table,
        "learning-rates": lambda: paper_tables.learning_rates_table(measured),
        "cost": lambda: (
            cost_table.cost_table(measured) if measured else paper_tables.paper_cost_table()
        ),
        "landscape": lambda: landscape_table(measured),
    }
    if name in needs_no_results:
        return needs_no_results[name]()
    if name in FROM_STORES:
        from afor.bench.report.tables.convergence import convergence_table
        from afor.bench.stats.curves import loss_curves
        from afor.bench.store.files import load_records

        if not paths:
            raise ConfigError(f"The table {name!r} needs a store: name one, or several.")
        return convergence_table(loss_curves(load_records(paths, study or ()), optimizer))
    conditions, metrics = _cells(paths, study), _metrics(metric)
    chosen: dict[str, Any] = {"optimizers": optimizer}
    from_results: dict[str, Callable[[], Table]] = {
        "main": lambda: tables.main_table(conditions, metrics, baseline=baseline, **chosen),
        "comparisons": lambda: tables.comparison_table(
            conditions, metrics, baseline=baseline, **chosen
        ),
        "ablation": lambda: variant_tables.ablation_table(conditions, metrics),
        "sensitivity": lambda: variant_tables.sensitivity_table(conditions, metrics),
        "ranks": lambda: side_tables.ranks_table(conditions, metrics, **chosen),
        "noise": lambda: side_tables.noise_table(conditions, metrics),
        "datasets": lambda: side_tables.datasets_table(conditions),
        "beside-paper": lambda: paper_tables.beside_paper_table(conditions, metrics),
    }
    return from_results[name]()


def _draw_results(
    name: str,
    conditions: "Conditions",
    metric: str,
    baseline: str,
    optimizer: list[str] | None,
    dataset: str | None,
    backbone: str | None,
) -> Any:
    from afor.bench.report.figures import results as figures
    from afor.bench.stats.comparisons import mean_ranks

    if name == "gain":
        return figures.gain_figure(conditions, metric, baseline=baseline, optimizers=optimizer)
    if name == "ranks":
        return figures.rank_figure(mean_ranks(conditions, [metric], optimizer))
    chosen = {
        key: condition
        for key, condition in conditions.items()
        if dataset in (None, key[0]) and backbone in (None, key[1])
    }
    if not chosen:
        there = ", ".join(dict.fromkeys(f"{d}/{b}" for d, b, _ in conditions))
        raise ConfigError(f"No result for {dataset or '*'}/{backbone or '*'}. Here: {there}.")
    if name == "sensitivity":
        from afor.bench.report.figures.curves import sensitivity_figure
        from afor.bench.stats.labels import metric_label, metric_scale
        from afor.bench.stats.sensitivity import sensitivity_of

        unit = " (%)" if metric_scale(metric) != 1 else ""
        return sensitivity_figure(sensitivity_of(chosen, metric), metric_label(metric) + unit)
    if name == "ablation":
        from afor.bench.report.tables.variants import ablation_table, variants_of

        ablation_table(chosen, [metric])  # says what is missing where there are no variants
        return figures.gain_figure(
            chosen, metric, baseline="afor", optimizers=optimizer or variants_of(chosen)
        )
    if name == "noise":
        from afor.bench.report.figures.noise import noise_figure

        return noise_figure(chosen, metric, baseline=baseline, optimizers=optimizer)
    place = next(
        ((d, b) for d, b, _ in conditions if dataset in (None, d) and backbone in (None, b)),
        (dataset or "", backbone or ""),
    )
    one = (optimizer or ["afor"])[0]
    return figures.folds_figure(conditions, *place, one, metric, baseline=baseline)


def _draw_curves(
    name: str,
    data: Path | None,
    paths: list[Path] | None,
    study: list[str] | None,
    dataset: str | None,
    backbone: str | None,
    optimizer: list[str] | None,
) -> Any:
    from afor.bench.report.figures import curves as curve_figures

    if data is not None:
        return _draw_file(name, data)
    if not paths:
        raise ConfigError(
            f"The figure {name!r} needs a store, or --data FILE.json in the form that is "
            "described in docs/howto/tables-and-figures.md."
        )
    from afor.bench.stats.curves import loss_curves, run_traces
    from afor.bench.store.files import load_records

    records = [
        (run, record)
        for run, record in load_records(paths, study or ())
        if dataset in (None, run.dataset) and backbone in (None, run.backbone)
    ]
    if name == "convergence":
        return curve_figures.convergence_figure(loss_curves(records, optimizer))
    return curve_figures.forgetting_figure(*run_traces(records, (optimizer or ["afor"])[0]))


def _draw_landscape(data: Path | None) -> Any:
    from afor.bench.analyses.landscape.compute import read_landscape
    from afor.bench.analyses.landscape.figure import landscape_figure

    if data is None:
        raise ConfigError(
            "The figure 'landscape' needs --data FILE.json; `afor landscape STUDY` writes one."
        )
    return landscape_figure(read_landscape(_read_json(data), str(data)))


def _draw_file(name: str, data: Path) -> Any:
    from afor.bench.report.figures import curves as curve_figures
    from afor.bench.stats.sensitivity import Sensitivity

    content = _read_json(data)
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
            f"{data} does not hold what the figure {name!r} needs ({error!r}); the form is "
            "described in docs/howto/tables-and-figures.md."
        ) from error


def _cells(paths: list[Path] | None, study: list[str] | None) -> "Conditions":
    from afor.bench.report.tables.parts import incomplete_sentence
    from afor.bench.stats.groups import collect_conditions
    from afor.bench.store.files import load_results

    if not paths:
        raise ConfigError("Name at least one store, or a .csv or .json file of results.")
    results, expected = load_results(paths, study or ())
    conditions = collect_conditions(results, expected)
    if sentence := incomplete_sentence(conditions):
        typer.echo(f"{sentence} `afor run` goes on.", err=True)
    return conditions


def _metrics(metric: list[str] | None) -> list[str]:
    from afor.bench.stats.labels import PAPER_METRICS

    return metric or list(PAPER_METRICS)


def _has_controls(conditions: "Conditions", metrics: list[str]) -> bool:
    from afor.bench.stats.comparisons import blocks_of
    from afor.bench.stats.noise_floor import noise_floor

    return any(
        noise_floor(conditions, *block, m) for block in blocks_of(conditions) for m in metrics
    )


def _read_json(path: Path) -> Any:
    import json

    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.") from None


def _names(paths: list[Path] | None) -> str:
    return " ".join(str(path) for path in paths or [Path("STORE")])


def _next(command: str) -> None:
    typer.echo(f"\nNext: {command}", err=True)
