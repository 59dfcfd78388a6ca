"""Render the report: all results of a store in one HTML file."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from afor import __version__
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_output
from afor.bench.data.catalog import NAMES, OWN, get_dataset
from afor.bench.report.explore import chart_data, json_for_script, libraries_script
from afor.bench.report.registry import FROM_RESULTS, draw_figure
from afor.bench.report.svg import inline_svg
from afor.bench.report.tables.formats import Table, printable, to_csv, to_html, to_latex
from afor.bench.report.verdicts import answers
from afor.bench.stats.diagnosis import diagnose
from afor.bench.stats.groups import Condition
from afor.bench.stats.labels import (
    dataset_label,
    method_label,
    metric_style,
    metric_words,
    task_label,
)
from afor.bench.stats.results import Results
from afor.bench.store.files import results_csv
from afor.bench.store.results import RunResult
from afor.bench.study.protocol import redundant_notes
from afor.bench.study.schema import Study, parse_study

MAX_NETWORKS = 4  # what the controller did is drawn for at most so many
MAX_EMBEDDED = 2000  # with more runs the page links to a file of them beside it


@dataclass(frozen=True)
class Section:
    """A section that an analysis contributes: a figure, findings and a table."""

    name: str  # anchor on the page
    title: str
    figure: Any  # of Matplotlib
    caption: str
    findings: Sequence[str]
    table: Table


# The sections in their order, each with its title, its tables and its figures with captions.
_SECTIONS: Mapping[str, tuple[str, Sequence[str], Mapping[str, str]]] = {
    "results": ("Results", ("main",), {}),
    "gains": ("Gains", ("comparisons", "pooled"), {"gain": "Gain over the baseline per data set."}),
    "noise": (
        "Another seed",
        ("noise",),
        {"noise": "Folds of one method under two seeds, and of the others under the same seeds."},
    ),
    "folds": ("Paired folds", (), {}),
    "ranks": (
        "Ranks",
        ("ranks",),
        {"ranks": "Mean ranks; a bar joins what no critical difference separates."},
    ),
    "training": (
        "While training",
        (),
        {"learning": "Training loss (band: the middle half of the runs) and validation loss."},
    ),
    "more": (
        "Variants and settings",
        ("ablation", "sensitivity"),
        {"sensitivity": "One setting of AFOR at a time."},
    ),
    "paper": ("Beside the paper", ("beside-paper",), {}),
    "protocol": ("Protocol and data", ("datasets",), {}),
    "all": ("Folds and repetitions", (), {}),
}
_CHARTS = {"gains": ("gains",), "folds": ("pairs", "runs"), "training": ("curves",)}
_ALWAYS = ("results", "gains", "folds", "protocol", "all")
# Drawn by a chart of the page; Matplotlib draws them for a static page alone.
_CHARTED = ("gain", "learning")


def render_report(
    results: Results,
    *,
    title: str = "",
    sections: Sequence[Section] = (),
    static: bool = False,
    runs_file: str = "",
) -> str:
    """Render results as one HTML page that needs no server and no network.

    Args:
        results: The results, and what is asked of them.
        title: Title of the page; empty takes the names of the studies.
        sections: Further sections, such as those of analyses.
        static: Draw figures in place of charts and leave out all scripts.
        runs_file: Name of a CSV file of all runs beside the page, to link to instead of embedding
            the runs.

    Returns:
        The HTML text.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> made = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"])
        >>> render_report(Results.of(*made)).startswith("<!doctype html>")
        True
    """
    conditions = results.conditions
    results.needed_comparisons()  # refuses results without any
    studies = _studies(results)
    anchors = {c.name: f"condition-{i}" for i, c in enumerate(conditions.values()) if c.runs}
    shown = [
        made for name in _SECTIONS if (made := _section(name, results, anchors, static)) is not None
    ]
    extra = [
        {
            "name": s.name,
            "title": s.title,
            "figures": [_figure(s.figure, s.name, s.caption)],
            "findings": s.findings,
            "tables": [_table(s.table, anchors)],
        }
        for s in sections
    ]
    position = next(i for i, s in enumerate(shown) if s["name"] in ("more", "paper", "protocol"))
    shown[position:position] = extra
    scripts = [] if static else [libraries_script(), *map(_template, ("report.js", "explore.js"))]
    charts = {} if static else chart_data(results)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(printable=printable)
    page = environment.from_string(_template("report.html"))
    return page.render(
        title=title or ", ".join(studies) or "Methods across subjects",
        descriptions=[s.description for s in studies.values() if s is not None and s.description],
        version=__version__,
        runs=sum(condition.done for condition in conditions.values()),
        n_conditions=len(conditions),
        planned=sum(condition.expected for condition in conditions.values()),
        missing=sum(max(c.expected - c.done, 0) for c in conditions.values()),
        sources=[path.name for path in results.paths],
        notes=results.notes,
        diagnosis=diagnose(results),
        metrics="; ".join(map(metric_words, results.metrics)),
        answers=answers(results),
        sections=shown,
        details=[_details(c, results.metrics, anchors[c.name]) for c in conditions.values()
                 if c.runs],
        studies=list(results.study_texts.items()),
        attributions=_attributions(results, studies),
        repeated=_tested_in_several_folds(results.runs),
        raw=runs_file or _data_link("text/csv", results_csv(results.runs)),
        static=static,
        trained_here=not results.remarks,
        css=Markup(_template("report.css")),
        chart_data=Markup(json_for_script(charts)),
        scripts=[Markup(script) for script in scripts],
        script_sources=" ".join(_script_source(script) for script in scripts) or "'none'",
    )  # fmt: skip


def write_report(
    results: Results,
    output: Path,
    *,
    title: str = "",
    sections: Sequence[Section] = (),
    static: bool = False,
) -> dict[str, Any]:
    """Write the report; return the file, its size and a verdict per data set and backbone.

    The runs of a large study are written as a CSV file beside the page, which links to it.
    """
    runs_file = ""
    if len(results.runs) > MAX_EMBEDDED:
        beside = output.with_name(f"{output.stem}-runs.csv")
        write_output(beside, results_csv(results.runs))
        runs_file = beside.name
    page = render_report(
        results, title=title, sections=sections, static=static, runs_file=runs_file
    )
    write_output(output, page)
    verdicts = [answer.text for answer in answers(results)]
    return {"file": str(output), "bytes": len(page.encode()), "verdicts": verdicts}


def _section(
    name: str, results: Results, anchors: Mapping[str, str], static: bool
) -> dict[str, Any] | None:
    """Return what one section shows; None if the results hold nothing of it."""
    title, table_names, captions = _SECTIONS[name]
    tables = []
    for table_name in table_names:
        with suppress(ConfigError):  # the results do not hold what it shows
            tables.append(_table(FROM_RESULTS[table_name](results), anchors))
    figures = []

    def draw(label: str, caption: str, make: Callable[[], Any]) -> None:
        with suppress(ConfigError):
            figures.append(_figure(make(), label, caption))

    for label, caption in captions.items():
        if static or label not in _CHARTED:
            draw(label, caption, partial(draw_figure, label, results))
    if name == "training":
        caption = "What AFOR's controller did, by layer group."
        for number, task in enumerate(results.tasks[:MAX_NETWORKS]):
            part = results.only(*task)
            draw(f"beta{number}", caption, partial(draw_figure, "forgetting", part))
    if name == "folds" and static:
        for number, task in enumerate(results.tasks):
            part = results.only(*task)
            caption = f"{task_label(*task)}: each row is one fold, the largest gain first."
            draw(f"folds{number}", caption, partial(draw_figure, "folds", part))
    charts = () if static else _CHARTS.get(name, ())
    if name == "training" and not results.training.curves:
        charts = ()
    if not (tables or figures or charts or name in _ALWAYS):
        return None
    findings = []
    if name == "protocol":
        studies = [study for study in _studies(results).values() if study is not None]
        findings = list(dict.fromkeys(note for s in studies for note in redundant_notes(s)))
    return {
        "name": name,
        "title": title,
        "tables": tables,
        "figures": figures,
        "charts": charts,
        "findings": findings,
    }


def _table(table: Table, anchors: Mapping[str, str]) -> dict[str, Any]:
    downloads = {
        "csv": _data_link("text/csv", to_csv(table)),
        "tex": _data_link("application/x-tex", to_latex(table)),
    }
    html = Markup(to_html(table, anchors=anchors, sortable=True))
    return {"table": table, "html": html, "downloads": downloads}


def _figure(figure: Any, name: str, caption: str) -> dict[str, Any]:
    return {"svg": Markup(inline_svg(figure, name, caption)), "caption": caption}


def _details(condition: Condition, metrics: Sequence[str], anchor: str) -> dict[str, Any]:
    shown = [metric for metric in metrics if condition.has(metric)]
    by_metric = {metric: condition.fold_values(metric) for metric in shown}
    by_fold: dict[int, list[RunResult]] = {}
    for (fold, _), run in sorted(condition.runs.items()):
        by_fold.setdefault(fold, []).append(run)
    rows = [
        {
            "fold": fold,
            "subjects": ", ".join(runs[0].test_subjects),
            "numbers": [metric_style(m).text(by_metric[m][fold]) for m in shown],
            "repetitions": ", ".join(
                metric_style(m).text(run.metrics[m]) for m in shown[:1] for run in runs
            ),
        }
        for fold, runs in by_fold.items()
    ]
    done = f"{condition.done}/{condition.expected} runs"
    if shown:
        mean, sd, n = condition.summary(shown[0])
        summary = f"{metric_style(shown[0]).text(mean, sd)}, {n} folds, {done}"
    else:
        summary = f"no value of {', '.join(metric_style(m).label for m in metrics)}, {done}"
    return {
        "id": anchor,
        "title": f"{task_label(condition.dataset, condition.backbone)}, "
        f"{method_label(condition.method)}",
        "summary": summary,
        "metrics": [metric_style(metric).label for metric in shown],
        "rows": rows,
    }


def _studies(results: Results) -> dict[str, Study | None]:
    """Return the studies with results by name; None for one that another version wrote."""
    studies: dict[str, Study | None] = {}
    for name, toml in results.study_texts.items():
        try:
            studies[name] = parse_study(toml)
        except ConfigError:
            studies[name] = None
    # The search of a study's learning rates is a study of the same store without results.
    return {name: study for name, study in studies.items() if study is None or not study.search}


def _attributions(results: Results, studies: Mapping[str, Study | None]) -> list[str]:
    """Return the licence and the citation of each public data set of the catalog."""
    entries = [entry for study in studies.values() if study for entry in study.datasets]
    uses = {entry.name: entry.use for entry in entries}
    datasets = dict.fromkeys(uses.get(dataset, dataset) for dataset, _ in results.tasks)
    public = [name for name in datasets if name in NAMES and name not in ("synthetic", *OWN)]
    infos = [get_dataset(name).info for name in public]
    return [f"Data: {i.title}. Licence: {i.licence}. Cite: {i.citation}." for i in infos]


def _tested_in_several_folds(runs: Sequence[RunResult]) -> list[str]:
    """Return the test subjects of more than one fold, with their folds."""
    folds: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        for subject in run.test_subjects:
            folds.setdefault((run.dataset, subject), set()).add(run.fold)
    return [
        f"{subject} of {dataset_label(dataset)} (folds {', '.join(map(str, sorted(numbers)))})"
        for (dataset, subject), numbers in folds.items()
        if len(numbers) > 1
    ]


def _data_link(media_type: str, text: str) -> str:
    return f"data:{media_type};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _script_source(script: str) -> str:
    """Return the entry of the Content-Security-Policy that lets this script run, and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _template(name: str) -> str:
    return files("afor.bench.report").joinpath("templates", name).read_text("utf-8")
