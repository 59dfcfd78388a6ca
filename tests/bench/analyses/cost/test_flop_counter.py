import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from afor.bench.analyses.cost.flop_counter import FlopCounter


def counted(work):
    with FlopCounter() as counter:
        work()
    return counter


@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (lambda x: x + x, 10),
        (lambda x: x.add(x, alpha=2.0), 20),
        (lambda x: x.add(x, alpha=-1.0), 10),
        (lambda x: x.lerp(x, 0.1), 30),
        (lambda x: x.addcmul(x, x), 20),
        (lambda x: x.addcdiv(x, x, value=-0.5), 30),
        (lambda x: x.clamp(-1.0, 1.0), 20),
        (lambda x: x.clamp(max=1.0), 10),
        (lambda x: x.sum(), 9),
        (lambda x: x.view(2, 5).sum(dim=1), 8),
        (lambda x: x.mean(), 10),
        (lambda x: x.dot(x), 19),
        (lambda x: x.norm(), 20),
        (lambda x: x.max(), 9),
        (lambda x: x.view(2, 5).max(dim=1), 8),
        (lambda x: x.double().clone().view(5, 2).t(), 0),
        (lambda x: torch._foreach_mul([x, x[:4]], 2.0), 14),
        (lambda x: torch._foreach_lerp_([x.clone()], [x], 0.5), 30),
    ],
)
def test_an_operator_counts_what_it_does_by_hand(work, operations):
    x = torch.ones(10)
    counter = counted(lambda: work(x))
    assert counter.total == operations
    assert not counter.unknown


def test_an_operator_without_a_rule_is_named():
    counter = counted(lambda: torch.ones(3).cumsum(0))
    assert counter.unknown == {"cumsum"}
    assert counter.total == 0


def test_a_scalar_product_is_what_torch_counts_for_the_same_matrix_product():
    a, b = torch.ones(1, 50), torch.ones(50, 1)
    with FlopCounterMode(display=False) as torchs:
        a @ b
    ours = counted(lambda: a.flatten().dot(b.flatten())).total
    assert torchs.get_total_flops() == ours + 1  # torch counts the first addition, to zero
