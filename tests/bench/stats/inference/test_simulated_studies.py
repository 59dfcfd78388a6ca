"""The tests of many studies at once (docs/figures/simulated_studies.py) are those of each study."""

import numpy as np
import pytest

from afor.bench.stats.inference.decisions import decide
from afor.bench.stats.inference.paired_tests import equivalence_p, sign_flip_p, two_sided_p


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("docs/figures/simulated_studies.py")


@pytest.mark.parametrize("n", [1, 4, 9, 11, 14, 25])
def test_many_rows_give_what_each_row_gives(script, n):
    rng = np.random.default_rng(n)
    rows = np.vstack([rng.normal(0.2, 1, (4, n)), rng.integers(-2, 3, (4, n)), np.zeros((1, n))])
    assert script.sign_flip_p_rows(rows).tolist() == [sign_flip_p(row) for row in rows]
    assert script.two_sided_p_rows(rows).tolist() == [two_sided_p(row) for row in rows]
    assert script.equivalence_p_rows(rows, 0.5).tolist() == [
        equivalence_p(row, 0.5) for row in rows
    ]
    for margin in (None, 1.0):
        decisions = [decide(row, margin=margin).decision.value for row in rows]
        assert script.decide_rows(rows, margin=margin).tolist() == decisions
