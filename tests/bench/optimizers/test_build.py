import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import (
    AfterStep,
    TwoModes,
    accepted_settings,
    build_optimizer,
    check_optimizer,
    full_settings,
)
from afor.bench.optimizers.registry import OPTIMIZERS


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(4, 2)


def test_settings_of_the_study_go_on_top_of_the_table(model: nn.Module) -> None:
    optimizer = build_optimizer("mars", model, 1e-3, 1e-4, gamma=0.05)
    assert optimizer.defaults["gamma"] == 0.05
    assert optimizer.defaults["betas"] == (0.9, 0.999)


def test_lists_from_a_settings_file_become_tuples() -> None:
    assert full_settings("adam", {"betas": [0.8, 0.9]})["betas"] == (0.8, 0.9)


def test_any_class_that_can_be_imported_is_accepted(model: nn.Module) -> None:
    optimizer = build_optimizer("torch.optim:NAdam", model, 1e-3, 1e-4, momentum_decay=0.01)
    assert isinstance(optimizer, torch.optim.NAdam)
    assert optimizer.defaults["momentum_decay"] == 0.01


@pytest.fixture
def write_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that writes a module with an optimizer `Mine` of these arguments."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(module: str, arguments: str) -> None:
        (tmp_path / f"{module}.py").write_text(
            "import torch\n"
            "class Mine(torch.optim.SGD):\n"
            f"    def __init__(self, params, lr, momentum=0.0, {arguments}):\n"
            "        super().__init__(params, lr=lr, momentum=momentum)\n"
        )

    return write


def test_a_class_of_the_user_is_found_by_its_module(
    model: nn.Module, write_optimizer: Callable[[str, str], None]
) -> None:
    write_optimizer("labs_own_optim", "weight_decay=0.0")
    optimizer = build_optimizer("labs_own_optim:Mine", model, 1e-3, 0.0, momentum=0.9)
    assert type(optimizer).__name__ == "Mine"
    sys.modules.pop("labs_own_optim")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_class_of_pytorch_optimizer_is_accepted(model: nn.Module) -> None:
    pytest.importorskip("pytorch_optimizer")
    optimizer = build_optimizer("pytorch_optimizer:Lion", model, 1e-3, 1e-4, betas=[0.9, 0.98])
    assert optimizer.defaults["betas"] == (0.9, 0.98)
    assert optimizer.defaults["weight_decay"] == 1e-4
    with pytest.raises(ConfigError, match=r'no setting "beta". Did you mean "betas"'):
        check_optimizer("pytorch_optimizer:Lion", {"beta": 0.9})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("adm", {}, 'optimizer "adm" is not known. Did you mean "adam"'),
        ("mars", {"gama": 0.1}, 'no setting "gama". Did you mean "gamma"'),
        ("mars", {"gamma": -1}, "gamma = -1 is not valid: .* greater than or equal to 0"),
        ("adam", {"betas": [0.9, 2.0]}, "refuses its settings: .*beta"),
        ("adam", {"lr": 0.1}, "lr is set by the study"),
        ("adam", {"weight_decay": 0.1}, "weight_decay is set by the study"),
        ("sophia", {"seed": 3}, "seed is set by the study"),
        ("no_such_module:Adam", {}, 'module "no_such_module" cannot be imported'),
        ("torch.optim:AdamWW", {}, 'no optimizer class "AdamWW". Did you mean "AdamW"'),
        ("torch.nn:Linear", {}, 'no optimizer class "Linear"'),
        ("torch.optim:LBFGS", {}, "needs a closure"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    name: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_optimizer(name, settings)


def test_weight_decay_is_never_accepted_and_ignored(model: nn.Module) -> None:
    with pytest.raises(ConfigError, match="takes no weight_decay"):
        build_optimizer("torch.optim:Rprop", model, 1e-3, 1e-4)
    assert isinstance(build_optimizer("torch.optim:Rprop", model, 1e-3, 0.0), torch.optim.Rprop)


def test_arguments_that_a_study_cannot_give_are_named(model: nn.Module) -> None:
    pytest.importorskip("pytorch_optimizer")
    with pytest.raises(ConfigError, match="it wants base_optimizer"):
        build_optimizer("pytorch_optimizer:SAM", model, 1e-3, 0.0)


def test_a_class_that_swallows_keywords_still_gets_its_keys_checked(
    model: nn.Module, write_optimizer: Callable[[str, str], None]
) -> None:
    write_optimizer("swallowing_optim", "**kwargs")
    with pytest.raises(ConfigError, match='Did you mean "momentum"'):
        build_optimizer("swallowing_optim:Mine", model, 1e-3, 0.0, momentun=0.9)
    sys.modules.pop("swallowing_optim")


def test_the_seed_reaches_an_optimizer_that_takes_one(model: nn.Module) -> None:
    assert build_optimizer("sophia", model, 1e-3, 0.0, seed=17).defaults["seed"] == 17
    assert "seed" not in build_optimizer("adam", model, 1e-3, 0.0, seed=17).defaults


def test_only_sophia_of_the_table_asks_for_the_batch_again(model: nn.Module) -> None:
    asking = [
        name
        for name in OPTIMIZERS
        if isinstance(build_optimizer(name, model, 1e-3, 0.0), AfterStep)
    ]
    assert asking == ["sophia", "sophia_authors", "sophia_bs_5120"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_schedule_free_optimizer_is_recognised_by_its_two_modes(model: nn.Module) -> None:
    pytest.importorskip("pytorch_optimizer")
    free = build_optimizer("pytorch_optimizer:ScheduleFreeAdamW", model, 1e-3, 0.0)
    assert isinstance(free, TwoModes)
    assert not isinstance(build_optimizer("adam", model, 1e-3, 0.0), TwoModes)


def test_the_arguments_of_an_optimizer_are_listed_without_those_of_the_study() -> None:
    names = [parameter.name for parameter in accepted_settings("adamp")]
    assert names == ["betas", "eps", "delta", "wd_ratio"]
