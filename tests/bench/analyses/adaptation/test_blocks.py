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


@pytest.mark.parametrize("per_block", [1, 2])
def test_a_block_holds_its_subjects_and_the_next_one_others(side, per_block) -> None:
    made = blocked(side, 4, 0, subjects_per_block=per_block, batches_per_block=5, rounds=6)
    starts = [0, *made.changes]
    assert starts == list(range(0, len(made.batches), 5))
    present = [set().union(*map(subjects, made.batches[s : s + 5])) for s in starts]
    assert all(len(block) == per_block for block in present)
    assert not any(a & b for a, b in pairwise(present))
    for first, following in zip(made.rounds, (*made.rounds[1:], len(made.batches)), strict=True):
        in_round = present[first // 5 : following // 5]
        assert sum(map(len, in_round)) == len(set().union(*in_round)) == 5 // per_block * per_block


def test_no_window_comes_twice_before_all_had_their_turn(side) -> None:
    made = blocked(side, 5, 0, batches_per_block=4, rounds=1)
    for start in range(0, len(made.batches), 4):
        first = np.concatenate(made.batches[start : start + 2])
        assert len(set(first.tolist())) == 10


def test_shuffling_keeps_windows_sizes_and_steps_of_every_round(side) -> None:
    made = blocked(side, 4, 0, batches_per_block=5, rounds=3)
    dealt = shuffled(made, 1)
    assert (dealt.changes, dealt.rounds) == (made.changes, made.rounds)
    assert [len(b) for b in dealt.batches] == [len(b) for b in made.batches]
    for start, end in zip(made.rounds, (*made.rounds[1:], len(made.batches)), strict=True):
        whole = [np.sort(np.concatenate(m.batches[start:end])) for m in (made, dealt)]
        np.testing.assert_array_equal(*whole)
    assert np.mean([len(subjects(batch)) for batch in dealt.batches]) > 2


def test_the_same_seed_gives_the_same_batches(side) -> None:
    one, two, other = (blocked(side, 4, seed, rounds=2) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one.batches, two.batches, strict=True))
    assert any((a != b).any() for a, b in zip(one.batches, other.batches, strict=True))


def test_what_cannot_be_blocked_is_told(side) -> None:
    with pytest.raises(ConfigError, match="at most 2 fit"):
        blocked(side, 4, 0, subjects_per_block=3)
    with pytest.raises(ConfigError, match="at least one subject"):
        blocked(side, 4, 0, rounds=0)
    lonely = SimpleNamespace(indices=np.arange(2), subject_codes=np.arange(2))
    with pytest.raises(ConfigError, match="single window"):
        blocked(lonely, 4, 0)
