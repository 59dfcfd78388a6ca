"""The written formulas against a counter that watches the real steps."""

import pytest
import torch

from afor.bench.analyses.cost.flop_counter import FlopCounter
from afor.bench.analyses.cost.flops import OPERATIONS, SOPHIA_CURVATURE, formula
from afor.bench.optimizers.build import build_optimizer
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS

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


def counted(name, weight_decay, **settings):
    optimizer = warmed_up(name, weight_decay, **settings)
    with FlopCounter() as counter:
        optimizer.step()
    assert all(name.startswith("_record_function") for name in counter.unknown)
    return counter.total


def written(name, *conditions):
    """Add up tensor by tensor: conditions on matrices hold for matrices alone."""
    rest = [c for c in conditions if c == "decay"]
    return sum(
        formula(name, conditions if len(shape) > 1 else rest).of([shape]) for shape in SHAPES
    )


@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
@pytest.mark.parametrize("name", ["adam", "adamw", "radam", "sophia", "mars", "afor"])
def test_the_formula_is_what_the_step_does(name, weight_decay):
    settings = LOOP if name == "afor" else {}
    conditions = ["decay"] if weight_decay else []
    assert counted(name, weight_decay, **settings) == written(name, *conditions)


def test_adamp_without_a_projection():
    assert counted("adamp", 1e-4, delta=0.0) == written("adamp", "decay", "matrix")


def test_adamp_that_projects_every_channel():
    both = written("adamp", "decay", "matrix", "projected")
    matrices = [shape for shape in SHAPES if len(shape) > 1]
    second_test = sum(8 * torch.Size(shape).numel() + 3 for shape in matrices)
    assert counted("adamp", 1e-4, delta=1e9) == both - second_test


def test_sophias_curvature():
    optimizer = warmed_up("sophia", 0.0)
    hessian = next(iter(optimizer.state.values()))["hessian"]
    with FlopCounter() as counter:
        hessian.mul_(0.99).addcmul_(hessian, hessian, value=0.32)
    assert counter.total == SOPHIA_CURVATURE * hessian.numel()


def test_all_seven_are_written_down_and_read_as_formulas():
    assert tuple(OPERATIONS) == PAPER_OPTIMIZERS
    assert {name: str(formula(name)) for name in ("adam", "adamw", "afor")} == {
        "adam": "15n+9k",
        "adamw": "14n+11k",
        "afor": "26n+49k",
    }
    assert formula("mylab:Mine") is None


def test_afor_adds_eleven_operations_per_parameter_to_adam():
    assert formula("afor").element - formula("adam").element == 11
