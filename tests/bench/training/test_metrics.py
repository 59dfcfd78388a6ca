import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afor.bench.training.metrics import measure, measure_trials, measure_windows, vote


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


@pytest.mark.parametrize("classes", [2, 3, 5])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 60), digits=st.integers(0, 3))
def test_auroc_is_that_of_scikit_learn_with_and_without_ties(classes, seed, n, digits) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.r_[np.arange(classes), rng.integers(classes, size=n)])
    logits = rng.normal(size=(len(labels), classes)).round(digits)
    shifted = logits - logits.max(axis=1, keepdims=True)
    if classes == 2:
        expected = sklearn.roc_auc_score(labels, shifted[:, 1] - shifted[:, 0])
    else:
        scores = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        areas = [sklearn.roc_auc_score(labels == k, scores[:, k]) for k in range(classes)]
        expected = np.mean(areas)  # one class against the rest, macro
    assert measure_windows(logits, labels).auroc == pytest.approx(expected, abs=1e-9)


def test_auroc_of_hand_worked_cases() -> None:
    labels, right = np.array([0, 0, 1, 1]), np.array([[2.0, 0], [1, 0], [0, 1], [0, 2]])
    assert measure_windows(right, labels).auroc == 1.0
    assert measure_windows(-right, labels).auroc == 0.0
    assert measure_windows(np.zeros((4, 2)), labels).auroc == 0.5  # all tied
    assert measure_windows(1e4 * right, labels).auroc == 1.0  # probabilities of 1 to the last bit
    assert measure_windows(right, np.zeros(4, dtype=np.int64)).auroc is None  # one class
    assert measure(labels, labels, 2).auroc is None  # no logits


def test_a_trial_is_decided_by_the_mean_of_its_logits() -> None:
    # Two of three windows of trial 7 say class 0, but the third says class 1 louder.
    logits = np.array([[1.0, 0.0], [0.0, 9.0], [1.0, 0.0], [2.0, 1.0]], dtype=np.float32)
    labels, guesses, _ = vote(logits, np.array([1, 1, 1, 0]), np.array([7, 7, 7, 3]))
    assert labels.tolist() == [0, 1]
    assert guesses.tolist() == [0, 1]


def test_the_metrics_of_probabilities_of_a_hand_worked_case() -> None:
    # Confidences 0.8, 0.6, 0.6: right, wrong, right. The last two share a bin of width 1/15.
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.6, 0.4]])
    found = measure_windows(np.log(probabilities) + 5.0, np.array([0, 0, 0]))
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.nll == pytest.approx(-(np.log(0.8) + np.log(0.4) + np.log(0.6)) / 3)
    assert found.brier == pytest.approx((2 * 0.2**2 + 2 * 0.6**2 + 2 * 0.4**2) / 3)
    assert found.calibration_error == pytest.approx((abs(1 - 0.8) + abs(1 - 0.6 - 0.6)) / 3)


def test_logits_of_any_size_have_a_finite_likelihood_and_none_are_no_metric() -> None:
    found = measure_windows(np.array([[1e4, -1e4], [-1e4, 1e4]], np.float32), np.array([0, 0]))
    assert found.nll == pytest.approx(1e4)
    assert found.brier == pytest.approx(1.0)
    assert measure(np.array([0, 1]), np.array([0, 1]), 2).nll is None


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 5))
def test_likelihood_and_brier_score_are_those_of_scikit_learn(seed: int, classes: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(40, classes)), rng.integers(classes, size=40)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = measure_windows(logits, labels)
    assert found.nll == pytest.approx(
        sklearn.log_loss(labels, probabilities, labels=range(classes))
    )
    truth = np.eye(classes)[labels]
    assert found.brier == pytest.approx(((probabilities - truth) ** 2).sum(axis=1).mean())


def test_a_trial_has_the_probabilities_of_its_mean_logits() -> None:
    logits = np.array([[1.0, 0.0], [0.0, 9.0], [1.0, 0.0], [2.0, 1.0]], dtype=np.float32)
    found = measure_trials(logits, np.array([1, 1, 1, 0]), np.array([7, 7, 7, 3]))
    mean = np.array([[2.0, 1.0], [2 / 3, 3.0]])
    assert found.nll == pytest.approx(measure_windows(mean, np.array([0, 1])).nll)
    assert found.n == 2
