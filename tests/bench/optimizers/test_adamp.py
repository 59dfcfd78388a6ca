import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from afor.bench.optimizers.adamp import AdamP, without_radial_part, without_radial_part_on_device


def one_step(start: list, grad: list, **settings: float) -> torch.Tensor:
    param = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    param.grad = torch.tensor(grad, dtype=torch.float64)
    AdamP([param], lr=0.1, eps=0.0, **settings).step()
    return param.detach()


def assert_equal(found: torch.Tensor, expected: list) -> None:
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.4, 4.0], ids=["none", "few", "some", "all"])
def test_on_a_device_the_same_update_is_selected_without_asking_it(delta: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scales = set()
    for _ in range(40):
        update, param, grad = (
            torch.randn(2, 9, generator=generator, dtype=torch.float64) for _ in range(3)
        )
        expected, scale = without_radial_part(update, param, grad, delta, 0.1, 1e-8)
        found, factor = without_radial_part_on_device(update, param, grad, delta, 0.1, 1e-8)
        assert torch.equal(found, expected)
        assert factor.item() == scale
        scales.add(scale)
    assert scales == {0.0: {1.0}, 4.0: {0.1}}.get(delta, {0.1, 1.0})


def test_an_update_orthogonal_to_a_channel_loses_its_radial_part() -> None:
    # Adam's first update is the sign (1, -1). Its part along (0.6, 0.8) is -0.2, so what remains
    # is (1.12, -0.84).
    assert_equal(one_step([[3.0, 4.0]], [[4.0, -3.0]]), [[3 - 0.112, 4 + 0.084]])


def test_weight_decay_of_a_projected_tensor_is_scaled_by_the_ratio() -> None:
    # 1 - lr * weight_decay * ratio = 1 - 0.1 * 0.5 * 0.1 = 0.995
    found = one_step([[3.0, 4.0]], [[4.0, -3.0]], weight_decay=0.5)
    assert_equal(found, [[2.985 - 0.112, 3.98 + 0.084]])


def test_a_gradient_along_the_weight_is_left_to_adam_with_full_decay() -> None:
    found = one_step([[3.0, 4.0]], [[3.0, 4.0]], weight_decay=0.5)
    assert_equal(found, [[0.95 * 3 - 0.1, 0.95 * 4 - 0.1]])


def test_the_whole_layer_is_projected_when_its_channels_are_not_orthogonal_one_by_one() -> None:
    # Channel cosines 2/sqrt(29) and 1/sqrt(26) are above 0.1/sqrt(2), the layer's is 0. The update
    # [[1, 1], [1, -1]] has the part -1/5 along the layer [[1, 0], [0, 2]].
    found = one_step([[1.0, 0.0], [0.0, 2.0]], [[2.0, 5.0], [5.0, -1.0]])
    assert_equal(found, [[1 - 0.12, -0.1], [-0.1, 2 + 0.06]])


def test_one_channel_above_the_threshold_keeps_all_channels_from_projection() -> None:
    # Channel 1 is orthogonal, channel 2 is not, and neither is the layer.
    found = one_step([[3.0, 4.0], [1.0, 1.0]], [[4.0, -3.0], [9.0, 9.0]])
    assert_equal(found, [[2.9, 4.1], [0.9, 0.9]])


def test_vectors_follow_adam_over_two_steps() -> None:
    param = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = AdamP([param], lr=0.1, eps=0.0)
    for grad in (1.0, 3.0):
        param.grad = torch.tensor([grad], dtype=torch.float64)
        optimizer.step()
    # m = 0.39 / 0.19, v = 0.009999 / 0.001999: the second step is 0.1 * 0.917781...
    second = 0.1 * (0.39 / 0.19) / (0.009999 / 0.001999) ** 0.5
    assert second == pytest.approx(0.0917781, abs=1e-7)
    assert_equal(param.detach(), [1 - 0.1 - second])


def test_a_weight_of_zeros_stays_finite() -> None:
    param = torch.nn.Parameter(torch.zeros(2, 3))
    param.grad = torch.ones(2, 3)
    AdamP([param], lr=0.1).step()
    torch.testing.assert_close(param.detach(), torch.full((2, 3), -0.1))


def test_fifty_steps_match_the_authors_package(
    largest_difference: Callable[..., float],
) -> None:
    adamp = pytest.importorskip("adamp")
    settings = {"lr": 1e-2, "weight_decay": 1e-2}
    found = largest_difference(lambda p: AdamP(p, **settings), lambda p: adamp.AdamP(p, **settings))
    assert found < 1e-12


def test_fifty_steps_match_timm(largest_difference: Callable[..., float]) -> None:
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("timm is not installed")
    # The file alone: the package would import torchvision.
    path = Path(spec.submodule_search_locations[0]) / "optim" / "adamp.py"
    file_spec = importlib.util.spec_from_file_location("timm_adamp", path)
    module = importlib.util.module_from_spec(file_spec)
    file_spec.loader.exec_module(module)
    settings = {"lr": 1e-2, "weight_decay": 1e-2}
    found = largest_difference(
        lambda p: AdamP(p, **settings), lambda p: module.AdamP(p, **settings)
    )
    assert found < 1e-12


def test_the_projection_takes_place_on_a_network_with_batch_norm(
    largest_difference: Callable[..., float],
) -> None:
    adamw = torch.optim.AdamW
    found = largest_difference(
        lambda p: AdamP(p, lr=1e-2), lambda p: adamw(p, lr=1e-2, weight_decay=0)
    )
    assert found > 1e-3
