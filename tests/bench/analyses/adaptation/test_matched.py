from dataclasses import replace

import pytest

from afor.bench.analyses.adaptation.matched import average_beta2, matched_study
from afor.bench.common.errors import ConfigError
from afor.bench.execution.sources import open_sources
from afor.bench.store.database import open_store
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study


@pytest.fixture
def store_of(small_study, made_store, record_of):
    """Return a function that writes a store of a study whose optimizers have settings.

    Its records have known averages: a at 0.99 in fold 0, else 0.996; fold 0 is long.
    """
    afor = {"name": "afor", "weight_decay": 0.02, "settings": {"betas": [0.8, 0.999]}}
    defaults = {
        "seed": 3,
        "optimizers": [{"name": "adamw", "lr": 0.01}, afor],
        "dataset": {"lr": {"eegnet": 3e-3}},
    }

    def by_fold(cell):
        if cell.method != "afor":
            return record_of({})
        first = cell.fold == 0
        return record_of({"a.w": 0.99 if first else 0.996, "b": 0.995}, steps=30 if first else 10)

    def write(record=by_fold, **changes):
        return made_store(small_study(**{**defaults, **changes}), record)

    return write


def test_a_long_run_counts_for_more(record_of) -> None:
    records = [record_of({"a": 0.99}, steps=30), record_of({"a": 0.998}, steps=10)]
    assert average_beta2(records) == {"a": pytest.approx(0.992, abs=1e-12)}


def test_the_controls_hold_the_averages_of_the_store(store_of) -> None:
    with open_store(store_of()) as store:
        made = matched_study(store)
    by_tensor = {"a.w": (30 * 0.99 + 3 * 10 * 0.996) / 60, "b": 0.995}
    assert made.beta2_by_tensor == pytest.approx(by_tensor, abs=1e-12)
    assert made.beta2 == pytest.approx(sum(by_tensor.values()) / 2, abs=1e-12)
    assert (made.runs, made.steps) == (4, 60)
    study = parse_study(made.toml)
    assert study == made.study
    assert study.name == "tiny-matched-synthetic-eegnet"
    entries = {entry.name: entry for entry in study.optimizers}
    assert list(entries) == [
        "afor",
        "adamw",
        "adamw_09945",
        "afor_calibrated",
        "adamw_mean",
        "adamw_mean_per_tensor",
    ]
    mean, per_tensor = entries["adamw_mean"], entries["adamw_mean_per_tensor"]
    assert (mean.use, per_tensor.use) == ("adamw", "adamw_per_tensor")
    assert mean.settings["betas"] == [0.8, made.beta2]
    assert per_tensor.settings["beta2_by_tensor"] == made.beta2_by_tensor
    assert mean.weight_decay == per_tensor.weight_decay == 0.02
    assert mean.lr is None, "the rate of AFOR stands with the data set"
    assert entries["adamw"].lr == 0.01, "AdamW keeps the rate it was trained with"
    assert "not a method to report" in made.toml


def test_finished_runs_are_not_repeated_in_the_same_store(store_of, window_cache) -> None:
    path = store_of()
    with open_store(path) as store:
        made = matched_study(store)
        finished = store.statuses()
    cells = make_plan(
        made.study.model_copy(update={"optimizers": made.study.optimizers[:2]}),
        open_sources(made.study, window_cache),
    ).runs
    assert {cell.method for cell in cells} == {"afor", "adamw"}
    assert all(cell.key in finished for cell in cells)


def test_several_networks_need_a_choice(store_of) -> None:
    with open_store(store_of(backbones=["eegnet", {"name": "wide", "use": "eegnet"}])) as store:
        with pytest.raises(ConfigError, match=r"several backbones.*--backbone: eegnet, wide"):
            matched_study(store)
        made = matched_study(store, backbone="wide")
        assert [entry.name for entry in made.study.backbones] == ["wide"]
        with pytest.raises(ConfigError, match=r'backbone "eegnte". Did you mean "eegnet"'):
            matched_study(store, backbone="eegnte")


def test_a_matched_study_in_the_store_is_never_its_own_origin(store_of) -> None:
    path = store_of()
    with open_store(path, write=True) as store:
        made = matched_study(store)
        afor = [row for row in store.plan_rows("tiny") if row.method == "afor"]
        rows = [replace(row, study=made.study.name) for row in afor]
        store.replace_study(made.study.name, made.toml, rows)
        assert matched_study(store).toml == made.toml


@pytest.mark.parametrize(
    ("means", "words"),
    [
        (None, "no run of afor on synthetic × eegnet is done yet"),
        ({}, "do not hold each tensor's mean beta2"),
        ({"a": 0.99, "of this fold": 0.99}, "networks with different tensors"),
    ],
)
def test_a_store_without_what_is_needed_is_told(store_of, record_of, means, words) -> None:
    def record(cell):
        named = {f"{n}{cell.fold}" if n != "a" else n: b for n, b in (means or {}).items()}
        return None if means is None else record_of(named)

    path = store_of(record)
    with open_store(path) as store, pytest.raises(ConfigError, match=words):
        matched_study(store)


def test_a_store_without_afor_is_told_with_what_it_has(store_of) -> None:
    path = store_of(optimizers=[{"name": "adamw", "lr": 0.01}])
    with (
        open_store(path) as store,
        pytest.raises(ConfigError, match=r'method "afor".*It has adamw'),
    ):
        matched_study(store)
