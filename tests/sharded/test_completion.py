"""Ranks that disagree on which tensors have a gradient are told so, on accelerators without a wait.

What several real ranks do is in test_sharded.py.
"""

from typing import Any

import pytest
import torch

from afor.sharded import completion
from afor.sharded.completion import Attendance, ShardedTensor

WEIGHT, BIAS = (
    ShardedTensor("weight", ranks=4, here=True),
    ShardedTensor("bias", ranks=2, here=False),
)


@pytest.mark.parametrize("counts", [[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
def test_ranks_that_agree_are_left_in_peace(counts) -> None:
    Attendance().check(torch.tensor(counts), [WEIGHT, BIAS])


def test_a_tensor_with_a_gradient_on_some_ranks_is_named() -> None:
    words = r"some ranks only: weight, on 3 of 4 ranks, this one included; every rank must"
    with pytest.raises(RuntimeError, match=words):
        Attendance().check(torch.tensor([3.0, 2.0]), [WEIGHT, BIAS])


def test_a_rank_without_the_gradient_learns_that_it_is_the_one() -> None:
    with pytest.raises(RuntimeError, match="bias, on 1 of 2 ranks, not on this one"):
        Attendance().check(torch.tensor([4.0, 1.0]), [WEIGHT, BIAS])


def test_several_tensors_make_one_sentence() -> None:
    with pytest.raises(RuntimeError, match="weight and 1 more, on 1 of 4 ranks") as caught:
        Attendance().check(torch.tensor([1.0, 1.0]), [WEIGHT, BIAS])
    assert "\n" not in str(caught.value)


class Copy:
    """A copy from an accelerator that is on its way until told otherwise."""

    def __init__(self) -> None:
        self.arrived = False

    def query(self) -> bool:
        return self.arrived


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Copy]:
    """Let tensors on the meta device stand for those on an accelerator."""
    made: list[Copy] = []
    values = iter([[4.0, 2.0], [4.0, 1.0]])

    def send(counts: torch.Tensor) -> tuple[Any, torch.Tensor]:
        made.append(Copy())
        return made[-1], torch.tensor(next(values))

    monkeypatch.setattr(completion, "_send_to_host", send)
    return made


def test_counts_on_an_accelerator_are_judged_in_a_later_step(copies) -> None:
    attendance = Attendance()
    for _ in range(2):
        attendance.check_arrived()
        attendance.check(torch.empty(2, device="meta"), [WEIGHT, BIAS])
    attendance.check_arrived()  # nothing has arrived, and nobody waits
    copies[0].arrived = True
    attendance.check_arrived()  # the first step was in order
    copies[1].arrived = True
    with pytest.raises(RuntimeError, match="bias, on 1 of 2 ranks"):
        attendance.check_arrived()
    attendance.check_arrived()  # said once
