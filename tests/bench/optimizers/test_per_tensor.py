import pytest
import torch

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer, check_optimizer
from afor.bench.optimizers.per_tensor import PerTensorAdamW


def train(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def layer() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def test_one_value_for_all_is_adamw() -> None:
    model, same = layer(), layer()
    ours = PerTensorAdamW(
        model.named_parameters(),
        lr=1e-2,
        beta2_by_tensor={"weight": 0.9945, "bias": 0.9945},
        weight_decay=1e-2,
    )
    theirs = torch.optim.AdamW(same.parameters(), lr=1e-2, betas=(0.9, 0.9945), weight_decay=1e-2)
    for a, b in zip(train(ours, model), train(theirs, same), strict=True):
        assert torch.equal(a, b)


def test_each_tensor_follows_its_own_value() -> None:
    model = layer()
    memory = {"weight": 0.9, "bias": 0.999}
    ours = train(PerTensorAdamW(model.named_parameters(), lr=1e-2, beta2_by_tensor=memory), model)
    for position, beta2 in enumerate(memory.values()):
        same = layer()
        groups = [
            {"params": [p], "betas": (0.9, b)}
            for p, b in zip(same.parameters(), memory.values(), strict=True)
        ]
        theirs = train(torch.optim.AdamW(groups, lr=1e-2), same)
        assert torch.equal(ours[position], theirs[position]), beta2


def test_a_study_builds_it_by_name() -> None:
    memory = {"weight": 0.99, "bias": 0.999}
    check_optimizer("adamw_per_tensor", {"beta2_by_tensor": memory})
    built = build_optimizer("adamw_per_tensor", layer(), 1e-3, 1e-4, beta2_by_tensor=memory)
    assert [group["betas"][1] for group in built.param_groups] == [0.99, 0.999]
    assert built.param_groups[0]["weight_decay"] == 1e-4


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({"weight": 0.99}, "none for 'bias'"),
        ({"weight": 0.99, "bias": 0.9, "scale": 0.9}, "one for 'scale'"),
        ({"weight": 0.99, "bias": 1.0}, "'bias' has 1.0; expected 0 <= beta2 < 1"),
    ],
)
def test_names_and_values_are_checked(memory, words) -> None:
    with pytest.raises(ConfigError, match=words):
        build_optimizer("adamw_per_tensor", layer(), 1e-3, 0.0, beta2_by_tensor=memory)
