import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from afor.bench.analyses.cost.flop_counter import FlopCounter
from afor.bench.optimizers.build import build_optimizer


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


SHAPES = [(7, 11), (3, 5, 4), (13,), (1,)]
LOOP = {"foreach": False, "fused": False}


def warmed_up(name, weight_decay, **settings):
    torch.manual_seed(0)
    model = torch.nn.ParameterList(torch.randn(shape) for shape in SHAPES)
    optimizer = build_optimizer(name, model, 1e-3, weight_decay, **settings)
    for param in model:
        param.grad = torch.randn_like(param)
    for _ in range(10):  # RAdam rectifies from its sixth step on
        optimizer.step()
    return optimizer


def counted_step(name, weight_decay, **settings):
    optimizer = warmed_up(name, weight_decay, **settings)
    with FlopCounter() as counter:
        optimizer.step()
    assert all(name.startswith("_record_function") for name in counter.unknown)
    return counter.total


@pytest.mark.parametrize(
    ("name", "per_element", "per_tensor"),
    [("adam", 15, 1), ("adamw", 14, 1), ("radam", 18, 1), ("sophia", 13, 0), ("mars", 20, 1),
     ("afor", 26, 46)],
)  # fmt: skip
def test_a_step_counts_what_its_lines_do_by_hand(name, per_element, per_tensor):
    elements, tensors = sum(map(math.prod, SHAPES)), len(SHAPES)
    settings = LOOP if name == "afor" else {}
    found = counted_step(name, 1e-4, **settings)
    assert found == per_element * elements + per_tensor * tensors


def test_adamp_projects_only_matrices():
    matrices = [shape for shape in SHAPES if len(shape) > 1]
    elements, rows = sum(map(math.prod, matrices)), sum(shape[0] for shape in matrices)
    plain = 14 * sum(map(math.prod, SHAPES))
    by_row, by_tensor = 8 * elements + 3 * rows, 8 * elements + 3 * len(matrices)
    assert counted_step("adamp", 1e-4, delta=0.0) == plain + by_row + by_tensor
    assert counted_step("adamp", 1e-4, delta=1e9) == plain + by_row + 7 * elements
