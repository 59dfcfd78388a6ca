import base64
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from afor.bench.report.figures.style import house_style, new_figure
from afor.bench.report.page import Section, render_report
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.side import ranks_caption
from afor.bench.report.verdicts import answers
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

NASTY = "<script>alert(1)</script>"
GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "mars": 0.01, "afor": 0.05, NASTY: 0.0}


class Page(HTMLParser):
    """Collect tags, the text outside script and style, and check that tags close."""

    VOID = ("meta", "input", "br", "link", "img")
    SHAPES = ("circle", "line", "rect", "path", "use", "stop")

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.open, self.ids = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


@pytest.fixture(scope="module")
def simulated():
    results, expected = simulate_results(GAINS, datasets=["bci2a", "isruc"], repetitions=2)
    named = [replace(r, test_subjects=(f"{NASTY}{r.fold}",)) for r in results]
    return named, expected


@pytest.fixture(scope="module")
def results(simulated):
    made = Results.of(*simulated)
    return replace(made, paths=(Path(f"{NASTY}.db.csv"),), study_texts={NASTY: "no study"})


@pytest.fixture(scope="module")
def html(results):
    return render_report(results, title=NASTY)


def text_of(runs, expected=(), **options):
    return "".join(Page(render_report(Results.of(runs, expected), **options)).text)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_names_come_out_as_text_everywhere(html, page):
    assert "<script>alert" not in html
    assert page.tags.count("script") == 4  # data of the charts, libraries, tables, charts
    assert NASTY in "".join(page.text)


def test_the_page_asks_the_network_for_nothing(html, page):
    for tag, name, value in page.attributes:
        if name in ("src", "srcset", "action", "poster") or (name == "href" and tag != "a"):
            assert value.startswith("#"), (tag, name, value)
        if (tag, name) == ("a", "href"):
            assert value.startswith(("#", "data:")), value
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert "default-src 'none'" in html


def test_ids_are_unique_and_every_link_leads_somewhere(page):
    assert len(page.ids) == len(set(page.ids))
    for tag, name, value in page.attributes:
        if tag == "a" and name == "href" and value.startswith("#"):
            assert value[1:] in page.ids


def test_the_answer_comes_first(page, results):
    text, end = "".join(page.text), 0
    for answer in answers(results):
        assert answer.others
        for line in (*answer.verdict.lines, answer.others):
            end = text.index(line, end) + len(line)  # each below the one before
        assert end < text.index("Results")


def test_every_number_of_the_results_is_in_the_page(page, results):
    text = "".join(page.text)
    for condition in results.conditions.values():
        for metric in ("accuracy", "weighted_f1"):
            mean, sd, _ = condition.summary(metric)
            assert f"{100 * mean:.2f}±{100 * sd:.2f}" in text
        for run in condition.runs.values():
            assert f"{100 * run.metrics['accuracy']:.2f}" in text


def test_the_embedded_download_holds_all_runs(page, simulated):
    link = next(v for _, name, v in page.attributes if name == "href" and len(v) > 20_000)
    rows = list(
        csv.DictReader(io.StringIO(base64.b64decode(link.partition("base64,")[2]).decode()))
    )
    assert len(rows) == len(simulated[0])
    assert float(rows[0]["accuracy"]) == simulated[0][0].metrics["accuracy"]


def test_a_static_page_has_figures_in_place_of_scripts_and_the_same_tables(results, page):
    static = Page(render_report(results, title="t", static=True))
    assert "script" not in static.tags
    assert static.tags.count("tr") == page.tags.count("tr")
    assert static.tags.count("svg") == page.tags.count("svg") + 3  # gain, folds of two data sets


def test_every_figure_has_a_role_and_a_label_and_every_table_a_caption_and_scopes(page):
    roles = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "role")]
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert roles == ["img"] * page.tags.count("svg")
    assert len(labels) == len(roles)
    assert all(labels)
    assert page.tags.count("caption") == page.tags.count("table") > 0
    scopes = [value for tag, name, value in page.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == page.tags.count("th")


def test_only_the_scripts_of_the_report_may_run(html, page):
    contents = [value for _, name, value in page.attributes if name == "content"]
    policy = next(content for content in contents if "script-src" in content)
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.S)
    sums = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == sums


