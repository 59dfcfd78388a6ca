import numpy as np
import pytest

from afor.bench.data.loading import open_windows
from afor.bench.notebook.trials import as_trials, write_trials

RNG = np.random.default_rng(0)


def classes_of(labels, tmp_path):
    trials = RNG.normal(0, 10, (len(labels), 2, 100))
    subjects = ["a", "b"] * (len(labels) // 2)
    given = as_trials(trials, labels, subjects, rate_hz=100)
    folder = write_trials(given, tmp_path / "trials")
    return open_windows("folder", folder, cache_dir=tmp_path / "cache").class_names


def test_words_of_pandas_are_words(tmp_path):
    pandas = pytest.importorskip("pandas")
    words = ["rest", "move", "move", "rest"]
    assert classes_of(pandas.Series(words, dtype=object), tmp_path) == ("move", "rest")
    assert classes_of(pandas.Categorical(words), tmp_path) == ("move", "rest")
    assert classes_of(np.array(words, dtype=object), tmp_path) == ("move", "rest")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([769, 770, 770, 769], ("769", "770")),
        ([1, 2, 2, 1], ("1", "2")),
        ([9, 10, 10, 9], ("9", "10")),
        ([0, 1, 1, 0], ("0", "1")),
    ],
)
def test_the_classes_are_those_that_occur(labels, names, tmp_path):
    assert classes_of(labels, tmp_path) == names
