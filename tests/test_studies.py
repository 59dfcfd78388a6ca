"""The studies of this repository, and that the tables of their pages follow from their runs."""

import csv
import importlib.util
import itertools
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.guessing import adjusted_chance
from afor.bench.stats.inference.decisions import decide
from afor.bench.store.files import load_results
from afor.bench.study.schema import load_study

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").rglob("*.toml"))
RESULTS = ROOT / "docs" / "results"
BETA2 = RESULTS / "when-beta2-matters"
BETA2_SCRIPT = ROOT / "studies" / "beta2" / "results.py"
needs_beta2_runs = pytest.mark.skipif(
    not BETA2.is_dir(), reason="the studies on beta2 have no results yet: make bursts-study"
)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_of_the_repository_is_valid(path) -> None:
    assert load_study(str(path)).optimizers


def test_the_search_for_the_rate_is_on_the_data_of_the_study() -> None:
    search = load_study(str(ROOT / "studies" / "physionet" / "lr-search.toml"))
    study, matched = load_study("physionet"), ROOT / "studies" / "physionet" / "matched.toml"
    ours = study.datasets[0]
    assert search.datasets[0].options == ours.options
    assert search.datasets[0].subjects == ours.subjects
    assert load_study(str(matched)).datasets[0].options == ours.options
    assert load_study(str(matched)).training == study.training


@pytest.mark.parametrize("name", ["clean", "bursts", "amplitude", "stream", "adaptation", "awake"])
def test_rates_are_chosen_in_the_same_training_on_other_people(name) -> None:
    methods = load_script(BETA2_SCRIPT.with_name("methods.py"))
    searched, judged = methods.study_of(f"{name}-choose"), methods.study_of(name)
    chosen_methods, judged_methods = (
        {methods.method_of(entry) for entry in study.optimizers} for study in (searched, judged)
    )
    assert judged_methods <= chosen_methods
    same_length = {"max_epochs": judged.training.max_epochs}
    assert searched.training.model_copy(update=same_length) == judged.training
    ours, theirs = searched.datasets[0], judged.datasets[0]
    assert ours.options == theirs.options
    assert ours.subjects == [f"S{i:03d}" for i in range(1, 31)]
    assert theirs.subjects == [f"S{i:03d}" for i in range(31, 61)]


def load_script(path):
    if str(path.parent) not in sys.path:  # a script imports its neighbours
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["main.md", "gains.md", "controls.md", "held.md", "noise.md"])
def test_the_tables_on_physionet_are_what_the_commands_print(page) -> None:
    folder = RESULTS / "physionet"
    script = load_script(ROOT / "studies" / "physionet" / "results.py")
    commands = script.commands(folder, folder)
    (arguments,) = (words[:-2] for words in commands if words[-1] == str(folder / page))
    printed = CliRunner().invoke(app, [*arguments, "-f", "markdown"])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout.strip() == (folder / page).read_text("utf-8").strip()


def test_the_agreement_of_runs_on_physionet_is_what_the_script_writes() -> None:
    script = load_script(ROOT / "studies" / "physionet" / "results.py")
    folder = RESULTS / "physionet"
    assert script.agreement(folder) == (folder / "agreement.md").read_text("utf-8")


def test_the_page_on_physionet_quotes_its_verdicts() -> None:
    page = " ".join((RESULTS / "physionet.md").read_text("utf-8").split())
    rows = json.loads((RESULTS / "physionet" / "gains.json").read_text("utf-8"))["rows"]
    (afor,) = (r for r in rows if (r["method"], r["metric"]) == ("afor", "accuracy"))
    low, high = 100 * afor["interval_low"], 100 * afor["interval_high"]
    quoted = (
        f"{100 * afor['gain']:.2f} points of accuracy, exact 95 % interval {low:.2f} to {high:+.2f}"
    )
    assert quoted.replace("-", "−") in page
    (needed,) = re.findall(r"About (\d+ to \d+ subjects) in all", afor["then"])
    assert f"about {needed}" in page
    assert afor["verdict"] == "undecided"


def test_the_page_on_physionet_names_the_people_at_chance() -> None:
    results, _ = load_results([RESULTS / "physionet" / "runs.csv"], ["physionet"])
    conditions = collect_conditions(results)
    entries_at_chance = Counter(
        run.test_subjects[0]
        for condition in conditions.values()
        for (fold, repetition), run in condition.runs.items()
        if repetition == 0
        and condition.fold_values("accuracy")[fold] < adjusted_chance(run.test_windows, run.classes)
    )
    at_chance = [(name, count) for name, count in entries_at_chance.items() if count > 4]
    assert sorted(at_chance) == [("S005", 12), ("S006", 12), ("S009", 10)]
    page = " ".join((RESULTS / "physionet.md").read_text("utf-8").split())
    assert "with all twelve methods and controls for S005 and S006, and with ten for S009" in page


