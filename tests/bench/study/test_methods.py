"""Methods: any set of settings under one name, compared as optimizers are."""

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.data.loading import open_windows
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
    return {run.optimizer: run for run in plan.runs if (run.fold, run.draw) == (0, 0)}


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
    assert runs["hslt"].companions == ""
    assert runs["eegnet"].companions != runs["dropout"].companions


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
    changes = Overrides(epochs=3, settings=["methods.cosine.training.schedule=one_cycle"])
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
