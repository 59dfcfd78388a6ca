"""The hypergradient of beta2: would a shorter or longer memory lower the validation loss soon?

At several steps of an AdamW run, the next steps are unrolled with beta2 as a variable, from the
run's own weights and moments, and the validation loss after them is differentiated with respect to
u = ln(1 - beta2). A negative derivative says that a shorter memory would have been better. If it
cannot be told from zero, no rule that changes beta2 gains within this horizon, to first order.
Running statistics of batch norms are updated as in training and count as constants.

    python studies/beta2/hypergradient.py studies/beta2/bursts.toml FOLDER 1e-3

FOLDER holds the recordings of the data set `eyes`. The starts lie on one run and depend on each
other, so their range is printed, and no interval.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from afor.bench.analyses.replay import ChosenRun, find_run
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import seed_torch
from afor.bench.study.schema import Search, load_study
from afor.bench.training.batches import Batch, epoch_batches
from afor.bench.training.fit import Fit
from afor.bench.training.loop import train

Tensors = dict[str, torch.Tensor]
HORIZON = 50  # unrolled steps
STARTS = tuple(range(25, 201, 25))  # steps of the run
VALIDATION_WINDOWS = 1024  # at most, evenly spread over the validation side


@dataclass(frozen=True)
class Moments:
    """The state of AdamW: both moments of every tensor, and the number of steps taken."""

    first: Tensors
    second: Tensors
    steps: int


@dataclass(frozen=True)
class Hypergradient:
    """Derivatives of the validation loss with respect to ln(1 - beta2), one per start."""

    label: str
    beta2: float
    horizon: int  # unrolled steps
    starts: tuple[int, ...]  # steps of the run
    losses: tuple[float, ...]  # validation loss after the horizon
    derivatives: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean derivative."""
        return math.fsum(self.derivatives) / len(self.derivatives)


def measure_hypergradient(run: ChosenRun, starts: Sequence[int], horizon: int) -> Hypergradient:
    """Train a run of AdamW and take the hypergradient at some of its steps.

    The training itself is not changed. The unrolling begins after each of the steps `starts`, which
    count from 1. Raises ConfigError if the optimizer is not AdamW or the run ends before the last.
    """
    if run.planned.spec["optimizer"]["name"] != "adamw" or not starts or horizon < 1:
        raise ConfigError(
            f"The hypergradient needs a run of AdamW, at least one start and a horizon of at least "
            f"1; got {run.planned.method}, {len(starts)} starts and a horizon of {horizon}. "
            f"Choose an AdamW entry of the study."
        )
    measured: dict[int, tuple[float, float]] = {}
    settings = run.settings

    def watch(fit: Fit, _batch: Batch, _loss: torch.Tensor) -> None:
        if fit.steps + 1 in starts:
            measured[fit.steps + 1] = _unroll(fit, horizon)

    windows = len(run.source.indices_of(settings.split.train))
    steps_per_epoch = math.ceil(windows / settings.batch_size)
    epochs = min(settings.max_epochs, math.ceil(max(starts) / steps_per_epoch) + 1)
    longer = settings.changed(max_epochs=epochs, patience=epochs)
    train(longer, run.source, run.make_model, watch_step=watch)
    if any(start not in measured for start in starts):
        raise ConfigError(
            f"{run.label} has fewer than {max(starts)} steps. Train longer with another study."
        )
    beta2 = settings.optimizer_settings["betas"][1]  # type: ignore[index]
    losses, derivatives = zip(*(measured[start] for start in starts), strict=True)
    return Hypergradient(run.label, float(beta2), horizon, tuple(starts), losses, derivatives)


