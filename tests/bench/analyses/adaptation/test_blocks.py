from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from afor.bench.analyses.adaptation.shift import blocked, shuffled
from afor.bench.common.errors import ConfigError


@pytest.fixture
def side():
    """Return five subjects of ten windows each, numbered through."""
    return SimpleNamespace(indices=np.arange(100, 150), subject_codes=np.repeat(range(5), 10))


def subjects(batch):
    return set(((batch - 100) // 10).tolist())


def test_a_block_holds_one_subject_and_the_next_one_another(side) -> None:
    made = blocked(side, 4, 0, batches_per_block=5, blocks=6)
    starts = [0, *made.changes]
    assert starts == list(range(0, len(made.batches), 5))
    present = [set().union(*map(subjects, made.batches[s : s + 5])) for s in starts]
    assert all(len(block) == 1 for block in present)
    assert all(a != b for a, b in pairwise(present))
    for first, following in zip(made.rounds, (*made.rounds[1:], len(made.batches)), strict=True):
        assert len(set().union(*present[first // 5 : following // 5])) == 5


def test_no_window_comes_twice_before_all_had_their_turn(side) -> None:
    made = blocked(side, 5, 0, batches_per_block=4, blocks=1)
    for start in range(0, len(made.batches), 4):
        first = np.concatenate(made.batches[start : start + 2])
        assert len(set(first.tolist())) == 10


def test_shuffling_keeps_windows_sizes_and_steps_of_every_round(side) -> None:
    made = blocked(side, 4, 0, batches_per_block=5, blocks=3)
    dealt = shuffled(made, 1)
    assert (dealt.changes, dealt.rounds) == (made.changes, made.rounds)
    assert [len(b) for b in dealt.batches] == [len(b) for b in made.batches]
    for start, end in zip(made.rounds, (*made.rounds[1:], len(made.batches)), strict=True):
        whole = [np.sort(np.concatenate(m.batches[start:end])) for m in (made, dealt)]
        np.testing.assert_array_equal(*whole)
    assert np.mean([len(subjects(batch)) for batch in dealt.batches]) > 2


def test_the_same_seed_gives_the_same_batches(side) -> None:
    one, two, other = (blocked(side, 4, seed, blocks=2) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one.batches, two.batches, strict=True))
    assert any((a != b).any() for a, b in zip(one.batches, other.batches, strict=True))


def test_what_cannot_be_blocked_is_told(side) -> None:
    alone = SimpleNamespace(indices=np.arange(9), subject_codes=np.zeros(9, dtype=np.int64))
    with pytest.raises(ConfigError, match="two or more training subjects"):
        blocked(alone, 4, 0)
    with pytest.raises(ConfigError, match="at least one batch"):
        blocked(side, 4, 0, blocks=0)
    lonely = SimpleNamespace(indices=np.arange(2), subject_codes=np.arange(2))
    with pytest.raises(ConfigError, match="single window"):
        blocked(lonely, 4, 0)
