from collections.abc import Callable

import pytest
import torch

from afor.bench.optimizers.mars import MARS


def steps(start: list, grads: list, **settings: object) -> torch.Tensor:
    param = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = MARS([param], **{"lr": 0.1, "eps": 0.0, **settings})
    for grad in grads:
        param.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
    return param.detach()


def assert_equal(found: torch.Tensor, expected: list) -> None:
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_the_second_step_uses_the_change_of_the_gradient() -> None:
    # gamma * beta1 / (1 - beta1) = 0.225. First c = 0.4 + 0.225 * 0.4 = 0.49, update 1.
    # Then c = 0.2 - 0.225 * 0.2 = 0.155: m = (0.9 * 0.049 + 0.0155) / 0.19,
    # v = (0.999 * 0.001 * 0.49**2 + 0.001 * 0.155**2) / 0.001999.
    first = (0.9 * 0.049 + 0.0155) / 0.19
    second = (0.999 * 0.001 * 0.49**2 + 0.001 * 0.155**2) / 0.001999
    update = first / second**0.5
    assert update == pytest.approx(0.863360, abs=1e-6)
    assert_equal(steps([1.0], [[0.4], [0.2]]), [1 - 0.1 - 0.1 * update])


def test_a_corrected_gradient_longer_than_one_is_shortened_to_one() -> None:
    # First c = 1.225 * (3, 4), shortened to (0.6, 0.8). Then c = (0.06, 0.08) - 0.225 * (2.94,
    # 3.92) = (-0.6015, -0.802), length 1.0025, shortened to (-0.6, -0.8).
    first = (0.9 * 0.1 * 0.6 - 0.1 * 0.6) / 0.19
    second = (0.999 * 0.001 * 0.36 + 0.001 * 0.36) / 0.001999
    expected = 1 - 0.1 - 0.1 * first / second**0.5
    assert expected == pytest.approx(0.905263, abs=1e-6)
    found = steps([1.0, 1.0], [[3.0, 4.0], [0.06, 0.08]])
    assert_equal(found, [expected, expected])


def test_weight_decay_is_decoupled() -> None:
    assert_equal(steps([1.0], [[0.4]], weight_decay=0.5), [0.95 - 0.1])


def test_without_gamma_short_gradients_give_adamw() -> None:
    grads = (torch.sin(torch.arange(60, dtype=torch.float64)) / 9).reshape(20, 3).tolist()
    found = steps([1.0, -2.0, 3.0], grads, gamma=0.0, eps=1e-8, weight_decay=0.1)
    reference = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    adamw = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.1)
    for grad in grads:
        reference.grad = torch.tensor(grad, dtype=torch.float64)
        adamw.step()
    torch.testing.assert_close(found, reference.detach(), rtol=0, atol=1e-12)


def test_matrices_only_leaves_other_tensors_to_adamw_with_their_own_settings() -> None:
    grads = [[0.4], [0.2]]
    found = steps([1.0], grads, matrices_only=True, lr_rest=0.3, weight_decay_rest=0.5)
    reference = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    adamw = torch.optim.AdamW([reference], lr=0.3, betas=(0.9, 0.95), eps=0.0, weight_decay=0.5)
    for grad in grads:
        reference.grad = torch.tensor(grad, dtype=torch.float64)
        adamw.step()
    torch.testing.assert_close(found, reference.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("shape", "corrects"), [((2,), False), ((2, 2), True), ((2, 2, 1), False)])
def test_matrices_only_means_exactly_two_dimensions(shape: tuple[int, ...], corrects: bool) -> None:
    param = torch.nn.Parameter(torch.ones(shape))
    param.grad = torch.ones(shape)
    optimizer = MARS([param], matrices_only=True)
    optimizer.step()
    assert ("previous_grad" in optimizer.state[param]) is corrects


def test_the_rest_follows_a_schedule_in_proportion() -> None:
    param = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = MARS([param], lr=0.1, eps=0.0, matrices_only=True, lr_rest=0.3, weight_decay_rest=0)
    optimizer.param_groups[0]["lr"] = 0.05
    param.grad = torch.ones(1, dtype=torch.float64)
    optimizer.step()
    assert_equal(param.detach(), [1 - 0.15])


def test_the_previous_gradient_is_a_copy() -> None:
    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.tensor([0.1, 0.2])
    optimizer = MARS([param])
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    torch.testing.assert_close(optimizer.state[param]["previous_grad"], torch.tensor([0.1, 0.2]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("every_tensor", [True, False])
def test_fifty_steps_match_pytorch_optimizer(
    largest_difference: Callable[..., float], every_tensor: bool
) -> None:
    other = pytest.importorskip("pytorch_optimizer")
    # A tiny eps: it adds eps before the bias correction, which at 1e-8 makes 2e-5 of difference.
    shared = {"lr": 1e-2, "betas": (0.9, 0.999), "weight_decay": 1e-2, "eps": 1e-12}

    def theirs(params):
        # Its "1d" means below two dimensions, the authors' means other than two.
        params = list(params)
        if every_tensor:
            return other.MARS(params, optimize_1d=True, **shared)
        groups = [
            {"params": [p for p in params if p.dim() == 2], **shared},
            {"params": [p for p in params if p.dim() < 2], **shared},
        ]
        rest = [p for p in params if p.dim() > 2]
        adamw = {"lr": 3e-3, "betas": (0.9, 0.95), "weight_decay": 0.1, "eps": 1e-12}
        return _Pair(other.MARS(groups, lr_1d=3e-3, **shared), torch.optim.AdamW(rest, **adamw))

    ours = lambda p: MARS(p, matrices_only=not every_tensor, lr_rest=3e-3, **shared)  # noqa: E731
    assert largest_difference(ours, theirs) < 1e-7


class _Pair:
    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()
