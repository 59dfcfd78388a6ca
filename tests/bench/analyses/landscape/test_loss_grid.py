import math
import os

import numpy as np
import pytest

from afor.bench.analyses.landscape.loss_grid import evaluate, grid_axis, grid_coordinates
from afor.bench.common.errors import ConfigError, EngineError


def test_a_grid_is_symmetric_and_holds_the_center():
    axis = grid_axis(51, 0.3)
    assert np.array_equal(axis, -axis[::-1])
    assert axis[25] == 0
    assert axis[[0, -1]] == pytest.approx([-0.3, 0.3])
    places = grid_coordinates(axis)
    assert places.shape == (51 * 51, 2)
    assert places[1].tolist() == [axis[1], axis[0]]  # x runs fastest


@pytest.mark.parametrize(
    ("points", "span", "words"),
    [(2, 1.0, "at least 3"), (51, 0.0, "above 0"), (51, math.nan, "above 0"), (5, -1.0, "above 0")],
)
def test_a_grid_that_is_none_is_refused(points, span, words):
    with pytest.raises(ConfigError, match=words):
        grid_axis(points, span)


def test_several_processes_give_what_one_gives_and_all_is_seen():
    seen = []
    alone = evaluate(math.sqrt, 50)
    shared = evaluate(math.sqrt, 50, workers=2, watch=lambda *state: seen.append(state))
    assert np.array_equal(alone, shared)
    assert np.array_equal(alone, [math.sqrt(i) for i in range(50)])
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (50, 50)


def test_no_worker_is_refused():
    with pytest.raises(ConfigError, match="-j 0"):
        evaluate(math.sqrt, 3, workers=0)


def test_an_error_of_the_function_comes_through():
    with pytest.raises(ValueError):
        evaluate(math.log, 3)  # of zero


def test_a_worker_that_dies_is_told_with_what_to_do():
    with pytest.raises(EngineError, match="fewer workers"):
        evaluate(os._exit, 4, workers=2)