def unrolled_loss(
    model: nn.Module,
    weights: Tensors,
    moments: Moments,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    validation: tuple[torch.Tensor, torch.Tensor],
    beta2: torch.Tensor,
    group: Mapping[str, float],
    seed: int = 0,
) -> torch.Tensor:
    """Return the validation loss after one step of AdamW per batch, a function of beta2.

    The network is not changed; `weights` are its parameters by name, `seed` is that of the dropout,
    and `group` holds `lr`, `beta1`, `eps` and `weight_decay`.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    first, second = dict(moments.first), dict(moments.second)
    lr, beta1 = group["lr"], group["beta1"]
    missing_weight = beta2**moments.steps if moments.steps else torch.ones_like(beta2)
    was_training = model.training
    model.train()
    seed_torch(seed)
    for number, (inputs, labels) in enumerate(batches, start=moments.steps + 1):
        loss = cross_entropy(functional_call(model, {**weights, **buffers}, (inputs,)), labels)
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        missing_weight = missing_weight * beta2
        updated = {}
        for (name, weight), grad in zip(weights.items(), grads, strict=True):
            first[name] = beta1 * first[name] + (1 - beta1) * grad
            second[name] = beta2 * second[name] + (1 - beta2) * grad.square()
            # A tensor without any gradient yet has v = 0, where the root has no derivative.
            root = (second[name] / (1 - missing_weight)).clamp_min(1e-30).sqrt()
            step = first[name] / (1 - beta1**number) / (root + group["eps"])
            updated[name] = weight * (1 - lr * group["weight_decay"]) - lr * step
        weights = updated
    model.eval()
    inputs, labels = validation
    loss = cross_entropy(functional_call(model, {**weights, **buffers}, (inputs,)), labels)
    model.train(was_training)
    return loss


def _unroll(fit: Fit, horizon: int) -> tuple[float, float]:
    """Return the loss after the horizon and its derivative with respect to ln(1 - beta2)."""
    model, optimizer = fit.model, fit.optimizer
    group = optimizer.param_groups[0]
    named = dict(model.named_parameters())
    first, second = (
        {name: optimizer.state[param][moment].clone() for name, param in named.items()}
        for moment in ("exp_avg", "exp_avg_sq")
    )
    order: list[np.ndarray] = []
    while len(order) < horizon:
        order += epoch_batches(fit.sides.training, fit.settings.batch_size, fit.steps + len(order))
    batches = [fit.sides.training.load(indices) for indices in order[:horizon]]
    spread = np.linspace(0, len(fit.sides.validation.indices) - 1, VALIDATION_WINDOWS).astype(
        np.int64
    )
    held_out = fit.sides.validation.load(fit.sides.validation.indices[np.unique(spread)])
    with torch.random.fork_rng():
        start = math.log(1 - group["betas"][1])
        logarithm = torch.tensor(start, device=fit.device, requires_grad=True)
        loss = unrolled_loss(
            model,
            {name: param.detach().clone().requires_grad_() for name, param in named.items()},
            Moments(first, second, fit.steps + 1),
            [(batch.inputs, batch.labels) for batch in batches],
            (held_out.inputs, held_out.labels),
            1 - logarithm.exp(),
            {**group, "beta1": group["betas"][0]},
            seed=fit.steps,
        )
        (derivative,) = torch.autograd.grad(loss, [logarithm])
    return loss.item(), derivative.item()


def text(measured: Hypergradient) -> str:
    """Return the derivatives, their mean and their range."""
    lines = [f"{measured.label}: beta2 = {measured.beta2:g}, {measured.horizon} steps unrolled"]
    for start, loss, derivative in zip(
        measured.starts, measured.losses, measured.derivatives, strict=True
    ):
        lines.append(
            f"  from step {start:>6}: validation loss {loss:.4f}, derivative "
            f"{1000 * derivative:+.3f}·10⁻³ nats per unit of ln(1 − beta2)"
        )
    low, high = min(measured.derivatives), max(measured.derivatives)
    lines.append(
        f"  mean {1000 * measured.mean:+.3f}·10⁻³ nats; between {1000 * low:+.3f} and "
        f"{1000 * high:+.3f} at these {len(measured.starts)} steps of one run"
    )
    return "\n".join(lines) + "\n"


def main(study: str, folder: str, rate: str) -> None:
    """Print the hypergradient of AdamW at one learning rate of a study, in its first run."""
    content = load_study(study)
    (data,) = content.datasets
    changes = {
        "datasets": [data.model_copy(update={"root": folder})],
        "search": Search(grid=[float(rate)]),
    }
    run = find_run(content.model_copy(update=changes), optimizer="adamw")
    sys.stdout.write(text(measure_hypergradient(run, STARTS, HORIZON)))


if __name__ == "__main__":
    main(*sys.argv[1:])
