"""Several runs of any network as one, by torch.func: for networks without a stacked form.

`vmap` turns the network's own forward pass into one over a leading run dimension. What it computes
is equal to rounding: the bits of a run depend on how many companions it has.
"""

import copy
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from afor.bench.common.seeding import isolated, seed_torch
from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.run_stack import RunStack

TRIAL_WINDOWS = 4
TOLERANCE = 1e-9  # of the trial, in float64; of numbers above 1, as a share of the largest
REASON_LENGTH = 90


class FunctionalStack(RunStack):
    """Several networks of one class and shape; see `refusal` for those that can be stacked."""

    def __call__(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return logits (width, batch, classes) for a signal (batch, channels, samples)."""
        self.first.train(training)

        def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            logits: Tensor = functional_call(self.first, (parameters, buffers), (signal,))
            return logits

        # The runs share their dropout masks; batch norm moves the stacked statistics in place.
        return vmap(forward, randomness="same")(self.parameters, self.buffers)


def refusal(make_model: Callable[[], nn.Module], shape: InputShape) -> str:
    """Try two small networks as one and compare them with each by itself, in float64.

    Args:
        make_model: Builds the network.
        shape: Shape of a window.

    Returns:
        Why its runs cannot be trained as one network; empty if they can.
    """
    device = torch.device("cpu")
    with isolated(0, device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap warns of operators that it only repeats
        try:
            models = [make_model().to(device).double() for _ in range(2)]
            signal = torch.randn(TRIAL_WINDOWS, shape.channels, shape.samples, dtype=torch.double)
            labels = torch.arange(TRIAL_WINDOWS) % shape.classes
            alone = [_pass(copy.deepcopy(model), signal, labels) for model in models]
            together = _stacked_pass(FunctionalStack(models), signal, labels)
        except Exception as error:  # noqa: BLE001  whatever a network raises, it is not stacked
            first_line = str(error).strip().partition("\n")[0][:REASON_LENGTH]
            return f"torch.func does not take it ({type(error).__name__}: {first_line})"
    for expected, actual in zip(alone, together, strict=True):
        if not all(_is_close(a, b) for a, b in zip(expected, actual, strict=True)):
            return "torch.func does not give the numbers that the network gives by itself"
    return ""


def _pass(model: nn.Module, signal: Tensor, labels: Tensor) -> list[Tensor]:
    """Return logits in training and evaluation, gradients and buffers of a network."""
    model.train()
    seed_torch(1)
    logits = model(signal)
    cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]
    model.eval()
    with torch.no_grad():
        evaluated = model(signal)
    return [logits.detach(), evaluated, *_state(model)]


def _stacked_pass(stack: RunStack, signal: Tensor, labels: Tensor) -> list[list[Tensor]]:
    """Return what `_pass` returns, for every network of a stack."""
    seed_torch(1)
    logits = stack(signal, training=True)
    stack.backward(torch.stack([cross_entropy(of_run, labels) for of_run in logits]))
    with torch.no_grad():
        evaluated = stack(signal, training=False)
    return [
        [trained.detach(), tested, *_state(model)]
        for trained, tested, model in zip(logits, evaluated, stack.models, strict=True)
    ]


def _state(model: nn.Module) -> list[Tensor]:
    """Return all gradients in one tensor, then the buffers; no gradient counts as zero."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    return [flat, *(buffer.double() for buffer in model.buffers())]


def _is_close(expected: Tensor, actual: Tensor) -> bool:
    tolerance = TOLERANCE * max([1.0, *expected.abs().flatten().tolist()])
    return expected.shape == actual.shape and bool(((expected - actual).abs() <= tolerance).all())