def test_the_page_on_physionet_shows_the_distances_that_were_printed() -> None:
    printed = (RESULTS / "physionet" / "memory.txt").read_text("utf-8")
    page = (RESULTS / "physionet.md").read_text("utf-8").replace("**", "")
    distances = re.findall(r"([\d.]+ %) at the end, (?:never|above 10 % from step (\d+))", printed)
    assert len(distances) == 6
    for distance, step in distances:
        assert f"| {distance} | {step or 'never'} |" in page


def test_the_slope_over_shift_is_that_of_a_line() -> None:
    figure = load_script(ROOT / "studies" / "shift" / "figure.py")

    class Cell:
        def __init__(self, values):
            self.values = values

        def fold_values(self, metric):  # noqa: ARG002  as a cell of the tables
            return dict(enumerate(self.values))

    cells = {}
    for shift in (0.0, 0.5, 1.0, 2.0):
        cells[f"shift_{shift:g}", "eegnet", "adamw"] = Cell([0.5, 0.7])
        cells[f"shift_{shift:g}", "eegnet", "afor"] = Cell([0.5 + 0.02 * shift, 0.8 - 0.01 * shift])
    assert figure.fold_slopes(cells, "afor", "adamw") == pytest.approx([2.0, -1.0])


@pytest.mark.parametrize("name", ["gains", "matched"])
def test_the_tables_on_shift_follow_from_the_runs(name, tmp_path, capsys) -> None:
    figure = load_script(ROOT / "studies" / "shift" / "figure.py")
    figure.main(RESULTS / "shift" / f"{name}.csv", tmp_path / name)
    written = (RESULTS / "shift" / f"{name}.md").read_text("utf-8")
    assert capsys.readouterr().out == written == (tmp_path / f"{name}.md").read_text("utf-8")
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    page = (RESULTS / "shift.md").read_text("utf-8")
    (line,) = (line for line in written.splitlines() if line.startswith("| AFOR − AdamW |"))
    slope, interval = (cell.strip() for cell in line.split("|")[2:4])
    assert f"{slope} points per unit of shift ({interval}" in page


@needs_beta2_runs
def test_the_tables_on_beta2_follow_from_its_runs() -> None:
    script = load_script(BETA2_SCRIPT)
    tables = script.tables(BETA2, script.measure_all(BETA2))
    assert "pilot.md" in tables
    for name, text in tables.items():
        assert (BETA2 / name).read_text("utf-8") == text, name


@needs_beta2_runs
def test_the_table_on_changes_of_subject_follows_from_what_was_measured() -> None:
    script = load_script(BETA2_SCRIPT.with_name("changes.py"))
    measurements = json.loads((BETA2 / "changes.json").read_text("utf-8"))
    assert {(m["statistics"], m["fold"]) for m in measurements} == {
        (statistics, fold) for statistics in script.BLOCKS for fold in range(script.FOLDS)
    }
    assert (BETA2 / "changes.md").read_text("utf-8") == script.table(measurements)


def test_a_change_of_subject_is_printed_in_the_unit_of_its_row() -> None:
    script = load_script(BETA2_SCRIPT.with_name("changes.py"))
    assert script.cell([math.log(1.1)] * 6, "residual") == "+10.00 [+10.00, +10.00]"
    assert script.cell([-2e-5] * 6, "beta2") == "−2.00 [−2.00, −2.00]"
    assert script.cell([-0.01] * 6, "beta2_share") == "−1.00 [−1.00, −1.00]"


@needs_beta2_runs
def test_the_rates_of_the_long_training_are_those_chosen_on_other_people() -> None:
    methods, rates = (
        load_script(BETA2_SCRIPT.with_name(f"{name}.py")) for name in ("methods", "rates")
    )
    chosen = {m.label: rate for m, rate in rates.chosen_rates(BETA2 / "awake-choose.csv").items()}
    entries = methods.study_of("awake").optimizers
    assert {methods.method_of(entry).label: entry.lr for entry in entries} == chosen
    for entry in methods.study_of("awake-confirm").optimizers:
        assert entry.lr == chosen[methods.method_of(entry).label]


