"""The headroom of beta2: split halves, gaps, rules, and a study from file to command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.analyses.headroom.compute import Candidate, headroom_of, measure_headroom
from afor.bench.analyses.headroom.views import headroom_figure, headroom_tables
from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.execution.runner import run_study
from afor.bench.report.tables.formats import to_markdown
from afor.bench.stats.inference.decisions import decide_family
from afor.bench.store.database import open_store
from afor.bench.study.schema import load_study, parse_study


def candidates(levels, folds=10, repetitions=2, noise=0.0, seed=0):
    """Make candidates from {(method, beta2, lr): level}; folds differ in difficulty."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 1, folds)
    return [
        Candidate(
            *key,
            {
                (fold, repetition): level + difficulty[fold] + noise * rng.normal()
                for fold in range(folds)
                for repetition in range(repetitions)
            },
        )
        for key, level in levels.items()
    ]


LEVELS = {
    ("β₂ = 0.9", 0.9, 1e-3): 0.50,
    ("β₂ = 0.9", 0.9, 1e-2): 0.40,
    ("β₂ = 0.999", 0.999, 1e-3): 0.30,
    ("β₂ = 0.999", 0.999, 1e-2): 0.45,
    ("rule", None, 1e-3): 0.48,
    ("rule", None, 1e-2): 0.10,
}


def test_every_method_has_its_best_rate_and_rules_stand_between() -> None:
    result = headroom_of(candidates(LEVELS), "accuracy")
    best, constants, (rule,) = result.best_constant, result.constants, result.rules
    assert (result.units, result.count) == ("folds", 10)
    assert best.gain == pytest.approx(0.05)
    assert best.choices == ("0.9 at 0.001",)
    assert [constant.beta2 for constant in constants] == [0.9, 0.999]
    assert constants[1].over_reference is None
    assert constants[1].choices == ("0.01",)
    assert rule.gain == pytest.approx(0.03)
    assert rule.over_best_constant.mean == pytest.approx(-0.02)


def test_decisions_are_those_of_one_corrected_family_of_exact_tests() -> None:
    # A bootstrap over folds would exclude zero here; the exact test with its correction does not.
    levels = {(f"rule {i}", None, 1e-3): 0.0 for i in range(6)}
    levels |= {("β₂ = 0.9", 0.9, 1e-3): 0.0, ("β₂ = 0.999", 0.999, 1e-3): 0.0}
    marked = 0
    for seed in range(20):
        noisy = candidates(levels, repetitions=1, noise=1.0, seed=seed)
        result = headroom_of(noisy, "accuracy")
        compared = (result.constants[0], result.best_constant, *result.rules)
        by_method = {c.method: np.array(list(c.values.values())) for c in noisy}
        reference = by_method.pop("β₂ = 0.999")
        family = decide_family(
            [by_method[m.method] - reference for m in compared if m.method in by_method],
            margin=0.01,
            family=len(compared),
        )
        named = [m.over_reference for m in compared if m.method in by_method]
        assert [made.interval for made in named] == [made.interval for made in family]
        marked += any(m.over_reference.decision in ("better", "worse") for m in compared)
    assert marked <= 3  # 5 % of 20 studies, not of 160 cells


def test_more_comparisons_of_the_study_make_a_decision_stricter() -> None:
    few, many = (
        headroom_of(candidates(LEVELS, noise=0.02), "accuracy", family=family).rules[0]
        for family in (None, 300)
    )
    assert few.over_reference.interval == many.over_reference.interval
    assert few.over_reference.decision == "better"
    assert many.over_reference.decision == "undecided"


def test_less_is_better_for_the_likelihood() -> None:
    mirrored = {key: -level for key, level in LEVELS.items()}
    result = headroom_of(candidates(mirrored), "nll")
    assert result.best_constant.gain == pytest.approx(0.05)
    assert result.rules[0].over_best_constant.mean == pytest.approx(-0.02)


