"""Theorem 1 on a run of a study: its constants estimated while the run is trained again.

A training has no known constants, so each is estimated from below: the largest gradient seen, the
noise and the curvature at the end of some epochs, no drift at all. What is said against the theorem
with these holds all the more with the true ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from afor import AFOR
from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.analyses.theory.theorem import Assumptions
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.training.batches import Batch, epoch_batches
from afor.bench.training.record import Epoch, RunRecord
from afor.control import FIELDS

if TYPE_CHECKING:
    from afor.bench.training.loop import Fit

BATCHES = 16  # gradients at one point, whose spread is the noise; fewer in a short epoch
CURVATURE_BATCHES = 2
POWER_STEPS = 8
REACH = 1e-2  # of a finite difference, relative to the length of the weights


@dataclass(frozen=True)
class Probe:
    """What was found at the end of one epoch."""

    epoch: int  # counted from 1
    noise_sq: float  # of a batch's gradient
    grad_sq: float  # of the mean gradient, the share of the noise taken off
    smoothness: float  # the largest change of the gradient per length that was found


@dataclass(frozen=True)
class RunEstimates:
    """Lower estimates of all that the theorem asks for, and what was traced on the way."""

    given: Assumptions
    lr: float
    probes: tuple[Probe, ...]
    beta2: NDArray[np.float64]  # (steps, tensors)
    tensors: tuple[str, ...]
    record: RunRecord


def estimate_run(chosen: ChosenRun) -> RunEstimates:
    """Train the run again and estimate; the run's own numbers stay what they are.

    Raises ConfigError unless the optimizer is AFOR in the paper's form.
    """
    observer = _Observer(chosen.place)
    record = replay(chosen, observer.watch, observer.watch_step)
    if not observer.probes or not record.history:
        raise TrainingError(
            f"{chosen.place}: {record.reason or 'no epoch was finished'}, so there is nothing to "
            f"estimate from. Choose another --fold or --draw."
        )
    group = observer.group
    lowest = min(epoch.train_loss for epoch in record.history)
    given = Assumptions(
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
    return RunEstimates(
        given=given,
        lr=float(group["lr"]),
        probes=tuple(observer.probes),
        beta2=np.stack(observer.beta2),
        tensors=tuple(observer.tensors),
        record=record,
    )


class _Observer:
    """Looks at every step, and more closely after epochs 1, 2, 4, 8, ..."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.fit: Fit | None = None
        self.group: dict[str, Any] = {}
        self.largest = self.first_loss = self.start_norm = 0.0
        self.beta2: list[NDArray[np.float64]] = []
        self.tensors: list[str] = []
        self.probes: list[Probe] = []
        self._epoch = 0

    def watch_step(self, fit: "Fit", batch: Batch, loss: Tensor) -> None:
        """Keep the largest gradient and every tensor's beta2."""
        del batch
        if self.fit is None:
            self.fit, self.group = fit, fit.optimizer.param_groups[0]
            if not isinstance(fit.optimizer, AFOR) or self.group["variant"] != "paper":
                raise ConfigError(
                    f"{self.place}: Sec. VI is about AFOR in the paper's form. Choose a run of it, "
                    f"for example --optimizer afor."
                )
            self.first_loss = loss.item()
            # One step after the start; the theorem's constants hardly feel it.
            self.start_norm = _flat(list(fit.model.parameters())).norm().item()
        named = [(n, p) for n, p in fit.model.named_parameters() if p.grad is not None]
        largest = torch.stack([p.grad.abs().max() for _, p in named if p.grad is not None]).max()
        self.largest = max(self.largest, largest.item())
        controls = [fit.optimizer.state[p]["control"] for _, p in named]
        forgetting = torch.stack(controls)[:, FIELDS.index("forgetting")].double()
        self.tensors = [name for name, _ in named]
        self.beta2.append((1.0 - forgetting).cpu().numpy())

    def watch(self, epoch: Epoch, model: nn.Module) -> None:
        """Estimate noise and curvature after epochs that are powers of two."""
        del epoch, model
        self._epoch += 1
        if self.fit is not None and self._epoch & (self._epoch - 1) == 0:
            self.probes.append(probe(self.fit, self._epoch))


def probe(fit: "Fit", epoch: int) -> Probe:
    """Measure gradients of several batches at the present weights, and how they change nearby."""
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
    """Put weights, running statistics, mode and generators back after the block."""
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
        found = torch.autograd.grad(loss, params, allow_unused=True)
        total += _flat(
            [torch.zeros_like(p) if g is None else g for p, g in zip(params, found, strict=True)]
        )
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
    at = 0
    for param in params:
        param.copy_(values[at : at + param.numel()].view_as(param))
        at += param.numel()
