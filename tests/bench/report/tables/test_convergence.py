import math

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.convergence import convergence_table

CURVES = {"DEAP, EEGNet": {"adam": [[1.0, 0.8, 0.6], [3.0, 0.4, 0.2]], "afor": [[2.0, 0.5]]}}


def test_losses_are_averaged_over_the_runs_that_reached_the_epoch():
    table = convergence_table(CURVES)
    assert [row.label for row in table.rows] == ["DEAP, EEGNet: epochs 1, 2, 3", "Adam", "AFOR"]
    adam, afor = table.records
    assert (adam["first_mean"], adam["middle_mean"]) == pytest.approx((2.0, 0.6))
    assert adam["last_mean"] == pytest.approx(0.4)
    assert adam["last_sd"] == pytest.approx(math.sqrt(2) * 0.2)
    assert (afor["runs_to_the_end"], afor["runs"]) == (0, 1)
    assert [cell.text for cell in table.rows[1].cells] == [
        "2/2",
        "2.000±1.414",
        "0.600±0.283",
        "0.400±0.283",
    ]
    assert [cell.text for cell in table.rows[2].cells] == ["0/1", "2.000", "0.500", "–"]


def test_nothing_trained_is_an_error():
    with pytest.raises(ConfigError, match="no training loss"):
        convergence_table({})
