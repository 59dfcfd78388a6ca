from itertools import count

import pytest

from afor.bench.analyses.cost.timing import MAX_BLOCK, Effort, Racer, race


def test_every_racer_gets_one_sample_a_round():
    racers = [Racer(name, lambda: None, lambda: None) for name in ("a", "b", "c")]
    race(racers, Effort(block_s=1e-5, rounds=4, budget_s=0.0, max_rounds=4))
    assert [len(racer.samples_us) for racer in racers] == [4, 4, 4]


def test_all_take_turns_within_a_round():
    turns = []
    racers = [Racer(name, lambda: None, lambda n=name: turns.append(n)) for name in ("a", "b")]
    race(racers, Effort(block_s=0.0, rounds=5, budget_s=0.0, max_rounds=5))
    rounds = turns[4:]  # two steps each to warm up
    assert len(rounds) == 10
    assert all(set(rounds[i : i + 2]) == {"a", "b"} for i in range(0, 10, 2))


def test_a_period_is_averaged_so_that_rare_work_counts():
    ticks = count()
    clock_us = iter([0, 0, 1, 1, 1, 2, 2, 2, 12])  # before, between and after each of three steps
    racer = Racer("a", lambda: None, lambda: next(ticks), 3, lambda: 1000 * next(clock_us))
    alone, whole = racer.run(3)
    assert (alone, whole) == (pytest.approx(4.0), pytest.approx(4.0))


def test_a_block_is_never_longer_than_its_limit():
    steps = []
    racer = Racer("a", lambda: None, lambda: steps.append(1))
    race([racer], Effort(block_s=100.0, rounds=1, budget_s=0.0, max_rounds=1))
    assert len(steps) <= MAX_BLOCK + 3
