"""The check before the first fused step on a GPU, on other implementations and on wrong ones."""

from typing import Any

import pytest
import torch

from afor.tensors import Implementation, StepOptions, StepTensors
from afor.triton import self_check
from afor.update import Foreach, ForLoop

CPU = torch.device("cpu")


class Fails(Implementation):
    def __init__(self, *_: object) -> None:
        raise ValueError("no kernel image\nis available")


@pytest.fixture(autouse=True)
def nothing_checked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_passed", set())


@pytest.mark.parametrize("implementation", [Foreach, ForLoop])
def test_right_steps_pass_far_below_the_limit(implementation: type[Foreach | ForLoop]) -> None:
    with torch.no_grad():
        assert self_check.largest_error(implementation, CPU) < self_check.LIMIT / 10
        self_check.check_once(implementation, CPU)
    self_check.check_once(Fails, CPU)  # not called again


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 1.001e-2},
        {"weight_decay": 0.0},
        {"settings": self_check._SETTINGS._replace(beta2_min=0.9901)},
        {"settings": self_check._SETTINGS._replace(direction_decay=0.91)},
    ],
    ids=["rate", "decay", "beta2", "agreement"],
)
def test_a_slightly_wrong_step_is_refused(wrong: dict[str, Any]) -> None:
    def step(tensors: StepTensors, options: StepOptions) -> Implementation:
        return Foreach(tensors, options._replace(**wrong))

    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match=r"gives wrong steps on cpu: they differ .* by"),
    ):
        self_check.check_once(step, CPU)


def test_numbers_that_are_not_finite_are_refused() -> None:
    class Spoils(Implementation):
        def __init__(self, tensors: StepTensors, _: StepOptions) -> None:
            self.tensors = tensors

        def step(self) -> None:
            self.tensors.params[0].fill_(float("nan"))

    with pytest.raises(RuntimeError, match="by nan of a step"):
        self_check.check_once(Spoils, CPU)


def test_a_step_that_fails_is_refused_in_one_sentence() -> None:
    with pytest.raises(RuntimeError) as caught:
        self_check.check_once(Fails, CPU)
    assert str(caught.value) == (
        "`fused=True` does not work on cpu: ValueError: no kernel image. "
        "Nothing was changed; leave `fused` unset to use foreach"
    )


def test_the_check_leaves_the_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    with torch.no_grad():
        self_check.largest_error(Foreach, CPU)
    assert torch.equal(torch.random.get_rng_state(), before)
