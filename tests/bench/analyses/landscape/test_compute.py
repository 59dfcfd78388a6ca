import json
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.analyses.landscape.compute import Points, landscape, measure_path
from afor.bench.analyses.landscape.loss_grid import evaluate, grid_axis, grid_coordinates
from afor.bench.analyses.landscape.plane import Plane, random_plane
from afor.bench.analyses.landscape.record import content_of, landscape_json, read_landscape
from afor.bench.analyses.landscape.trajectories import Trajectory
from afor.bench.common.errors import ConfigError

SCALES = np.array([1.0, 3.0, 0.5, 2.0])


def quadratic(weights, buffers=None):
    return float(SCALES @ np.square(weights.astype(np.float64))) / 2


def trajectory(points, name="adam"):
    points = np.array(points, dtype=np.float32)
    steps = np.arange(len(points))
    return Trajectory(name, name, points, np.zeros((len(points), 1)), steps, len(points) - 1, 2)


def test_the_landscape_of_a_quadratic_is_its_closed_form():
    """Along unit directions e0 and e1 through c: the terms of x and y, and a constant."""
    center = np.array([0.5, -1.0, 2.0, 1.0])
    plane = Plane(center, np.eye(4)[:2])
    axis = grid_axis(5, 2.0)
    path = trajectory([[1, 1, 1, 1], [0, 0, 0, 0]])
    points = Points(quadratic, plane, grid_coordinates(axis), np.zeros(1), [path])
    values = evaluate(points, len(points))
    for row, y in enumerate(axis):
        for column, x in enumerate(axis):
            closed = (0.5 + x) ** 2 / 2 + 3 * (-1 + y) ** 2 / 2 + 0.5 * 4 / 2 + 2 * 1 / 2
            assert values[5 * row + column] == pytest.approx(closed, rel=1e-6)
    assert values[25:].tolist() == [SCALES.sum() / 2, 0.0]
    with pytest.raises(IndexError):
        points(27)


def test_the_landscape_of_a_round_bowl_is_the_same_in_every_orthonormal_plane():
    center = np.random.default_rng(0).standard_normal(30)
    places = grid_coordinates(grid_axis(7, 1.0))
    plane = random_plane(center, seed=4)
    bowl = Points(lambda weights, _: float(weights @ weights), plane, places, np.zeros(0), [])
    slopes = 2 * plane.directions @ center
    closed = center @ center + places @ slopes + (places**2).sum(axis=1)
    assert evaluate(bowl, len(bowl)) == pytest.approx(closed, rel=1e-5)


def test_a_path_is_measured_by_its_projection_and_in_all_dimensions():
    plane = Plane(np.zeros(4), np.eye(4)[:2])
    way = trajectory([[3, 4, 0, 12], [0, 4, 0, 0], [0, 0, 0, 0]])
    found = measure_path(plane, way, np.array([5.0, 2.0, 3.0]), np.array([9.0, 8.0, 7.0]))
    assert (found.x, found.y) == ([3.0, 0.0, 0.0], [4.0, 4.0, 0.0])
    assert found.path_length == pytest.approx(3 + 4)
    assert found.path_length_full == pytest.approx(np.sqrt(153) + 4)
    assert (found.minimum_loss, found.minimum_true_loss) == (2.0, 7.0)
    assert found.explained_share == pytest.approx((9 + 25) / (153 + 169))
    assert found.step_share == pytest.approx((9 + 16) / (153 + 16))


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


def test_two_processes_give_the_bits_of_one(found, trained_paths):
    shared = landscape(
        trained_paths.runs, trained_paths.trajectories, study="paths", grid=3, windows=32, workers=2
    )
    assert replace(shared, grid_s=0, workers=1) == replace(found, grid_s=0)


def test_another_center_and_the_principal_plane_can_be_chosen(trained_paths):
    other = landscape(
        trained_paths.runs, trained_paths.trajectories, center="adam", directions="pca", grid=3,
        windows=16, span=0.5, batch_norm="recomputed",
    )  # fmt: skip
    adam = other.paths["adam"]
    assert (adam.x[adam.solution], adam.y[adam.solution]) == pytest.approx((0, 0), abs=1e-12)
    assert other.axis == [-0.5, 0.0, 0.5]
    assert adam.explained_share > 0.5


def test_what_makes_no_landscape_is_refused(trained_paths):
    runs, ways = trained_paths.runs, trained_paths.trajectories
    with pytest.raises(ConfigError, match='center "mars" is none of the optimizers: adam, afor'):
        landscape(runs, ways, center="mars")
    with pytest.raises(ConfigError, match="each of them once"):
        landscape(runs, [ways[0], ways[0]])
    with pytest.raises(ConfigError, match="a grid of 2 x 2"):
        landscape(runs, ways, grid=2)
    moved = replace(ways[0], weights=ways[0].weights + 1)
    with pytest.raises(ConfigError, match="do not start from the same weights"):
        landscape(runs, [moved, ways[1]])


def test_a_landscape_comes_back_from_its_json(found):
    assert read_landscape(json.loads(landscape_json(found)), "file") == found


def test_a_loss_that_is_not_finite_is_written_as_null(bowl):
    broken = replace(bowl, loss=[[float("inf")] * 5, *bowl.loss[1:]])
    content = json.loads(landscape_json(broken), parse_constant=lambda name: pytest.fail(name))
    assert content["loss"][0] == [None] * 5
    assert np.isnan(read_landscape(content, "file").loss[0]).all()


@pytest.mark.parametrize(
    "change",
    [{"paths": {}}, {"axis": [0.0]}, {"colour": "red"}, {"paths": {"a": {}}}],
)
def test_a_file_that_holds_no_landscape_is_told(bowl, change):
    with pytest.raises(ConfigError, match=r"x\.json does not hold a landscape.*afor landscape"):
        read_landscape({**content_of(bowl), **change}, "x.json")
