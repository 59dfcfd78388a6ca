"""Theorem 1 on a run of a study: its constants estimated while the run is trained again.

The constants of a training are not known, so each is estimated from below: the largest gradient
seen, noise and curvature at the end of some epochs, and a drift of zero. The true constants are
larger, and with them the bound is weaker still.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from afor import AFOR
from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.analyses.step_log import StepLog
from afor.bench.analyses.theory.theorem import Assumptions
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.training.batches import Batch, epoch_batches
from afor.bench.training.loop import Fit
from afor.bench.training.record import Epoch, RunRecord

BATCHES = 16  # batches whose gradients give the noise at one point; fewer in a short epoch
CURVATURE_BATCHES = 2
POWER_STEPS = 8
REACH = 1e-2  # step of the finite difference, relative to the norm of the weights


@dataclass(frozen=True)
class Probe:
    """Estimates at the end of one epoch."""

    epoch: int  # counted from 1
    noise_sq: float  # variance of a batch's gradient
    grad_sq: float  # squared norm of the mean gradient, without the contribution of the noise
    smoothness: float  # largest |change of gradient| / |change of weights| along the iteration


@dataclass(frozen=True)
class RunEstimates:
    """Lower estimates of what the theorem assumes, and the traces they come from."""

    assumptions: Assumptions
    lr: float
    probes: tuple[Probe, ...]
    beta2: NDArray[np.float64]  # (steps, tensors)
    tensors: tuple[str, ...]
    record: RunRecord


def estimate_run(run: ChosenRun) -> RunEstimates:
    """Train a run of AFOR in the paper's form again and estimate the constants of Theorem 1.

    The observation does not change the training.
    """
    observer = _Observer(run.label)
    record = replay(run, observer.watch, observer.watch_step)
    if not observer.probes or not record.history:
        raise TrainingError(
            f"{run.label}: {record.reason or 'no epoch was finished'}, so there is nothing to "
            f"estimate from. Choose another --fold or --draw."
        )
    group = observer.group
    lowest = min(epoch.train_loss for epoch in record.history)
    assumptions = Assumptions(
        smoothness=max(probe.smoothness for probe in observer.probes),
        gradient_bound=observer.largest,
        noise_sq=max(probe.noise_sq for probe in observer.probes),
        drift_sq=np.zeros(record.steps),
        gap=max(observer.first_loss - lowest, 0.0),
        parameters=record.parameters,
        start_norm=observer.start_norm,
        beta1=group["betas"][0],
        eps=group["eps"],
        weight_decay=group["weight_decay"],
    )
    steps, probes = observer.log.result(), tuple(observer.probes)
    lr = float(group["lr"])
    return RunEstimates(assumptions, lr, probes, steps["beta2"], steps.names, record)


class _Observer:
    """Records every step; estimates noise and curvature after epochs 1, 2, 4, 8, ..."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.fit: Fit | None = None
        self.group: dict[str, Any] = {}
        self.largest = self.first_loss = self.start_norm = 0.0
        self.log = StepLog()
        self.probes: list[Probe] = []
        self._epoch = 0

    def watch_step(self, fit: Fit, batch: Batch, loss: Tensor) -> None:
        """Keep the largest gradient and every tensor's beta2."""
        if self.fit is None:
            self.fit, self.group = fit, fit.optimizer.param_groups[0]
            if not isinstance(fit.optimizer, AFOR):
                raise ConfigError(
                    f"{self.label}: Sec. VI is about AFOR in the paper's form. Choose a run of it, "
                    f"for example --optimizer afor."
                )
            self.first_loss = loss.item()
            # Taken after the first step; the constants of the theorem hardly change in one step.
            self.start_norm = _flat(list(fit.model.parameters())).norm().item()
        gradients = [p.grad for p in fit.model.parameters() if p.grad is not None]
        largest = torch.stack([gradient.abs().max() for gradient in gradients]).max()
        self.largest = max(self.largest, largest.item())
        self.log.watch(fit, batch, loss)

    def watch(self, epoch: Epoch, model: nn.Module) -> None:
        """Estimate noise and curvature after epochs that are powers of two."""
        del epoch, model
        self._epoch += 1
        if self.fit is not None and self._epoch & (self._epoch - 1) == 0:
            self.probes.append(probe(self.fit, self._epoch))


def probe(fit: Fit, epoch: int) -> Probe:
    """Estimate noise, gradient and curvature at the present weights, from several batches."""
    order = epoch_batches(fit.training, fit.settings.batch_size, epoch)[:BATCHES]
    batches = [fit.training.load(indices) for indices in order]
    with untouched(fit.model):
        gradients = torch.stack([_gradient(fit.model, [batch]) for batch in batches])
        count = len(batches)
        mean = gradients.mean(0)
        spread = (gradients - mean).square().sum().item()
        noise_sq = spread / (count - 1) if count > 1 else 0.0
        smoothness = _curvature(fit.model, batches[:CURVATURE_BATCHES])
    grad_sq = max(mean.square().sum().item() - noise_sq / count, 0.0)
    return Probe(epoch, noise_sq, grad_sq, smoothness)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore weights, running statistics, mode and random generators after the block."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    was_training = model.training
    device = next(model.parameters()).device
    try:
        with isolated(0, device):
            model.train()
            yield
    finally:
        model.load_state_dict(state)
        model.train(was_training)


def _gradient(model: nn.Module, batches: Sequence[Batch]) -> Tensor:
    """Return the mean gradient over batches in training mode, with the same dropout every time."""
    params = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
    for number, batch in enumerate(batches):
        with isolated(number, total.device):
            loss = cross_entropy(model(batch.inputs), batch.labels)
        gradients = torch.autograd.grad(loss, params, allow_unused=True)
        pairs = zip(params, gradients, strict=True)
        total += _flat([torch.zeros_like(p) if g is None else g for p, g in pairs])
    return total / len(batches)


def _curvature(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Return the largest |change of gradient| / |change of weights| along a power iteration."""
    params = [p for p in model.parameters() if p.requires_grad]
    center = _flat(params).clone()
    direction = torch.randn_like(center)
    reach = REACH * (center.norm().item() or 1.0)
    largest = 0.0
    for _ in range(POWER_STEPS):
        direction /= direction.norm()
        _assign(params, center + reach * direction)
        ahead = _gradient(model, batches)
        _assign(params, center - reach * direction)
        change = ahead - _gradient(model, batches)
        largest = max(largest, change.norm().item() / (2.0 * reach))
        if not change.any():
            break
        direction = change
    return largest


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def _assign(params: Sequence[Tensor], values: Tensor) -> None:
    start = 0
    for param in params:
        param.copy_(values[start : start + param.numel()].view_as(param))
        start += param.numel()