def test_no_gain_is_named_before_its_verdict(page):
    text = "".join(page.text)
    words = ("is better than", "is worse than", "No difference:", "Undecided:", "No verdict yet:")
    verdict = min(text.index(word) for word in words if word in text)
    gain = re.search(r"[+−]\d+\.\d\d", text)
    assert verdict < gain.start()


def test_the_labels_of_metrics_are_explained_before_the_first_table(html):
    before = html[: html.index("<table")]
    assert "Acc: accuracy; wF1: weighted F1" in before


def test_incomplete_runs_are_said_at_the_top(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.method, r.fold) != ("afor", 3)]
    text = text_of(lacking, expected)
    assert "Incomplete: 4 of 190 planned runs are missing" in text
    assert "No verdict yet: 34 of 36 runs of AFOR and Adam are done" in text


def test_a_full_study_stays_small(simulated):
    names = ["adam", "adamw", "radam", "adamp", "sophia", "mars", "afor"]
    backbones = ["eegnet", "acrnn", "nsal_dgat", "hslt"]
    results, expected = simulate_results(dict.fromkeys(names, 0.0), backbones=backbones)
    made = Results.of(results, expected)
    assert len(render_report(made).encode()) < 6e6
    beside = render_report(made, runs_file="report-runs.csv")
    assert 'href="report-runs.csv"' in beside
    assert len(beside) < len(render_report(made)) - 1e6


def test_the_page_carries_the_name_and_the_description_of_its_study(simulated):
    toml = """
name = "sleep"
description = "Seven optimizers on our sleep data."
datasets = ["synthetic"]
backbones = ["eegnet"]
optimizers = ["adam"]
"""
    made = replace(Results.of(*simulated), study_texts={"sleep": toml})
    page = render_report(made)
    assert "<h1>sleep</h1>" in page
    assert "<p>Seven optimizers on our sleep data.</p>" in page


def test_on_other_data_nothing_of_the_paper_is_shown():
    results, expected = simulate_results(
        {"adam": 0.0, "afor": 0.02}, datasets=["bci2a"], repetitions=2
    )
    own = [replace(r, dataset="mine") for r in results]
    text = text_of(own, [replace(e, dataset="mine") for e in expected])
    for word in ("paper", "Mean rank", "DEAP", "deap", "--method", "*"):
        assert word not in text


LABELS = {"adam": "Adam", "afor": "AFOR"}


def test_the_figure_and_the_table_of_ranks_say_the_same(page, results):
    text = "".join(page.text)
    ranks = results.ranks["accuracy"]
    notes = [ranks_caption(by_metric) for by_metric in results.ranks.values()]  # of the table
    for part in ranks_caption(ranks).rstrip(".").split("; "):
        assert text.count(part) == 1 + sum(part in note for note in notes)  # once in the figure
    for name, rank in zip(ranks.methods, ranks.mean_ranks, strict=True):
        if name in LABELS:
            assert f"{LABELS[name]} {rank:.2f}" in text


def test_an_analysis_adds_a_section_with_its_figure_findings_and_table(results, page):
    with house_style():
        figure, axes = new_figure(40)
        axes[0, 0].set_title("drawn by an analysis")
    row = Row("AFOR", (TableCell("7.25"),))
    table = Table("speed", "How fast", (Column("steps"),), (row,), records=({"steps": 7.25},))
    section = Section("speed", "Speed", figure, "One run.", ["It is 7.25 steps."], table)
    longer = Page(render_report(results, sections=[section]))
    text = "".join(longer.text)
    for words in ("drawn by an analysis", "One run.", "It is 7.25 steps.", "How fast"):
        assert words in text
    assert longer.ids.count("speed") == 1
    assert ("a", "href", "#speed") in longer.attributes  # in the contents
    assert ("a", "download", "speed.csv") in longer.attributes
    assert "speed" not in page.ids


def test_a_public_data_set_is_cited_with_its_licence_under_any_name():
    results, expected = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"])
    toml = """
name = "x"
datasets = [{ name = "bci2a", use = "physionet_mi" }]
backbones = ["eegnet"]
optimizers = ["adam"]
"""
    made = Results.of(results, expected)
    assert "Tangermann et al." in render_report(made)
    cited = render_report(replace(made, study_texts={"x": toml, "old": "no study"}))
    assert "Open Data Commons Attribution 1.0 (ODC-By). Cite: Schalk et al." in cited


