import json
import math
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.analyses.landscape.compute import (
    evaluate,
    grid_axis,
    grid_coordinates,
    landscape,
)
from afor.bench.analyses.landscape.plane import random_plane
from afor.bench.analyses.landscape.record import content_of, read_landscape
from afor.bench.common.errors import ConfigError


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


def test_the_landscape_of_a_round_bowl_is_the_same_in_every_orthonormal_plane():
    center = np.random.default_rng(0).standard_normal(30)
    places = grid_coordinates(grid_axis(7, 1.0))
    plane = random_plane(center, seed=4)
    slopes = 2 * plane.directions @ center
    closed = center @ center + places @ slopes + (places**2).sum(axis=1)
    seen = []
    losses = evaluate(
        lambda weights, _: float(weights @ weights), lambda i: (plane.at(places[i]), None), 49,
        workers=2,
        watch=lambda *state: seen.append(state),
    )  # fmt: skip
    assert losses == pytest.approx(closed, rel=1e-12)
    assert seen == [(number, 49) for number in range(1, 50)]


def test_an_error_of_the_loss_comes_through():
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda weights, _: 1 / weights, lambda number: (1 - number, None), 2)


@pytest.fixture(scope="module")
def found(trained_paths):
    return landscape(
        trained_paths.runs, trained_paths.trajectories, study="paths", grid=3, windows=32
    )


def test_the_middle_of_the_grid_is_the_solution_of_afor(found, trained_paths):
    afor = found.paths["afor"]
    assert found.center == "afor"
    assert found.loss[1][1] == afor.true_loss[afor.solution]  # to the last bit
    assert found.loss[1][1] == pytest.approx(afor.projected_loss[afor.solution], rel=1e-5)
    assert (afor.x[afor.solution], afor.y[afor.solution]) == pytest.approx((0, 0), abs=1e-12)
    reach = max(abs(v) for p in found.paths.values() for v in (*p.x, *p.y))
    assert found.span == pytest.approx(1.15 * reach)
    assert (found.windows, found.weights) == (32, trained_paths.trajectories[0].weights.shape[1])


def test_both_paths_start_at_one_point_and_hold_their_own_loss(found):
    adam, afor = found.paths.values()
    assert (adam.x[0], adam.y[0]) == (afor.x[0], afor.y[0])
    assert adam.true_loss[0] == afor.true_loss[0]
    assert adam.projected_loss[0] == afor.projected_loss[0] != adam.true_loss[0]
    for path in (adam, afor):
        assert len(path.x) == len(path.true_loss) == len(path.projected_loss) == path.epochs + 1
        assert path.path_length < path.path_length_full
        assert 0 < path.explained_share < 0.05  # two of a thousand random dimensions
        # Another random plane would show a length of the same order.
        assert abs(path.path_length - path.random_length_mean) < 4 * path.random_length_sd


def test_two_workers_give_the_bits_of_one(found, trained_paths):
    shared = landscape(
        trained_paths.runs, trained_paths.trajectories, study="paths", grid=3, windows=32, workers=2
    )
    assert shared == found


def test_lengths_and_shares_are_those_of_the_path(found, trained_paths):
    adam = found.paths["adam"]
    points = trained_paths.trajectories[0].points
    steps, moved = np.diff(points, axis=0), points - points[0]
    shown = np.stack([adam.x, adam.y], axis=1)  # of an orthonormal plane
    assert adam.path_length_full == pytest.approx(np.linalg.norm(steps, axis=1).sum())
    assert adam.path_length == pytest.approx(
        np.linalg.norm(np.diff(shown, axis=0), axis=1).sum(), rel=1e-6
    )
    assert adam.explained_share == pytest.approx(
        ((shown - shown[0]) ** 2).sum() / (moved**2).sum(), rel=1e-6
    )
    assert adam.step_share == pytest.approx(
        (np.diff(shown, axis=0) ** 2).sum() / (steps**2).sum(), rel=1e-6
    )
    assert adam.minimum_loss == min(adam.projected_loss)
    assert adam.minimum_true_loss == min(adam.true_loss)


def test_the_principal_plane_of_an_optimizer_without_afor(trained_paths):
    other = landscape(
        trained_paths.runs[:1], trained_paths.trajectories[:1], directions="pca", grid=3,
        windows=16, span=0.5, batch_norm="recomputed",
    )  # fmt: skip
    adam = other.paths["adam"]
    assert other.center == "adam"
    assert (adam.x[adam.solution], adam.y[adam.solution]) == pytest.approx((0, 0), abs=1e-12)
    assert other.axis == [-0.5, 0.0, 0.5]
    assert adam.explained_share > 0.5


def test_what_makes_no_landscape_is_refused(trained_paths):
    runs, ways = trained_paths.runs, trained_paths.trajectories
    for windows in (1, -5):
        with pytest.raises(ConfigError, match="at least 2"):
            landscape(runs, ways, windows=windows)
    with pytest.raises(ConfigError, match="each of them once"):
        landscape(runs, [ways[0], ways[0]])
    with pytest.raises(ConfigError, match="a grid of 2 x 2"):
        landscape(runs, ways, grid=2)
    moved = replace(ways[0], weights=ways[0].weights + 1)
    with pytest.raises(ConfigError, match="do not start from the same weights"):
        landscape(runs, [moved, ways[1]])


def test_a_landscape_comes_back_from_its_json(found):
    assert read_landscape(json.loads(json.dumps(content_of(found))), "file") == found


def test_a_loss_that_is_not_finite_is_written_as_null(bowl):
    broken = replace(bowl, loss=[[float("inf")] * 5, *bowl.loss[1:]])
    content = json.loads(json.dumps(content_of(broken), allow_nan=False))
    assert content["loss"][0] == [None] * 5
    assert np.isnan(read_landscape(content, "file").loss[0]).all()


@pytest.mark.parametrize(
    "change",
    [{"paths": {}}, {"axis": [0.0]}, {"colour": "red"}, {"paths": {"a": {}}}],
)
def test_a_file_that_holds_no_landscape_is_told(bowl, change):
    with pytest.raises(
        ConfigError, match=r"x\.json does not hold a landscape.*afor analyse landscape"
    ):
        read_landscape({**content_of(bowl), **change}, "x.json")
