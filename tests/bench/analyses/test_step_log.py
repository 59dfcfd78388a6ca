from types import SimpleNamespace

import numpy as np
import pytest
import torch

from afor import AFOR
from afor.bench.analyses.step_log import StepLog
from afor.bench.common.errors import ConfigError


def train(steps: int, **options):
    """Return the log of a small network and what each step's residual was."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = AFOR(model.parameters(), lr=1e-2, **options)
    log, weight = StepLog(), model[0].weight
    residuals, losses = [], []
    momentum = torch.zeros_like(weight)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        gradient = weight.grad.clone()
        residuals.append(float((gradient - momentum).abs().mean()))
        momentum = 0.9 * momentum + 0.1 * gradient
        optimizer.step()
        losses.append(loss.item())
        log.watch(SimpleNamespace(optimizer=optimizer, model=model), None, loss.detach())
    return log, np.array(residuals), np.array(losses)


def test_the_residual_of_each_step_is_recovered() -> None:
    log, residuals, losses = train(25)
    steps = log.result()
    assert steps.names == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert steps.groups == {"0": [0, 1], "1": [2, 3]}
    assert len(steps) == 25
    np.testing.assert_allclose(steps["residual"][:, 0], residuals, rtol=1e-4)
    np.testing.assert_allclose(steps.loss, losses, rtol=1e-6)
    assert len(steps.first(10)["beta2"]) == len(steps.first(10)) == 10


def test_z_is_the_deviation_over_the_logged_sigma_in_both_forms() -> None:
    for statistics in ("paper", "calibrated"):
        log, *_ = train(40, statistics=statistics)
        steps = log.result()
        beta2 = 0.99 + 0.009 / (1 + np.exp(-steps["zscore"]))
        gate = np.minimum(1, np.arange(1, 41) / 100)[:, None]
        np.testing.assert_allclose(steps["beta2"], 0.999 + gate * (beta2 - 0.999), atol=1e-6)
        mean = np.zeros(4)
        for t, score in enumerate(steps["score"], start=1):
            mean = 0.999 * mean + 0.001 * score
            weight = 1.0 if statistics == "paper" else 1 - 0.999**t
            sigma = np.sqrt(steps["score_std"][t - 1] ** 2 + 1e-8)
            expected = np.clip((score - mean / weight) / sigma, -5, 5)
            np.testing.assert_allclose(steps["zscore"][t - 1], expected, atol=2e-3)


def test_another_optimizer_has_no_controller_to_look_at() -> None:
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(layer.parameters())
    with pytest.raises(ConfigError, match="AdamW has no controller"):
        StepLog().watch(SimpleNamespace(optimizer=optimizer, model=layer), None, torch.zeros(()))
    with pytest.raises(ConfigError, match="No step"):
        StepLog().result()
