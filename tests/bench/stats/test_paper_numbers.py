import os
import re
from pathlib import Path
from statistics import mean

import pytest

from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.stats.labels import BACKBONE_LABELS, PAPER_METRICS
from afor.bench.stats.paper_numbers import published, published_results
from afor.bench.study.schema import NETWORKS

BACKBONES = NETWORKS
DATASETS = ["deap", "bci2a", "isruc"]


@pytest.fixture(scope="module")
def paper():
    """Give the paper's source, or skip the test."""
    nearby = Path(__file__).resolve().parents[3].parent / "shared" / "paper" / "afor.tex"
    path = Path(os.environ.get("AFOR_PAPER") or nearby)
    if not path.is_file():
        pytest.skip("the paper's source is not here; point AFOR_PAPER at afor.tex")
    return path.read_text("utf-8")


def table_rows(paper, label):
    """Return the rows of a table as lists of cell texts, headings left out."""
    found = re.search(rf"\\label{{tab:{label}}}(.*?)\\end{{tabular", paper, re.S)
    rows = [row.replace("\n", " ").split("&") for row in found[1].split(r"\\")]
    return [
        [condition.strip() for condition in row]
        for row in rows
        if re.search(r"&.*\d", "&".join(row))
    ]


def read_cell(text):
    value, sd = re.search(r"([\d.]+)\$\\pm\$([\d.]+)", text).groups()
    marks = (r"\cellcolor" in text, r"\underline" in text, "*" in text)
    return float(value), float(sd), *marks


def test_every_number_and_mark_of_the_main_table_is_the_papers(paper):
    rows = [row for row in table_rows(paper, "results") if r"\pm" in row[1]]
    printed = {}
    for number, row in enumerate(rows):
        dataset, optimizer = DATASETS[number // 7], PAPER_OPTIMIZERS[number % 7]
        assert optimizer in row[0].lower().replace("(ours)", "")
        for column, text in enumerate(row[1:]):
            key = (dataset, BACKBONES[column // 2], optimizer, PAPER_METRICS[column % 2])
            printed[key] = read_cell(text)
    assert len(printed) == 3 * 4 * 7 * 2
    stored = {
        k: (c.mean, c.sd, c.best, c.second, c.significant) for k, c in published_results().items()
    }
    assert stored == printed


def test_every_number_of_the_ablation_is_the_papers(paper):
    rows = [row for row in table_rows(paper, "ablation") if r"\pm" in "".join(row)]
    names = [
        ("--", "afor"), ("DC", "afor_no_dc"), ("FC", "afor_no_fc"), ("SRN", "afor_no_srn"),
        ("TSG", "afor_no_tsg"), ("EC", "afor_no_ec"), ("0.99$", "afor_fixed_099"),
        ("0.999$", "afor_fixed_0999"),
    ]  # fmt: skip
    blocks = [("deap", "eegnet"), ("deap", "acrnn"), ("bci2a", "eegnet"), ("bci2a", "acrnn")]
    printed = {}
    for row, (text, name) in zip(rows, names, strict=True):
        assert row[1].endswith(text)
        for column, condition in enumerate(row[2:]):
            printed[*blocks[column // 2], name, PAPER_METRICS[column % 2]] = read_cell(condition)[
                :2
            ]
    stored = {k: (c.mean, c.sd) for k, c in published_results("ablation").items()}
    assert stored == printed
    assert len(stored) == 64


def test_every_learning_rate_is_the_papers(paper):
    stored = published()["learning_rates"]["cells"]
    rows = table_rows(paper, "lr")[-4:]
    for row, backbone in zip(rows, BACKBONES, strict=True):
        assert BACKBONE_LABELS[backbone] in row[0]
        for dataset, text in zip(DATASETS, row[1:], strict=True):
            digit, exponent = re.search(r"(\d)\\times10\^\{(-\d)\}", text).groups()
            assert stored[dataset][backbone] == float(f"{digit}e{exponent}")
    grid = re.search(r"grid search over\s*\$\\\{(.*?)\\\}\$", paper, re.S)[1]
    printed = [float(f"{d}e{e}") for d, e in re.findall(r"(\d)\\times10\^\{(-\d)\}", grid)]
    assert published()["learning_rates"]["grid"] == printed


def test_the_data_sets_are_the_papers(paper):
    rows = table_rows(paper, "datasets")[-3:]
    for row, stored in zip(rows, published()["datasets"]["cells"].values(), strict=True):
        assert [str(value) for value in stored.values()] == row[1:]


def test_cost_and_landscape_are_the_papers(paper):
    cost = published()["cost"]["cells"]
    for row, name in zip(table_rows(paper, "complexity"), cost, strict=True):
        printed = {o: t for o, t in zip(PAPER_OPTIMIZERS, row[1:], strict=True) if t != "--"}
        assert {o: float(t) for o, t in printed.items()} == cost[name]
    landscape = published()["landscape"]["cells"]
    for row, name in zip(table_rows(paper, "landscape_metrics"), landscape, strict=True):
        assert row[0].lower().endswith(name)
        assert [float(t) for t in row[1:]] == list(landscape[name].values())


def test_the_claims_are_the_papers(paper):
    text = re.sub(r"\s+", " ", paper)
    claims, sensitivity = published()["claims"], published()["sensitivity"]
    by_dataset = claims["gain_accuracy_by_dataset"]
    assert r"by {:.2f}\%, {:.2f}\%, and {:.2f}\%".format(*by_dataset.values()) in text
    for key, words in (("gain_accuracy", "in"), ("gain_weighted_f1", "on")):
        claim = claims[key]
        assert rf"{claim['mean']:.2f}\% {words} \textit" in text
        assert rf"(up to {claim['highest']:.2f}\%)" in text
    assert "{}/{} backbone-metric".format(*claims["significant"]) in text
    for dataset in ("deap", "isruc"):
        assert r"from {:.2f}\% to {:.2f}\%".format(*sensitivity[dataset]) in text


def test_the_papers_averages_follow_from_its_table():
    conditions, claims = published_results(), published()["claims"]
    gains = {
        (d, b, m): c.mean - conditions[d, b, "adam", m].mean
        for (d, b, o, m), c in conditions.items()
        if o == "afor"
    }
    for metric in PAPER_METRICS:
        of_metric = [gain for (_, _, m), gain in gains.items() if m == metric]
        assert mean(of_metric) == pytest.approx(claims[f"gain_{metric}"]["mean"], abs=0.006)
        assert max(of_metric) == pytest.approx(claims[f"gain_{metric}"]["highest"], abs=0.006)
    for dataset, claim in claims["gain_accuracy_by_dataset"].items():
        of_dataset = [gain for (d, _, m), gain in gains.items() if (d, m) == (dataset, "accuracy")]
        assert mean(of_dataset) == pytest.approx(claim, abs=0.006)
    stars = [c.significant for c in conditions.values() if c.optimizer == "afor"]
    assert [sum(stars), len(stars)] == claims["significant"]
