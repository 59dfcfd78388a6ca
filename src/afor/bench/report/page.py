"""Render the report: all results of a store in one HTML file."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

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
from afor.bench.stats.groups import Condition, Conditions, mean_of_draws
from afor.bench.stats.labels import (
    PAPER_METRICS,
    backbone_label,
    better_sign,
    dataset_label,
    metric_label,
    metric_text,
    optimizer_label,
    signed,
)
from afor.bench.stats.sensitivity import sensitivity_of
from afor.bench.store.files import results_csv
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
    from jinja2 import Environment
    from markupsafe import Markup

    tables = _tables(conditions, metrics, baseline)
    anchors = {
        _link(condition): f"condition-{i}"
        for i, condition in enumerate(conditions.values())
        if condition.runs
    }
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(printable=printable, sortvalue=_sort_value, groups=_groups)
    drawn = _figures(conditions, given, metrics[0], baseline)
    charts = {} if static else chart_data(conditions, given.records, metrics, baseline)
    scripts = (
        [] if static else [libraries_script(), _template("report.js"), _template("explore.js")]
    )
    context: dict[str, Any] = {
        **tables,
        "title": title,
        "version": __version__,
        "runs": sum(condition.done for condition in conditions.values()),
        "n_conditions": len(conditions),
        "planned": sum(condition.expected for condition in conditions.values()),
        "missing": sum(
            max(condition.expected - condition.done, 0) for condition in conditions.values()
        ),
        "sources": given.sources,
        "answers": answers(conditions, metrics, baseline=baseline),
        "anchors": anchors,
        "downloads": {
            t.name: _downloads(t) for t in [*_flat(tables), *(s.table for s in given.sections)]
        },
        "figures": {
            section: [
                {"svg": Markup(figure.svg), "caption": figure.caption, "chart": figure.has_chart}
                for figure in pictures
            ]
            for section, pictures in drawn.items()
        },
        "folds": [
            {"title": name, "svg": Markup(svg)}
            for name, svg in _fold_plots(conditions, metrics[0], baseline)
        ],
        "details": [
            _details(condition, metrics, anchors[_link(condition)])
            for condition in conditions.values()
            if condition.runs
        ],
        "studies": list((given.studies or {}).items()),
        "attributions": _attributions(conditions, given.studies or {}),
        "extra": [
            {
                "name": section.name,
                "title": section.title,
                "svg": Markup(inline_svg(section.figure, section.name, section.caption)),
                "caption": section.caption,
                "findings": section.findings,
                "table": section.table,
            }
            for section in given.sections
        ],
        "disjoint": _tested_once(given.results),
        "raw": _data_link("text/csv", results_csv(given.results)),
        "static": static,
        "css": Markup(_template("report.css")),
        "chart_data": Markup(json_for_script(charts)),
        "scripts": [Markup(script) for script in scripts],
        "script_sources": " ".join(_script_source(script) for script in scripts) or "'none'",
    }
    context["sections"] = [
        (name, text)
        for name, text in _SECTIONS.items()
        if {"noise": tables["noise"], "training": drawn["training"], "more": tables["more"]}.get(
            name, True
        )
    ]
    before = [name for name, _ in context["sections"]].index("ranks") + 1 + bool(drawn["training"])
    context["sections"][before:before] = [(s.name, s.title) for s in given.sections]
    return environment.from_string(_template("report.html")).render(context)


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
    def if_possible(build: Any, *arguments: Any) -> Table | None:
        try:
            table: Table = build(conditions, *arguments)
        except ConfigError:  # the store has no such runs
            return None
        return table

    more = [if_possible(ablation_table, metrics), if_possible(sensitivity_table, metrics)]
    return {
        "main": main_table(conditions, metrics, baseline=baseline),
        "comparisons": comparison_table(conditions, metrics, baseline=baseline),
        "ranks": ranks_table(conditions, metrics),
        "noise": if_possible(noise_table, metrics),
        "beside": if_possible(beside_paper_table, metrics),
        "twice": same_method_table(),
        "data": datasets_table(conditions),
        "more": [table for table in more if table is not None],
    }


def _flat(tables: Mapping[str, Any]) -> list[Table]:
    single = [table for table in tables.values() if isinstance(table, Table)]
    return single + list(tables["more"])


@dataclass(frozen=True)
class _Drawing:
    """A static figure; one that has a chart is shown on paper and without scripts only."""

    svg: str
    caption: str
    has_chart: bool = False


def _drawing(figure: Any, name: str, caption: str, *, has_chart: bool = False) -> _Drawing:
    return _Drawing(inline_svg(figure, name, caption), caption, has_chart)


def _figures(
    conditions: Conditions, given: ReportInput, metric: str, baseline: str
) -> dict[str, list[_Drawing]]:
    drawings: dict[str, list[_Drawing]] = {"gains": [], "training": [], "more": []}
    gain = figures.gain_figure(conditions, metric, baseline=baseline)
    caption = "Gain over the baseline per data set."
    drawings["gains"].append(_drawing(gain, "gain", caption, has_chart=True))
    try:
        ranked = figures.rank_figure(mean_ranks(conditions, metric))
        caption = "Mean ranks; a bar joins what no critical difference separates."
        drawings["gains"].append(_drawing(ranked, "ranks", caption))
    except ConfigError:  # no block is complete
        pass
    main = main_optimizers(conditions)
    networks = dict.fromkeys((run.dataset, run.backbone) for run, _ in given.records)
    for number, (dataset, backbone) in enumerate(list(networks)[:MAX_NETWORKS]):
        of_network = [
            r for r in given.records if (r[0].dataset, r[0].backbone) == (dataset, backbone)
        ]
        curves = loss_curves(of_network, main)
        if curves:
            drawn = curve_figures.convergence_figure(curves)
            caption = "Training loss: mean over runs, the middle half as a band."
            drawings["training"].append(_drawing(drawn, f"loss{number}", caption, has_chart=True))
        try:
            traces, losses, title = run_traces(of_network)
        except ConfigError:  # no AFOR here
            continue
        drawn = curve_figures.forgetting_figure(traces, losses, title)
        caption = "What AFOR's controller did, by layer group."
        drawings["training"].append(_drawing(drawn, f"beta{number}", caption))
    try:
        drawn = noise_figure(conditions, metric, baseline=baseline)
        caption = "Folds of one method under two seeds, and of the others under the same seeds."
        drawings["gains"].append(_drawing(drawn, "noise", caption))
    except ConfigError:  # no copies
        pass
    try:
        drawn = curve_figures.sensitivity_figure(sensitivity_of(conditions, metric))
        caption = "One setting of AFOR at a time."
        drawings["more"].append(_drawing(drawn, "sensitivity", caption))
    except ConfigError:  # no varied settings, or several backbones
        pass
    return drawings


def _fold_plots(conditions: Conditions, metric: str, baseline: str) -> list[tuple[str, str]]:
    """Draw the paired folds of AFOR, or else of the best optimizer, for each block."""
    plots: list[tuple[str, str]] = []
    for dataset, backbone in blocks_of(conditions):
        base = conditions.get((dataset, backbone, baseline))
        rivals = [
            conditions.get((dataset, backbone, o))
            for o in main_optimizers(conditions)
            if o != baseline
        ]
        finished = [
            condition for condition in rivals if condition is not None and condition.has(metric)
        ]
        if base is None or not base.has(metric) or not finished:
            continue
        preferred = [condition for condition in finished if condition.optimizer == "afor"]
        condition = (
            preferred[0]
            if preferred
            else max(finished, key=lambda c: better_sign(metric) * c.summary(metric)[0])
        )
        name, base_name = optimizer_label(condition.optimizer), optimizer_label(baseline)
        title = f"{dataset_label(dataset)}, {backbone_label(backbone)}: {name} and {base_name}"
        try:
            figure = figures.folds_figure(
                conditions, dataset, backbone, condition.optimizer, metric, baseline=baseline
            )
        except ConfigError:  # no fold in common
            continue
        tips = [
            _fold_tip(row, name, base_name) for row in figures.paired_folds(condition, base, metric)
        ]
        plots.append((title, inline_svg(figure, f"folds{len(plots)}", title, tips)))
    return plots


def _fold_tip(row: figures.PairedFold, name: str, baseline: str) -> str:
    subjects = ", ".join(printable(subject) for subject in row.subjects)
    return (
        f"{subjects} (fold {row.fold}): {printable(name)} {row.ours:.2f}, {printable(baseline)} "
        f"{row.theirs:.2f}, difference {signed(row.ours - row.theirs)}"
    )


def _details(condition: Condition, metrics: Sequence[str], anchor: str) -> dict[str, Any]:
    shown = [metric for metric in metrics if condition.has(metric)] or list(metrics)[:1]
    by_metric = {
        metric: mean_of_draws(
            {key: run.metrics.get(metric, 0.0) for key, run in condition.runs.items()}
        )
        for metric in shown
    }
    rows = []
    for fold in sorted({fold for fold, _ in condition.runs}):
        runs = [run for (f, _), run in sorted(condition.runs.items()) if f == fold]
        draws = [
            metric_text(shown[0], run.metrics[shown[0]]) for run in runs if shown[0] in run.metrics
        ]
        rows.append(
            {
                "fold": fold,
                "subjects": ", ".join(runs[0].test_subjects),
                "numbers": [metric_text(m, by_metric[m][fold]) for m in shown],
                "draws": ", ".join(draws),
            }
        )
    mean, sd, n = condition.summary(shown[0]) if condition.has(shown[0]) else (0.0, 0.0, 0)
    return {
        "id": anchor,
        "title": f"{dataset_label(condition.dataset)}, {backbone_label(condition.backbone)}, "
        f"{optimizer_label(condition.optimizer)}",
        "summary": f"{metric_text(shown[0], mean, sd)}, {n} folds, "
        f"{condition.done}/{condition.expected} runs",
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


def _tested_once(results: Sequence[RunResult]) -> bool:
    folds: dict[tuple[str, str], set[int]] = {}
    for run in results:
        for subject in run.test_subjects:
            folds.setdefault((run.dataset, subject), set()).add(run.fold)
    return all(len(numbers) == 1 for numbers in folds.values())


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
