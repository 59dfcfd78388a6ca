"""A run's key covers what differs from the defaults: new settings change no key of old runs."""

import pytest

from afor.bench.data.loading import open_windows
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study
from afor.bench.training.run_spec import Training

DATA = {"name": "synthetic", "options": {"n_subjects": 3, "trials": 8}}
PARTS = {"datasets": [DATA], "backbones": ["eegnet"], "optimizers": ["adam"]}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return open_windows("synthetic", options=DATA["options"], cache_dir=folder)


@pytest.fixture
def spec(windows):
    def first(**changes):
        study = parse_study({"name": "keys", **PARTS, **changes})
        return make_plan(study, {"synthetic": windows}).runs[0].spec

    return first


def test_a_spec_leaves_out_settings_at_their_defaults(spec):
    plain = spec()
    assert plain["training"] == {}
    assert plain["backbone"]["settings"] == {}
    assert plain == spec(training={**Training().model_dump(exclude_none=True)})
    assert plain == spec(backbones=[{"name": "eegnet", "settings": {"norm_momentum": 0.01}}])


def test_a_spec_has_what_differs(spec):
    changed = spec(
        training={"max_epochs": 3, "adaptation": {"passes": 2}},
        datasets=[{**DATA, "batch_size": 32}],
        optimizers=[{"name": "adam", "clip_norm": 1.0, "adaptation_state": "reset"}],
        backbones=[{"name": "eegnet", "settings": {"norm_eps": 1e-5}}],
    )
    assert changed["training"] == {
        "max_epochs": 3,
        "batch_size": 32,
        "clip_norm": 1.0,
        "adaptation": {"passes": 2, "state": "reset"},
    }
    assert changed["backbone"]["settings"] == {"norm_eps": 1e-5}


def test_defaults_are_those_that_the_keys_of_stored_runs_assume():
    """Whoever changes a default here increases NUMERICS in study/plan.py."""
    assert Training().model_dump(exclude={"lr", "weight_decay"}) == {
        "batch_size": 64,
        "max_epochs": 200,
        "patience": 30,
        "normalization": "zscore",
        "subjects_per_batch": None,
        "constraints": True,
        "precision": "float32",
        "clip_norm": None,
        "order": "shuffled",
        "passes": 1,
        "weights": "best",
        "contamination": None,
        "adaptation": None,
        "schedule": "constant",
        "decay_exempt": False,
        "hold_redundant": False,
    }
