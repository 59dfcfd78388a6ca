import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afor.bench.analyses.landscape.plane import (
    Plane,
    filter_plane,
    gram_schmidt,
    make_plane,
    path_length,
    pca_plane,
    random_lengths,
    random_plane,
)
from afor.bench.common.errors import ConfigError

RNG = np.random.default_rng(5)
CENTER = RNG.standard_normal(40)
SHAPES = [(3, 4, 2), (2,), (2, 6), (2,)]  # 24 + 2 + 12 + 2 weights


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 200))
def test_gram_schmidt_gives_orthonormal_directions_of_the_same_span(seed, size):
    raw = np.random.default_rng(seed).standard_normal((2, size))
    found = gram_schmidt(raw)
    assert np.allclose(found @ found.T, np.eye(2), atol=1e-12)
    assert np.allclose(raw @ found.T @ found, raw, atol=1e-9)


def test_directions_that_span_no_plane_are_refused():
    one = np.ones(7)
    for second in (one, -3 * one, 0 * one):
        with pytest.raises(ConfigError, match="Direction 2 lies in the span"):
            gram_schmidt(np.stack([one, second]))
    with pytest.raises(ConfigError, match="another seed"):
        random_plane(np.zeros(1), seed=0)


def test_a_seed_decides_a_random_plane():
    assert np.array_equal(random_plane(CENTER, 3).directions, random_plane(CENTER, 3).directions)
    assert not np.array_equal(
        random_plane(CENTER, 3).directions, random_plane(CENTER, 4).directions
    )


def test_filters_of_a_direction_are_as_long_as_those_of_the_center():
    plane = filter_plane(CENTER, SHAPES, seed=1)
    for direction in plane.directions:
        for start, shape in ((0, (3, 8)), (26, (2, 6))):
            stop = start + shape[0] * shape[1]
            lengths = np.linalg.norm(direction[start:stop].reshape(shape), axis=1)
            own = np.linalg.norm(CENTER[start:stop].reshape(shape), axis=1)
            assert lengths == pytest.approx(own, rel=1e-12)
        assert not direction[24:26].any()  # biases and the scales of batch norm do not move
        assert not direction[38:].any()


@pytest.mark.parametrize("kind", ["random", "filter", "pca"])
def test_points_of_the_plane_have_the_coordinates_they_were_made_from(kind):
    plane = make_plane(kind, CENTER, RNG.standard_normal((6, 40)), SHAPES, seed=2)
    places = np.array([[0.0, 0.0], [1.5, -2.0], [-0.25, 4.0]])
    assert plane.coordinates(plane.at(places)) == pytest.approx(places, abs=1e-12)
    assert np.array_equal(plane.at(np.zeros(2)), CENTER)


@pytest.mark.parametrize("kind", ["random", "filter", "pca"])
def test_a_projection_is_the_nearest_point_of_the_plane(kind):
    plane = make_plane(kind, CENTER, RNG.standard_normal((6, 40)), SHAPES, seed=2)
    point = RNG.standard_normal((1, 40))
    rest = point - plane.at(plane.coordinates(point))
    assert plane.directions @ rest[0] == pytest.approx([0.0, 0.0], abs=1e-12)


def test_the_principal_plane_of_a_planar_path_keeps_all_of_it():
    basis = gram_schmidt(RNG.standard_normal((2, 40)))
    path = CENTER + RNG.standard_normal((9, 2)) @ basis
    path[-1] = CENTER
    plane = pca_plane(CENTER, path)
    assert plane.explained_share(path) == pytest.approx(1.0, abs=1e-12)
    assert plane.step_share(path) == pytest.approx(1.0, abs=1e-12)
    assert plane.path_length(path) == pytest.approx(path_length(path), rel=1e-12)
    assert (plane.coordinates(path)[0] >= 0).all()  # signs are fixed by the start


def test_no_plane_keeps_more_than_the_principal_one():
    path = CENTER + RNG.standard_normal((5, 40)).cumsum(axis=0)
    best = pca_plane(CENTER, path)
    kept = [np.linalg.norm(best.coordinates(path))]
    kept += [np.linalg.norm(random_plane(CENTER, seed).coordinates(path)) for seed in range(20)]
    assert kept[0] == max(kept)


def test_a_straight_path_has_no_principal_plane():
    path = CENTER + np.outer(np.arange(5), np.ones(40))
    with pytest.raises(ConfigError, match="lie on a line"):
        pca_plane(CENTER, path)
    with pytest.raises(ConfigError, match="lie on a line"):
        pca_plane(CENTER, CENTER[None] + 1)


def test_the_share_of_a_constructed_path_is_known():
    plane = Plane(np.zeros(3), np.eye(3)[:2])
    # Displacements (3, 0, 0) and (3, 4, 12): 9 + 25 of 9 + 169 squared lie in the plane.
    path = np.array([[1.0, 1.0, 1.0], [4.0, 1.0, 1.0], [4.0, 5.0, 13.0]])
    assert plane.explained_share(path) == pytest.approx((9 + 25) / (9 + 169))
    assert plane.step_share(path) == pytest.approx((9 + 16) / (9 + 160))
    assert plane.path_length(path) == pytest.approx(3 + 4)
    assert path_length(path) == pytest.approx(3 + np.sqrt(160))
    assert np.isnan(plane.explained_share(np.ones((2, 3))))  # it never moved


def test_lengths_in_the_plane_do_not_depend_on_the_scale_of_the_directions():
    path = RNG.standard_normal((6, 40))
    one = random_plane(CENTER, 0)
    skewed = Plane(CENTER, np.array([[7.0, 0.0], [1.0, 0.5]]) @ one.directions)
    assert skewed.path_length(path) == pytest.approx(one.path_length(path), rel=1e-9)
    assert skewed.explained_share(path) == pytest.approx(one.explained_share(path), rel=1e-9)


def test_random_directions_keep_two_of_n_on_average():
    size = 200
    path = np.random.default_rng(0).standard_normal((2, size))
    shares = [random_plane(np.zeros(size), seed).explained_share(path) for seed in range(400)]
    # A share of 2 in 200 dimensions: mean 0.01, SD close to 0.01, so 0.0005 for the mean of 400.
    assert np.mean(shares) == pytest.approx(2 / size, abs=0.0025)


def test_lengths_over_many_planes_are_those_of_the_planes():
    step = np.zeros((2, 300))
    step[1, 7] = 5.0
    back = np.concatenate([step, step[:1]])
    lengths = random_lengths([step, back], seed=1, planes=300)
    assert lengths[1] == pytest.approx(2 * lengths[0])  # both paths meet the same planes
    # The squared share of a step is Beta(1, (n - 2) / 2): its mean is 2 / n.
    assert np.mean((lengths[0] / 5) ** 2) == pytest.approx(2 / 300, rel=0.2)
    assert np.array_equal(lengths, random_lengths([step, back], seed=1, planes=300))
