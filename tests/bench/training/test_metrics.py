import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afor.bench.training.metrics import measure, vote


def test_a_hand_worked_case() -> None:
    # truth 0 0 0 1, prediction 0 0 1 1: F1 are 4/5 and 2/3, chance is (3*2 + 1*2)/16 = 1/2.
    found = measure(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), 2)
    assert found.accuracy == 0.75
    assert found.weighted_f1 == pytest.approx((3 * 4 / 5 + 2 / 3) / 4)
    assert found.macro_f1 == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert found.balanced_accuracy == pytest.approx((2 / 3 + 1) / 2)
    assert found.kappa == pytest.approx(0.5)
    assert found.confusion == ((2, 1), (0, 1))
    assert found.n == 4


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=100, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60),
)
def test_the_measures_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    truth, guess = (np.array(column) for column in zip(*pairs, strict=True))
    found = measure(truth, guess, 5)
    assert found.accuracy == pytest.approx(sklearn.accuracy_score(truth, guess))
    assert found.weighted_f1 == pytest.approx(
        sklearn.f1_score(truth, guess, average="weighted", zero_division=0)
    )
    assert found.macro_f1 == pytest.approx(
        sklearn.f1_score(truth, guess, average="macro", zero_division=0)
    )
    assert found.balanced_accuracy == pytest.approx(sklearn.balanced_accuracy_score(truth, guess))
    kappa = sklearn.cohen_kappa_score(truth, guess)
    assert found.kappa == pytest.approx(0.0 if np.isnan(kappa) else kappa)
    matrix = sklearn.confusion_matrix(truth, guess, labels=range(5))
    assert found.confusion == tuple(map(tuple, matrix.tolist()))


def test_a_trial_is_decided_by_the_mean_of_its_logits() -> None:
    # Two of three windows of trial 7 say class 0, but the third says class 1 louder.
    logits = np.array([[1.0, 0.0], [0.0, 9.0], [1.0, 0.0], [2.0, 1.0]], dtype=np.float32)
    labels, guesses = vote(logits, np.array([1, 1, 1, 0]), np.array([7, 7, 7, 3]))
    assert labels.tolist() == [0, 1]
    assert guesses.tolist() == [0, 1]