def test_a_metric_without_values_is_not_printed_as_zero():
    results, expected = simulate_results(
        {"adam": 0.0, "afor": 0.02}, datasets=["bci2a"], repetitions=1
    )
    without = [r if r.method == "adam" else replace(r, metrics={"kappa": 0.5}) for r in results]
    with_third = [*without, *(replace(r, method="mars") for r in results[:9])]
    text = text_of(with_third, expected)
    assert "AFOR: no value of Acc, wF1, 9/9 runs" in text
    assert "AFOR: 0.00" not in text


def test_subjects_that_are_tested_in_several_folds_are_named(simulated, page):
    assert "tested in exactly one fold: yes." in "".join(page.text)
    repeated = [replace(r, test_subjects=("s07",)) if r.fold in (2, 5) else r for r in simulated[0]]
    text = text_of(repeated, simulated[1])
    assert "in exactly one fold: no, these subjects are tested in several: s07 of BCI IV 2a" in text
    assert "s07 of ISRUC (folds 2, 5)" in text


SORTING = """
// The few properties of a table in a browser that report.js uses.
const rows = JSON.parse(process.argv[2]).map(([kind, ...values]) => ({
  classList: { contains: (name) => name === kind },
  cells: values.map((value) => ({ dataset: { value } })), name: values[0],
}));
const body = { rows, append: (...added) => { body.order = [...(body.order || []), ...added]; } };
const heads = [0, 1].map((column) => ({ dataset: { column }, textContent: "x", sort: null,
  append(button) { this.button = button; }, getAttribute() { return this.sort; },
  setAttribute(_, value) { this.sort = value; }, removeAttribute() { this.sort = null; } }));
const table = { tBodies: [body], querySelectorAll: () => heads };
globalThis.document = {
  querySelectorAll: (selector) => (selector === "table.sortable" ? [table] : []),
  createElement: () => ({ addEventListener(_, run) { this.click = run; } }),
};
globalThis.location = { hash: "" };
globalThis.addEventListener = () => {};
require(process.argv[3]);
const click = (column) => { body.order = []; heads[column].button.click();
  return [heads[column].sort, body.order.map((row) => row.name)]; };
console.log(JSON.stringify([click(0), click(0), click(1), click(1)]));
"""


def test_columns_sort_both_ways_and_controls_stay_below(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; tests/browser sorts in a browser")
    (tmp_path / "sort.js").write_text(SORTING)
    rows = [["heading", "DEAP"], ["", "Mars", "1.5"], ["", "Adam", "10"], ["", "SGD", ""]]
    rows += [["rule", "Chance level", "99"], ["", "A control", "50"]]
    script = files("afor.bench.report").joinpath("templates/report.js")
    shown = subprocess.run(
        [node, tmp_path / "sort.js", json.dumps(rows), script], capture_output=True, check=True
    )
    names, turned, numbers, fewest = json.loads(shown.stdout)
    below = ["A control", "Chance level"]
    assert names == ["ascending", ["DEAP", "Adam", "Mars", "SGD", *below]]
    assert turned == ["descending", ["DEAP", "SGD", "Mars", "Adam", *below[::-1]]]
    assert numbers == ["descending", ["DEAP", "Adam", "Mars", "SGD", *below[::-1]]]
    assert fewest == ["ascending", ["DEAP", "Mars", "Adam", "SGD", *below]]


def test_the_verdicts_on_many_tasks_are_folded_below_the_one_over_all():
    gains = {"adam": 0.0, "afor": 0.02}
    for backbones in (["eegnet"], ["eegnet", "acrnn"]):
        made = simulate_results(gains, datasets=["bci2a", "isruc"], backbones=backbones)
        text = render_report(Results.of(*made))
        many = len(backbones) > 1
        assert ("<details><summary>Each of the 4 tasks</summary>" in text) == many
        if many:
            over, folded = text.index("Over 4 tasks on 2 data sets."), text.index("Each of the 4")
            assert over < folded < text.index("BCI IV 2a, EEGNet, 9 folds.")
