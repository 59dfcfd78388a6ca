import numpy as np
import pytest

from afor.bench.common.errors import DataError
from afor.bench.data.window_source import ArrayWindows


def test_statistics_are_those_of_the_subjects_asked_for() -> None:
    windows = np.stack([np.full((2, 4), 1.0), np.full((2, 4), 3.0), np.full((2, 4), 100.0)])
    source = ArrayWindows(windows, [0, 1, 0], ["a", "b", "c"])
    mean, deviation = source.channel_statistics(["a", "b"])
    assert mean.tolist() == [2.0, 2.0]
    assert deviation.tolist() == [1.0, 1.0]


def test_gather_returns_a_copy_in_the_order_asked_for() -> None:
    source = ArrayWindows(np.arange(6).reshape(3, 1, 2), [0, 1, 0], ["b", "a", "b"])
    gathered = source.gather(np.array([2, 0]))
    assert gathered.tolist() == [[[4.0, 5.0]], [[0.0, 1.0]]]
    gathered[:] = -1
    assert source.gather(np.array([0])).tolist() == [[[0.0, 1.0]]]
    assert source.subjects == ("a", "b")
    assert source.subject_codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("windows", "labels", "subjects"),
    [
        (np.zeros((2, 3)), [0, 1], ["a", "b"]),
        (np.zeros((2, 3, 4)), [0], ["a", "b"]),
        (np.zeros((2, 3, 4)), [0, 1], ["a"]),
        (np.zeros((0, 3, 4)), [], []),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_their_shapes(windows, labels, subjects) -> None:
    with pytest.raises(DataError, match=r"windows have shape \("):
        ArrayWindows(windows, labels, subjects)


def test_negative_labels_are_refused() -> None:
    with pytest.raises(DataError, match="the lowest is -1"):
        ArrayWindows(np.zeros((1, 1, 1)), [-1], ["a"])