@pytest.mark.parametrize(
    "path", sorted(BETA2_SCRIPT.parent.glob("*.toml")), ids=lambda path: path.stem
)
def test_a_study_on_beta2_names_the_target_that_runs_it(path) -> None:
    target = re.search(r"^#   make (\S+) EYES=FOLDER$", path.read_text("utf-8"), re.MULTILINE)
    assert target is not None
    recipe = re.search(
        rf"^{target[1]}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert recipe is not None, target[1]
    assert f"$(RUN) {path.relative_to(ROOT)}\n" in recipe[1]


@pytest.mark.parametrize("name", sorted(path.stem for path in BETA2.glob("*.csv")))
def test_the_runs_of_a_page_are_those_of_its_study(name) -> None:
    study = load_study(str(BETA2_SCRIPT.with_name(f"{name}.toml")))
    (data,) = study.datasets
    if study.search is None:
        rates = {(entry.name, entry.lr or study.training.lr) for entry in study.optimizers}
    else:
        pairs = itertools.product(study.optimizers, study.search.grid)
        rates = {(f"{entry.name} lr={rate:g}", rate) for entry, rate in pairs}
    folds = study.protocol.only_folds or range(data.folds)
    repetitions = study.protocol.only_repetitions or range(study.protocol.repetitions)
    with (BETA2 / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    exported = {(r["method"], float(r["lr"]), int(r["fold"]), int(r["repetition"])) for r in rows}
    assert len(rows) == len(exported)
    assert exported == {
        (*rate, fold, repetition) for rate in rates for fold in folds for repetition in repetitions
    }


def test_the_people_who_choose_are_not_judged() -> None:
    methods = load_script(BETA2_SCRIPT.with_name("methods.py"))
    people = {True: set(), False: set()}
    for path in BETA2_SCRIPT.parent.glob("*.toml"):
        (data,) = methods.study_of(path.stem).datasets
        people[path.stem.endswith("-choose")] |= set(data.subjects)
    assert len(people[True]) == len(people[False]) == 30
    assert people[True].isdisjoint(people[False])


@needs_beta2_runs
def test_the_comparisons_on_beta2_are_what_the_commands_print() -> None:
    made = load_script(BETA2_SCRIPT).commands(BETA2)
    tables = [words for words in made if words[-1].endswith(".md")]
    assert tables
    for *arguments, _, target in tables:
        printed = CliRunner().invoke(app, [*arguments, "-f", "markdown"])
        assert printed.exit_code == 0, printed.output
        assert printed.stdout.strip() == Path(target).read_text("utf-8").strip(), target


@needs_beta2_runs
def test_the_page_on_beta2_shows_every_table_and_figure_of_its_folder() -> None:
    pages = [RESULTS / "when-beta2-matters.md", *(ROOT / "docs" / "analyses").glob("*.md")]
    shown = "".join(page.read_text("utf-8") for page in pages)
    for file in [*BETA2.glob("*.md"), *BETA2.glob("*.png")]:
        assert f"when-beta2-matters/{file.name}" in shown, file.name


@pytest.mark.parametrize(
    ("pilot", "differences", "verdict"),
    [
        ((2.0, 1.0, 3.0), [4e-3] * 6, "confirmed"),
        ((2.0, 1.0, 3.0), [-4e-3] * 6, "refuted"),
        ((2.0, 1.0, 3.0), [1e-4, -1e-4] * 3, "refuted"),  # equal within the margin
        ((0.1, -1.0, 1.0), [1e-4, -1e-4] * 3, "confirmed"),
        ((0.1, -1.0, 1.0), [4e-3] * 6, "refuted"),
        ((0.1, -1.0, 1.0), [2e-2, -2e-2] * 3, "undecided"),
        ((2.0, 1.0, 3.0), [4e-3] * 5, "undecided"),  # five folds cannot decide
    ],
)
def test_the_pilot_on_beta2_is_judged_as_the_page_says(pilot, differences, verdict) -> None:
    script = load_script(BETA2_SCRIPT)
    claim = script.Claim(script.CLEAN, script.BEST, "nll", *pilot)
    assert script.verdict(claim, decide(differences, margin=3e-3)) == verdict


@needs_beta2_runs
def test_a_difference_in_two_tables_on_beta2_has_one_decision() -> None:
    # Where both halves choose one rate, the headroom compares the runs of the table at that rate.
    script = load_script(BETA2_SCRIPT)
    seen = 0
    for regime in script.present_regimes((script.CLEAN, script.STREAM, script.NEW_SUBJECT), BETA2):
        runs = script.runs_by_method(BETA2 / f"{regime.study}.csv")
        methods = {method.label: method for method, _ in runs}
        for headroom in script.measure(regime, BETA2):
            scored = {method.method: method for method in (*headroom.constants, *headroom.rules)}
            rates = scored.pop(f"β₂ = {script.REFERENCE:g}").choices
            for label, method in scored.items():
                if len(rates) > 1 or method.choices != rates:
                    continue
                at_rate = dict.fromkeys(methods.values(), float(rates[0]))
                decisions = script.decisions_at(runs, regime.study, headroom.metric, at_rate)
                ours = decisions[methods[label]]
                assert method.gain == pytest.approx(ours.mean)
                assert method.over_reference.decision == ours.decision, (regime.title, label)
                seen += 1
    assert seen > 20


OPEN = ROOT / "studies" / "open"
OPEN_RESULTS = RESULTS / "open"


@pytest.mark.parametrize("task", ["eyes", "stress", "imagery"])
def test_open_studies_train_as_their_search_with_the_rates_it_found(task) -> None:
    search, study = load_study(str(OPEN / "rates.toml")), load_study(str(OPEN / f"{task}.toml"))
    searched = {entry.name: entry for entry in search.datasets}[task]
    ours = study.datasets[0]
    assert ours.model_copy(update={"lr": {}}) == searched
    assert (study.training, study.backbones) == (search.training, search.backbones)
    best: dict[str, tuple[float, float]] = {}
    with (OPEN_RESULTS / "rates.csv").open() as file:
        for row in csv.DictReader(file):
            rate = float(row["method"].removeprefix("adam lr="))
            found = (-float(row["best_validation_accuracy"]), rate)
            if row["dataset"] == task:
                best[row["backbone"]] = min(best.get(row["backbone"], found), found)
    assert {name: rate for name, (_, rate) in best.items()} == ours.lr


@pytest.mark.parametrize(
    "page",
    [
        *("main.md", "comparisons.md", "ranks.md", "pooled.md"),
        *("ablation.md", "sensitivity.md", "matched.md", "unnormalized.md"),
        *("landscape-random.md", "landscape-pca.md", "landscape-filter.md"),
    ],
)
def test_the_tables_on_open_data_are_what_the_commands_print(page) -> None:
    script = load_script(OPEN / "results.py")
    commands = script.commands(OPEN_RESULTS)
    (arguments,) = (words[:-2] for words in commands if words[-1] == str(OPEN_RESULTS / page))
    printed = CliRunner().invoke(app, [*arguments, "-f", "markdown"])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout.strip() == (OPEN_RESULTS / page).read_text("utf-8").strip()


def test_the_page_on_open_data_shows_what_follows_from_its_runs() -> None:
    page = (RESULTS / "open.md").read_text("utf-8")
    fragments = load_script(OPEN / "results.py").fragments(OPEN_RESULTS)
    for name, text in fragments.items():
        assert f"{{include}} open/{name}" in page
        assert (OPEN_RESULTS / name).read_text("utf-8") == text, name


def test_the_convergence_on_open_data_follows_from_its_losses() -> None:
    with (OPEN_RESULTS / "convergence-losses.csv").open(encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    printed = (OPEN_RESULTS / "convergence.md").read_text("utf-8")
    for method in ("adam", "radam", "mars", "afor"):
        losses = [[float(loss) for loss in row[2:]] for row in rows if row[0] == method]
        assert [len(run) for run in losses] == [200] * 5
        cells = [
            f"{fmean(run[i] for run in losses):.3f}±{stdev(run[i] for run in losses):.3f}"
            for i in (0, 99, 199)
        ]
        assert f"| 5/5 | {' | '.join(cells)} |" in printed


@pytest.mark.parametrize("name", ["stress", "imagery", "eyes"])
def test_every_network_has_its_runs_on_every_task_of_the_open_study(name) -> None:
    study = load_study(str(OPEN / f"{name}.toml"))
    script = load_script(OPEN / "results.py")
    found = []
    for path in script.compared_in(OPEN_RESULTS).values():
        with path.open(encoding="utf-8") as file:
            done = [row for row in csv.DictReader(file) if row["status"] == "done"]
        ours = [row for row in done if row["dataset"] == name]
        found += [(row["backbone"], row["method"], int(row["fold"])) for row in ours]
    methods = {entry.name for entry in study.optimizers}
    # The page says so: there was no time for the others.
    fewer = {("imagery", "nsal_dgat_authors"): {"adam", "afor"}}
    planned = {
        (network.name, method, fold)
        for network in study.backbones
        for method in fewer.get((name, network.name), methods)
        for fold in range(study.datasets[0].folds)
    }
    assert len(found) == len(set(found))
    assert set(found) == planned


def test_a_whole_task_replaces_the_files_of_its_networks(tmp_path) -> None:
    script = load_script(OPEN / "results.py")
    for name in ("eyes", "stress-eegnet_authors", "imagery", "imagery-hslt_authors"):
        (tmp_path / f"{name}.csv").touch()
    assert list(script.compared_in(tmp_path)) == ["imagery", "eyes", "stress-eegnet_authors"]
