"""Render the report: all results of a store in one HTML file."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from afor import __version__
from afor.bench.common.errors import ConfigError
from afor.bench.data.catalog import NAMES, OWN, get_dataset
from afor.bench.report.explore import chart_data, json_for_script, libraries_script
from afor.bench.report.figures import curves as curve_figures
from afor.bench.report.figures import results as figures
from afor.bench.report.figures.noise import noise_figure
from afor.bench.report.svg import inline_svg
from afor.bench.report.tables.formats import Column, Table, printable, to_csv, to_latex
from afor.bench.report.tables.main import comparison_table, main_table
from afor.bench.report.tables.paper import beside_paper_table, same_method_table
from afor.bench.report.tables.side import datasets_table, noise_table, ranks_table
from afor.bench.report.tables.variants import ablation_table, sensitivity_table
from afor.bench.report.verdicts import answers
from afor.bench.stats.comparisons import BASELINE, blocks_of, main_optimizers, mean_ranks
from afor.bench.stats.curves import Records, loss_curves, run_traces
from afor.bench.stats.groups import Condition, Conditions, block_of
from afor.bench.stats.labels import (
    PAPER_METRICS,
    better_sign,
    block_label,
    dataset_label,
    metric_label,
    metric_text,
    optimizer_label,
    signed,
)
from afor.bench.stats.sensitivity import sensitivity_of
from afor.bench.store.files import is_store, load_records, load_studies, results_csv
from afor.bench.store.results import RunResult
from afor.bench.study.schema import parse_study

MAX_NETWORKS = 4  # training curves are drawn for at most so many


@dataclass(frozen=True)
class Section:
    """A section that an analysis contributes: a figure, findings and a table."""

    name: str  # anchor on the page
    title: str
    figure: Any  # of Matplotlib
    caption: str
    findings: Sequence[str]
    table: Table


@dataclass(frozen=True)
class ReportInput:
    """The input of a report besides the conditions.

    Attributes:
        results: The finished runs.
        sources: Names of the stores.
        records: Histories and traces, where a store has them.
        studies: The TOML of each study by its name.
        sections: Further sections, such as those of analyses.

    Example:
        >>> ReportInput(results=[], sources=["results/demo.db"]).sections
        ()
    """

    results: Sequence[RunResult]
    sources: Sequence[str]
    records: Records = ()
    studies: Mapping[str, str] | None = None
    sections: Sequence[Section] = ()


def report_input(
    results: Sequence[RunResult],
    paths: Sequence[Path],
    studies: Sequence[str] = (),
    sections: Sequence[Section] = (),
) -> ReportInput:
    """Return the input of a report on results that were read from stores and files."""
    stores = [path for path in paths if is_store(path)]
    records, tomls = load_records(stores, studies), load_studies(stores, studies)
    return ReportInput(results, [path.name for path in paths], records, tomls, sections)


def render_report(
    conditions: Conditions,
    given: ReportInput,
    *,
    title: str = "Optimizers across subjects",
    baseline: str = BASELINE,
    metrics: Sequence[str] = PAPER_METRICS,
    static: bool = False,
) -> str:
    """Render results as one HTML page that needs no server and no network.

    Args:
        conditions: Groups of runs, from `collect_conditions`.
        given: The runs themselves and what else the page shows.
        title: Title of the page.
        baseline: The optimizer the others are compared with.
        metrics: Names of metrics; figures show the first.
        static: Leave out the scripts and with them the charts; the page is readable without them.

    Returns:
        The HTML text.

    Example:
        >>> from afor.bench.stats.groups import collect_conditions
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> results, expected = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"])
        >>> conditions = collect_conditions(results, expected)
        >>> page = render_report(conditions, ReportInput(results, sources=["simulated"]))
        >>> page.startswith("<!doctype html>")
        True
    """
    tables = _tables(conditions, metrics, baseline)
    anchors = {_link(c): f"condition-{i}" for i, c in enumerate(conditions.values()) if c.runs}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(printable=printable, sortvalue=_sort_value, groups=_groups)
    drawn = _figures(conditions, given, metrics[0], baseline)
    charts = {} if static else chart_data(conditions, given.records, metrics, baseline)
    scripts = [libraries_script(), *map(_template, ("report.js", "explore.js"))]
    scripts = [] if static else scripts
    context: dict[str, Any] = {
        **tables,
        "title": title,
        "version": __version__,
        "runs": sum(condition.done for condition in conditions.values()),
        "n_conditions": len(conditions),
        "planned": sum(condition.expected for condition in conditions.values()),
        "missing": sum(max(c.expected - c.done, 0) for c in conditions.values()),
        "sources": given.sources,
        "answers": answers(conditions, metrics, baseline=baseline),
        "anchors": anchors,
        "downloads": {
            t.name: _downloads(t) for t in [*_flat(tables), *(s.table for s in given.sections)]
        },
        "figures": drawn,
        "folds": _fold_plots(conditions, metrics[0], baseline),
        "details": [_details(c, metrics, anchors[_link(c)]) for c in conditions.values() if c.runs],
        "studies": list((given.studies or {}).items()),
        "attributions": _attributions(conditions, given.studies or {}),
        "extra": [
            {**vars(s), "svg": Markup(inline_svg(s.figure, s.name, s.caption))}
            for s in given.sections
        ],
        "repeated": _tested_in_several_folds(given.results),
        "raw": _data_link("text/csv", results_csv(given.results)),
        "static": static,
        "css": Markup(_template("report.css")),
        "chart_data": Markup(json_for_script(charts)),
        "scripts": [Markup(script) for script in scripts],
        "script_sources": " ".join(_script_source(script) for script in scripts) or "'none'",
    }
    optional = {"noise": tables["noise"], "training": drawn["training"], "more": tables["more"]}
    sections = [item for item in _SECTIONS.items() if optional.get(item[0], True)]
    before = [name for name, _ in sections].index("ranks") + 1 + bool(drawn["training"])
    sections[before:before] = [(s.name, s.title) for s in given.sections]
    page = environment.from_string(_template("report.html"))
    return page.render(context, sections=sections)


_SECTIONS = {
    "results": "Results",
    "gains": "Gains",
    "noise": "Another seed",
    "folds": "Paired folds",
    "ranks": "Ranks",
    "training": "While training",
    "more": "Variants",
    "paper": "Beside the paper",
    "protocol": "Protocol and data",
    "all": "Folds and draws",
}


def _tables(conditions: Conditions, metrics: Sequence[str], baseline: str) -> dict[str, Any]:
    def if_possible(build: Callable[..., Table]) -> Table | None:
        try:
            return build(conditions, metrics)
        except ConfigError:  # the store has no such runs
            return None

    more = [if_possible(ablation_table), if_possible(sensitivity_table)]
    return {
        "main": main_table(conditions, metrics, baseline=baseline),
        "comparisons": comparison_table(conditions, metrics, baseline=baseline),
        "ranks": ranks_table(conditions, metrics),
        "noise": if_possible(noise_table),
        "beside": if_possible(beside_paper_table),
        "twice": same_method_table(),
        "data": datasets_table(conditions),
        "more": [table for table in more if table is not None],
    }


def _flat(tables: Mapping[str, Any]) -> list[Table]:
    single = [table for table in tables.values() if isinstance(table, Table)]
    return single + list(tables["more"])


def _figures(
    conditions: Conditions, given: ReportInput, metric: str, baseline: str
) -> dict[str, list[dict[str, Any]]]:
    """Draw the figures of each section; one with a chart shows on paper and without scripts."""
    drawings: dict[str, list[dict[str, Any]]] = {"gains": [], "training": [], "more": []}

    def add(
        section: str, name: str, caption: str, draw: Callable[[], Any], *, chart: bool = False
    ) -> None:
        with suppress(ConfigError):  # the results do not hold what the figure shows
            svg = Markup(inline_svg(draw(), name, caption))
            drawings[section].append({"svg": svg, "caption": caption, "chart": chart})

    gain = partial(figures.gain_figure, conditions, metric, baseline=baseline)
    add("gains", "gain", "Gain over the baseline per data set.", gain, chart=True)
    caption = "Mean ranks; a bar joins what no critical difference separates."
    add("gains", "ranks", caption, lambda: figures.rank_figure(mean_ranks(conditions, metric)))
    main = main_optimizers(conditions)
    networks = dict.fromkeys((run.dataset, run.backbone) for run, _ in given.records)
    for number, network in enumerate(list(networks)[:MAX_NETWORKS]):
        records = [r for r in given.records if (r[0].dataset, r[0].backbone) == network]
        convergence = partial(curve_figures.convergence_figure, loss_curves(records, main))
        caption = "Training loss: mean over runs, the middle half as a band."
        add("training", f"loss{number}", caption, convergence, chart=True)
        caption = "What AFOR's controller did, by layer group."
        add("training", f"beta{number}", caption, partial(_forgetting, records))
    caption = "Folds of one method under two seeds, and of the others under the same seeds."
    noise = partial(noise_figure, conditions, metric, baseline=baseline)
    add("gains", "noise", caption, noise)
    caption = "One setting of AFOR at a time."
    add("more", "sensitivity", caption, lambda: _sensitivity(conditions, metric))
    return drawings


def _forgetting(records: Records) -> Any:
    return curve_figures.forgetting_figure(*run_traces(records))


def _sensitivity(conditions: Conditions, metric: str) -> Any:
    return curve_figures.sensitivity_figure(sensitivity_of(conditions, metric))


def _fold_plots(conditions: Conditions, metric: str, baseline: str) -> list[dict[str, Any]]:
    """Draw the paired folds of AFOR, or else of the best optimizer, for each block."""
    plots: list[dict[str, Any]] = []
    for dataset, backbone in blocks_of(conditions):
        block = {c.optimizer: c for c in block_of(conditions, dataset, backbone) if c.has(metric)}
        rivals = [block[o] for o in main_optimizers(conditions) if o in block and o != baseline]
        if baseline not in block or not rivals:
            continue
        ours = (condition for condition in rivals if condition.optimizer == "afor")
        best = max(rivals, key=lambda c: better_sign(metric) * c.summary(metric)[0])
        condition = next(ours, best)
        rows = figures.paired_folds(condition, block[baseline], metric)
        if not rows:
            continue
        name, base_name = optimizer_label(condition.optimizer), optimizer_label(baseline)
        title = f"{block_label(dataset, backbone)}: {name} and {base_name}"
        figure = figures.folds_figure(
            conditions, dataset, backbone, condition.optimizer, metric, baseline=baseline
        )
        tips = [_fold_tip(row, name, base_name) for row in rows]
        svg = Markup(inline_svg(figure, f"folds{len(plots)}", title, tips))
        plots.append({"title": title, "svg": svg})
    return plots


def _fold_tip(row: figures.PairedFold, name: str, baseline: str) -> str:
    subjects = ", ".join(printable(subject) for subject in row.subjects)
    return (
        f"{subjects} (fold {row.fold}): {printable(name)} {row.ours:.2f}, {printable(baseline)} "
        f"{row.theirs:.2f}, gain {signed(row.gain)}"
    )


def _details(condition: Condition, metrics: Sequence[str], anchor: str) -> dict[str, Any]:
    shown = [metric for metric in metrics if condition.has(metric)]
    by_metric = {metric: condition.fold_values(metric) for metric in shown}
    rows = []
    for fold in sorted({fold for fold, _ in condition.runs}):
        runs = [run for (f, _), run in sorted(condition.runs.items()) if f == fold]
        rows.append(
            {
                "fold": fold,
                "subjects": ", ".join(runs[0].test_subjects),
                "numbers": [metric_text(m, by_metric[m][fold]) for m in shown],
                "draws": ", ".join(
                    metric_text(m, run.metrics[m]) for m in shown[:1] for run in runs
                ),
            }
        )
    runs_text = f"{condition.done}/{condition.expected} runs"
    if shown:
        mean, sd, n = condition.summary(shown[0])
        summary = f"{metric_text(shown[0], mean, sd)}, {n} folds, {runs_text}"
    else:
        summary = f"no value of {', '.join(map(metric_label, metrics))}, {runs_text}"
    return {
        "id": anchor,
        "title": f"{block_label(condition.dataset, condition.backbone)}, "
        f"{optimizer_label(condition.optimizer)}",
        "summary": summary,
        "metrics": [metric_label(metric) for metric in shown],
        "rows": rows,
    }


def _attributions(conditions: Conditions, studies: Mapping[str, str]) -> list[str]:
    """Return the licence and the citation of each public data set of the catalog."""
    uses: dict[str, str] = {}
    for toml in studies.values():
        try:
            uses |= {entry.name: entry.use for entry in parse_study(toml).datasets}
        except ConfigError:  # a study of another version
            continue
    datasets = dict.fromkeys(uses.get(dataset, dataset) for dataset, _, _ in conditions)
    public = [name for name in datasets if name in NAMES and name not in ("synthetic", *OWN)]
    infos = [get_dataset(name).info for name in public]
    return [f"Data: {i.title}. Licence: {i.licence}. Cite: {i.citation}." for i in infos]


def _tested_in_several_folds(results: Sequence[RunResult]) -> list[str]:
    """Return the test subjects of more than one fold, with their folds."""
    folds: dict[tuple[str, str], set[int]] = {}
    for run in results:
        for subject in run.test_subjects:
            folds.setdefault((run.dataset, subject), set()).add(run.fold)
    return [
        f"{subject} of {dataset_label(dataset)} (folds {', '.join(map(str, sorted(numbers)))})"
        for (dataset, subject), numbers in folds.items()
        if len(numbers) > 1
    ]


def _downloads(table: Table) -> list[tuple[str, str]]:
    return [
        ("csv", _data_link("text/csv", to_csv(table))),
        ("tex", _data_link("application/x-tex", to_latex(table))),
    ]


def _data_link(media_type: str, text: str) -> str:
    return f"data:{media_type};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _link(condition: Condition) -> str:
    return f"{condition.dataset}/{condition.backbone}/{condition.optimizer}"


def _sort_value(text: str) -> str:
    """Return the first number of a table cell's text, for sorting."""
    number = re.match(r"[±+−-]?\d+(\.\d+)?(e-?\d+)?", text)
    return number[0].replace("−", "-").lstrip("±") if number else ""


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    return [(group, len(list(members))) for group, members in groupby(columns, lambda c: c.group)]


def _script_source(script: str) -> str:
    """Return the entry of the Content-Security-Policy that lets this script run, and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _template(name: str) -> str:
    return files("afor.bench.report").joinpath("templates", name).read_text("utf-8")
