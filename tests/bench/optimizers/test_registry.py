import subprocess
import sys

import pytest
import torch

from afor.bench.optimizers.build import build_optimizer
from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS


def test_the_seven_of_the_paper_stand_in_its_order() -> None:
    assert PAPER_OPTIMIZERS == ("adam", "adamw", "radam", "adamp", "sophia", "mars", "afor")


def test_all_rows_of_the_ablation_table_have_an_entry() -> None:
    assert {name for name, entry in OPTIMIZERS.items() if entry.section == "ablation"} == {
        "afor_no_dc",
        "afor_no_fc",
        "afor_no_srn",
        "afor_no_tsg",
        "afor_no_ec",
        "afor_fixed_099",
        "afor_fixed_0999",
    }


@pytest.mark.parametrize("name", [n for n in PAPER_OPTIMIZERS if n != "sophia"])
def test_the_adam_family_shares_the_papers_betas_and_epsilon(name: str) -> None:
    settings = OPTIMIZERS[name].settings
    assert settings["betas"] == (0.9, 0.999)
    assert settings["eps"] == 1e-8


def test_sophia_has_its_published_defaults() -> None:
    assert OPTIMIZERS["sophia"].settings == {"betas": (0.965, 0.99), "rho": 0.04, "interval": 10}


def test_each_variant_differs_from_its_base_in_something() -> None:
    for entry in OPTIMIZERS.values():
        if entry.variant_of:
            assert entry.settings != OPTIMIZERS[entry.variant_of].settings, entry.name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_entry_builds_and_takes_a_step(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    before = model.weight.detach().clone()
    optimizer = build_optimizer(name, model, lr=1e-2, weight_decay=1e-4)
    model(torch.randn(4, 5)).square().sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 1e-2
    assert optimizer.param_groups[0]["weight_decay"] == 1e-4
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weight_decay_is_coupled_exactly_where_the_table_says_so(name: str) -> None:
    # With a zero gradient, decoupled decay scales the weight by 1 - lr * decay; coupled decay
    # enters the moments and moves it by about lr instead.
    weight = torch.nn.Module()
    weight.register_parameter("p", torch.nn.Parameter(torch.full((2, 2), 2.0)))
    optimizer = build_optimizer(name, weight, lr=0.1, weight_decay=0.5)
    for _ in range(8):  # RAdam divides by the second moment from its sixth step on
        weight.p.grad = torch.zeros(2, 2)
        optimizer.step()
    lr, decay = 0.1, 0.5
    if name == "adamp":
        decay *= 0.1  # a zero gradient is orthogonal to any weight, so wd_ratio applies
    decoupled = torch.allclose(weight.p, torch.full((2, 2), 2.0 * (1 - lr * decay) ** 8))
    assert decoupled is (OPTIMIZERS[name].decay == "decoupled")


def test_the_table_is_read_without_importing_torch() -> None:
    code = "import sys, afor.bench.optimizers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
