import math
from pathlib import Path

import numpy as np
import pytest

from afor.bench.stats.design.published_power import (
    CORRELATIONS,
    expected_stars,
    paired_sd,
    published_folds,
    published_power,
)
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.inference.paired_tests import holm, sign_flip_p_rows
from afor.bench.store.files import load_results


@pytest.fixture(scope="module")
def rows():
    return {(row.dataset, row.backbone, row.metric): row for row in published_power()}


def test_all_24_comparisons_and_their_22_stars(rows):
    assert len(rows) == 24
    assert sum(row.significant for row in rows.values()) == 22
    assert [published_folds(name) for name in ("deap", "bci2a", "isruc")] == [32, 9, 10]


def test_power_grows_with_the_correlation(rows):
    for row in rows.values():
        assert list(row.powers) == sorted(row.powers)


def test_the_needed_correlation_gives_a_power_of_80_percent(rows):
    for row in rows.values():
        below = [
            p for r, p in zip(CORRELATIONS, row.powers, strict=True) if r < row.needed_correlation
        ]
        above = [
            p for r, p in zip(CORRELATIONS, row.powers, strict=True) if r > row.needed_correlation
        ]
        assert all(p <= 0.81 for p in below)
        assert all(p >= 0.79 for p in above)


def test_a_power_is_that_of_simulated_tables(rows):
    """Draw Adam's and AFOR's fold values with the printed means, SDs and a correlation."""
    row = rows["bci2a", "eegnet", "weighted_f1"]
    rng = np.random.default_rng(0)
    studies = 2000
    adam = rng.standard_normal((studies, row.folds))
    other = rng.standard_normal((studies, row.folds))
    afor = 0.8 * adam + math.sqrt(1 - 0.8**2) * other
    differences = row.gain + row.sds[1] * afor - row.sds[0] * adam
    p = sign_flip_p_rows(differences)
    stars = np.mean([holm([value], 6)[0] < 0.05 for value in p])
    claimed = row.powers[CORRELATIONS.index(0.8)]
    assert abs(stars - claimed) < 3.5 * math.sqrt(
        claimed * (1 - claimed) * (1 / studies + 1 / 4000)
    )
    assert differences.std(axis=1, ddof=1).mean() == pytest.approx(
        paired_sd(row.sds, 0.8), rel=0.05
    )


def test_the_expected_stars_are_the_sum_of_the_powers(rows):
    at_half = sum(row.powers[CORRELATIONS.index(0.5)] for row in rows.values())
    assert expected_stars(0.5) == pytest.approx(at_half)


def test_the_correlations_on_the_page_are_those_of_the_physionet_study():
    runs = Path(__file__).parents[3] / "docs" / "results" / "physionet" / "runs.csv"
    if not runs.exists():
        pytest.skip("the repository's results are not here")
    conditions = collect_conditions(*load_results([runs]))
    adam, afor, copy = (
        list(conditions["physionet_mi", "eegnet", name].fold_values("accuracy").values())
        for name in ("adam", "afor", "adam_seed_1")
    )
    assert np.corrcoef(adam, afor)[0, 1] == pytest.approx(0.99, abs=0.005)
    assert np.corrcoef(adam, copy)[0, 1] == pytest.approx(0.76, abs=0.005)


def test_judgements(rows):
    assert rows["isruc", "eegnet", "accuracy"].judgement == "expected"
    assert rows["deap", "eegnet", "weighted_f1"].judgement == "needs fold values"
