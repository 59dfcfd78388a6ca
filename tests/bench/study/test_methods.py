"""Methods: any set of settings under one name, compared as optimizers are."""

from pathlib import Path

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data.loading import open_windows
from afor.bench.execution.runner import run_study
from afor.bench.execution.sources import open_sources
from afor.bench.execution.verify import verify_runs
from afor.bench.stats.groups import collect_conditions, comparability_notes
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows, load_results, write_export
from afor.bench.study.overrides import Overrides, overridden
from afor.bench.study.plan import make_plan
from afor.bench.study.protocol import differences, pairing_notes
from afor.bench.study.schema import BY_METHOD, parse_study
from afor.bench.study.toml_io import study_toml

OPTIONS = {"n_subjects": 3, "trials": 8}
DATA = {"name": "synthetic", "options": OPTIONS}
SCHEDULES = """
name = "schedules"
backbones = ["eegnet"]

[[datasets]]
name = "synthetic"
options = { n_subjects = 3, trials = 8 }

[[methods]]
name = "adam"

[[methods]]
name = "cosine"
optimizer = "adam"
training.schedule = "cosine"

[[methods]]
name = "small_batches"
optimizer = "adam"
training = { batch_size = 8, normalization = "window" }
"""
NETWORKS = {
    "name": "networks",
    "datasets": [DATA],
    "methods": [
        {"name": "eegnet", "optimizer": "adam", "backbone": "eegnet"},
        {
            "name": "dropout",
            "optimizer": "adam",
            "backbone": {"name": "eegnet", "settings": {"dropout": 0.5}},
        },
        {"name": "hslt", "optimizer": "afor", "backbone": "hslt"},
    ],
}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return open_windows("synthetic", options=OPTIONS, cache_dir=folder)


@pytest.fixture
def plan(windows):
    return lambda study: make_plan(study, {"synthetic": windows})


def of_fold(plan):
    return {run.method: run for run in plan.runs if (run.fold, run.repetition) == (0, 0)}


def test_a_method_is_an_optimizer_with_settings_of_its_own(plan):
    runs = of_fold(plan(parse_study(SCHEDULES)))
    assert {name: run.spec["training"] for name, run in runs.items()} == {
        "adam": {},
        "cosine": {"schedule": "cosine"},
        "small_batches": {"batch_size": 8, "normalization": "window"},
    }
    assert {run.spec["optimizer"]["name"] for run in runs.values()} == {"adam"}
    assert {run.spec["seed"] for run in runs.values()} == {0}


def test_an_optimizer_as_a_method_has_the_key_it_has_as_an_optimizer(plan):
    plain = {"name": "x", "datasets": [DATA], "backbones": ["eegnet"]}
    one = plan(parse_study({**plain, "optimizers": ["adam"]})).runs[0]
    other = plan(parse_study({**plain, "methods": ["adam"]})).runs[0]
    method = {"name": "mine", "optimizer": "adam", "backbone": "eegnet"}
    third = plan(parse_study({"name": "y", "datasets": [DATA], "methods": [method]})).runs[0]
    assert one.key == other.key == third.key


def test_what_differs_belongs_to_the_method_and_the_rest_is_equal(plan):
    for study in (parse_study(SCHEDULES), parse_study(NETWORKS)):
        runs = of_fold(plan(study)).values()
        assert list(differences(run.protocol for run in runs)) == []
    longer = parse_study(SCHEDULES + "[training]\nmax_epochs = 3\n")
    protocols = [of_fold(plan(s))["cosine"].protocol for s in (parse_study(SCHEDULES), longer)]
    assert [difference.key for difference in differences(protocols)] == ["max_epochs"]


def test_networks_are_compared_within_one_task(plan):
    study = parse_study(NETWORKS)
    runs = of_fold(plan(study))
    assert {run.backbone for run in runs.values()} == {BY_METHOD}
    assert {n: run.spec["backbone"]["name"] for n, run in runs.items()} == {
        "eegnet": "eegnet", "dropout": "eegnet", "hslt": "hslt"
    }  # fmt: skip
    assert runs["dropout"].spec["backbone"]["settings"] == {"dropout": 0.5}
    assert runs["hslt"].bundle_key == ""
    assert runs["eegnet"].bundle_key != runs["dropout"].bundle_key


def test_the_network_of_a_method_agrees_with_the_settings_of_the_study_s(plan):
    study = {
        **NETWORKS,
        "backbones": [{"name": "eegnet", "settings": {"dropout": 0.3}}],
        "methods": ["adam", NETWORKS["methods"][2]],
    }
    runs = of_fold(plan(parse_study(study)))
    assert list(differences(run.protocol for run in runs.values())) == []
    assert runs["adam"].spec["backbone"]["settings"] == {"dropout": 0.3}


def test_a_method_has_the_learning_rate_of_its_network(plan):
    study = {**NETWORKS, "datasets": [{**DATA, "lr": {"hslt": 0.5}}]}
    rates = {name: run.rate for name, run in of_fold(plan(parse_study(study))).items()}
    assert rates == {"eegnet": 1e-3, "dropout": 1e-3, "hslt": 0.5}


def test_a_study_of_methods_is_written_and_changed_like_any_other(plan):
    for study in (parse_study(SCHEDULES), parse_study(NETWORKS)):
        assert parse_study(study_toml(study)) == study
    changes = Overrides(epochs=3, setting=["methods.cosine.training.schedule=one_cycle"])
    changed = parse_study(overridden(SCHEDULES, "mine", changes))
    assert changed.optimizers[1].training == {"schedule": "one_cycle"}
    assert changed.training.max_epochs == 3


