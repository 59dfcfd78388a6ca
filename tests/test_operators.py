"""How many operators a foreach step takes, so that they cannot creep up: a launch each on a GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from afor import AFOR

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")


class Count(TorchDispatchMode):
    """Counts the operators that compute; views cost no launch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        returns = func._schema.returns
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        if not is_view:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operators(tensors: int, size: int = 7, **options: object) -> list[str]:
    params = [torch.nn.Parameter(torch.randn(size, 2)) for _ in range(tensors)]
    optimizer = AFOR(params, foreach=True, **options)  # type: ignore[arg-type]
    for p in params:
        p.grad = torch.randn(size, 2)
    optimizer.step()
    with Count() as count:
        optimizer.step()
    return count.names


def test_the_number_of_operators_does_not_depend_on_the_number_of_tensors() -> None:
    assert operators(2) == operators(50)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 69),
        ({"weight_decay": 0.0}, 68),
        ({"lr": torch.tensor(1e-3), "weight_decay": 0.0}, 70),
    ],
    ids=["default", "no weight decay", "tensor lr"],
)
def test_a_step_takes_no_more_operators_than_now(options, most) -> None:
    assert len(operators(12, **options)) <= most


def test_nothing_is_read_back_to_the_host() -> None:
    assert not [name for name in operators(12) if "_local_scalar_dense" in name]
