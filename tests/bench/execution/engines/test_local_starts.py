import pytest

from afor.bench.execution.engines.local import (
    GIVE_UP_AFTER_S,
    LONGEST_PAUSE_S,
    WorkerStarts,
)


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def starts(clock):
    return WorkerStarts(clock)


def test_workers_may_start_at_once_as_long_as_none_was_killed(starts):
    assert starts.pause_s() == 0.0
    starts.ended_early(was_killed=False)
    assert starts.pause_s() == 0.0
    assert starts.verdict() == ""


def test_five_workers_in_a_row_that_end_by_themselves_are_the_end(starts):
    for _ in range(4):
        starts.ended_early(was_killed=False)
        assert starts.verdict() == ""
    starts.ended_early(was_killed=False)
    assert "5 workers in a row ended before their first run" in starts.verdict()


def test_a_run_that_begins_clears_what_was_counted(starts, clock):
    for _ in range(4):
        starts.ended_early(was_killed=False)
    starts.ended_early(was_killed=True)
    starts.began_run()
    assert starts.pause_s() == 0.0
    starts.ended_early(was_killed=False)
    assert starts.verdict() == ""
    clock.now += 2 * GIVE_UP_AFTER_S  # a long study: the time that counts begins anew
    starts.began_run()
    starts.ended_early(was_killed=True)
    assert starts.verdict() == ""


def test_the_pause_after_killed_workers_doubles_up_to_its_limit_and_passes(starts, clock):
    pauses = []
    for _ in range(60):
        starts.ended_early(was_killed=True)
        pauses.append(starts.pause_s())
        clock.now += pauses[-1]
        assert starts.pause_s() == 0.0
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S)
    assert starts.verdict() == ""  # sixty kills, and still hope


def test_only_a_long_time_of_killed_workers_is_the_end(starts, clock):
    starts.ended_early(was_killed=True)
    clock.now += GIVE_UP_AFTER_S - 1
    starts.ended_early(was_killed=True)
    assert starts.verdict() == ""
    clock.now += 1
    starts.ended_early(was_killed=True)
    assert "3 workers in a row were killed before their first run, for 10 min" in starts.verdict()