def test_what_methods_do_not_share_is_said():
    assert pairing_notes(parse_study(SCHEDULES)) == [
        "small_batches: other batches than the other methods, same splits."
    ]
    (note,) = pairing_notes(parse_study(NETWORKS))
    assert "(eegnet, hslt) start from different weights" in note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('training.schedule = "cosine"', 'training.schedule = "cos"'), "line 15: .*schedule of"),
        (("training.schedule", "training.scheduler"), 'line 15: .*Did you mean "schedule"'),
        (("training.schedule = ", "training.clip_norm = "), "Set clip_norm of the method itself"),
        (
            ('optimizer = "adam"', 'optimiser = "adam"'),
            '"methods.2.optimiser". Did you mean "optimizer"',
        ),
        (("[[methods]]", "[[optimizers]]\nname = 'x'\n[[methods]]", 1), "both methods and"),
    ],
)
def test_a_mistake_in_a_method_is_named_with_its_line(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_study(SCHEDULES.replace(*change), "mine")


WINDOWS = """
name = "windows"
backbones = ["eegnet"]

[[datasets]]
name = "synthetic"
options = { n_subjects = 3, trials = 8 }

[[methods]]
name = "long"
optimizer = "adam"

[[methods]]
name = "short"
optimizer = "adam"
data.window_samples = 64
data.stride_samples = 32

[training]
max_epochs = 1
[protocol]
repetitions = 1
"""


def test_methods_cut_windows_of_their_own_from_the_same_trials(plan):
    runs = of_fold(plan(parse_study(WINDOWS)))
    long, short = runs["long"], runs["short"]
    assert long.spec["data"]["window_samples"] == 128
    assert (short.spec["data"]["window_samples"], short.spec["data"]["stride_samples"]) == (64, 32)
    assert long.spec["data"]["fingerprint"] != short.spec["data"]["fingerprint"]
    assert long.spec["split"] == short.spec["split"]
    assert list(differences([long.protocol, short.protocol])) == []
    assert (long.protocol["scored"], short.protocol["data.window_samples"]) == ("trials", "own")
    plain = WINDOWS.replace("data.window_samples = 64\ndata.stride_samples = 32\n", "")
    per_window = of_fold(plan(parse_study(plain)))["long"]
    assert per_window.key == long.key  # trained once for both studies
    found = differences([per_window.protocol, long.protocol])
    assert [difference.key for difference in found] == ["scored"]


def test_windows_of_a_method_are_those_of_a_study_that_cuts_them(plan, windows):
    short = of_fold(plan(parse_study(WINDOWS)))["short"]
    alone = parse_study({**NETWORKS, "backbones": ["eegnet"], "methods": ["adam"]})
    cut = windows.recut(window_samples=64, stride_samples=32)
    (run, *_) = make_plan(alone, {"synthetic": cut}).runs
    assert run.spec["data"] == short.spec["data"]


def test_runs_with_windows_of_two_lengths_are_scored_on_the_same_trials(tmp_path, inline_engine):
    study = parse_study(WINDOWS)
    path = tmp_path / "windows.db"
    run_study(study, WINDOWS, path, inline_engine, cache_dir=tmp_path)
    with open_store(path) as store:
        results = store.results()
        records = {run.key: store.run(run.key).record for run in results}
        (repeated, *_) = verify_runs(
            store,
            [run for run in store.runs() if run.method == "short"][:1],
            open_sources(study, tmp_path),
            tmp_path / "spool",
            workers=1,
        )
    assert repeated.is_same
    assert {(run.method, records[run.key].test.n) for run in results} == {
        ("long", 40),
        ("short", 88),
    }
    for run in results:
        trials = records[run.key].test_trials
        assert run.test_windows == trials.n == sum(run.test_counts) == 8
        assert run.metrics["accuracy"] == trials.accuracy
        assert run.linear == {}  # that is scored per window
    notes = comparability_notes(collect_conditions(results))
    assert "synthetic: scored per trial, because methods have windows of their own." in notes
    file = tmp_path / "windows.csv"
    with open_store(path) as store:
        write_export(export_rows(store), file)
    assert [run.metrics for run in load_results([file])[0]] == [run.metrics for run in results]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("stride_samples = 32", "rate_hz = 32"), 'unknown key "methods.2.data.rate_hz"'),
        (("window_samples = 64", "window_samples = 640"), "640 is longer than the trials"),
        (("[training]", '[training]\norder = "stream"\nnormalization = "none"'), "not comparable"),
        (("[training]", "[training]\nadaptation = { passes = 2 }"), "scored per window"),
        (('name = "windows"', 'name = "windows"\ntrainer = "tiny_trainer:train"'), "scored per"),
    ],
)
def test_windows_that_cannot_be_compared_are_refused(plan, change, message, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "faults")
    with pytest.raises(ConfigError, match=message):
        plan(parse_study(WINDOWS.replace(*change)))


def test_the_windows_of_a_method_are_said_and_set():
    (note,) = pairing_notes(parse_study(WINDOWS))
    assert note.startswith("short: other windows of the same trials. All methods are scored per")
    changes = Overrides(setting=["methods.short.data.window_samples=32"])
    changed = parse_study(overridden(WINDOWS, "mine", changes))
    assert changed.optimizers[1].data.options() == {"window_samples": 32, "stride_samples": 32}
    assert parse_study(study_toml(changed)) == changed