def test_the_best_of_many_equal_settings_gains_nothing_on_the_other_half() -> None:
    # Choosing and scoring on the same folds would find a gain of about 1.9 SD of a mean.
    levels = {(f"β₂ = {b:g}", b, 1e-3): 0.0 for b in np.linspace(0.8, 0.999, 30)}
    gains = []
    for seed in range(20):
        noisy = candidates(levels, folds=8, noise=1.0, seed=seed)
        gains.append(headroom_of(noisy, "accuracy").best_constant.gain)
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(len(gains))


def test_draws_are_halved_where_folds_are_few() -> None:
    result = headroom_of(candidates(LEVELS, folds=2, repetitions=6), "accuracy")
    assert (result.units, result.count) == ("repetitions", 6)
    with pytest.raises(ConfigError, match="2 folds and 2 repetitions"):
        headroom_of(candidates(LEVELS, folds=2, repetitions=2), "accuracy")


def test_a_study_without_a_grid_is_told_how_to_make_one() -> None:
    single = {key: level for key, level in LEVELS.items() if key[1] != 0.9}
    with pytest.raises(ConfigError, match="afor run headroom"):
        headroom_of(candidates(single), "accuracy")


@pytest.fixture(scope="module")
def grid_store(small_study, tmp_path_factory, window_cache, inline_engine):
    """Train a small grid: two constants, one of them clipped too, and a rule."""
    optimizers = [
        "adamw",
        {"name": "short", "use": "adamw", "settings": {"betas": [0.9, 0.9]}},
        {"name": "clipped", "use": "adamw", "clip_norm": 0.5},
        "afor",
    ]
    text = small_study(
        name="grid",
        optimizers=optimizers,
        training={"max_epochs": 1},
        search={"grid": [1e-3, 1e-2]},
        options={"trials": 6, "channels": ["C3", "Cz"]},
    )
    path = tmp_path_factory.mktemp("grid") / "grid.db"
    run_study(parse_study(text), text, path, inline_engine, cache_dir=window_cache)
    return path


def test_a_finished_study_gives_table_and_figure(grid_store) -> None:
    with open_store(grid_store) as store:
        results = measure_headroom(store)
        assert [result.metric for result in results] == ["nll", "accuracy"]
        first = results[0]
        assert [constant.beta2 for constant in first.constants] == [0.9, 0.999]
        assert [rule.method for rule in first.rules] == ["clipped", "AFOR"]
        assert first.count == 4
        with pytest.raises(ConfigError, match="no metric 'f9'"):
            measure_headroom(store, ["f9"])
    (shown,) = headroom_tables(results)
    table = to_markdown(shown)
    assert "best constant" in table
    assert "(–), undecided" in table  # four folds
    assert "10⁻³ nats" in table
    assert len(headroom_figure(results).axes) == 2


def test_the_command_prints_a_table_json_and_a_figure(grid_store, tmp_path) -> None:
    picture = tmp_path / "headroom.png"
    shown = CliRunner().invoke(app, ["analyse", "headroom", str(grid_store), "-o", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert "over best constant" in shown.output
    assert picture.stat().st_size > 1000
    printed = CliRunner().invoke(
        app, ["analyse", "headroom", str(grid_store), "--json", "-m", "nll"]
    )
    records = json.loads(printed.stdout)["rows"]
    assert {record["kind"] for record in records} == {"constant", "best constant", "rule"}
    reference = next(record for record in records if record["beta2"] == 0.999)
    assert reference["gain_over_reference"] is None
    assert {record["decision_over_reference"] for record in records} <= {
        None, "better", "worse", "equivalent", "undecided",
    }  # fmt: skip


def test_the_preset_is_a_grid_with_the_reference() -> None:
    study = load_study("headroom")
    assert len(study.search.grid) > 1
    adamw = [entry for entry in study.optimizers if entry.use == "adamw"]
    constants = [entry.settings.get("betas", [0.9, 0.999])[1] for entry in adamw]
    assert 0.999 in constants
    assert len(constants) > 2
