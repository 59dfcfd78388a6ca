"""Train in lower precision: autocast of the forward pass, and scaled gradients for float16."""

from contextlib import AbstractContextManager, nullcontext

import torch

from afor.bench.common.devices import Precision
from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import AfterStep, BeforeStep

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class MixedPrecision:
    """Forward pass, backward pass and step of one training in a given precision.

    "float32" and "tf32" leave everything as it is. Raises ConfigError if the optimizer needs passes
    of its own, whose gradients would not be scaled.
    """

    def __init__(
        self, precision: Precision, device: torch.device, optimizer: torch.optim.Optimizer
    ) -> None:
        self._device_type = device.type
        self._dtype = AUTOCAST.get(precision)
        self._scaler: torch.amp.GradScaler | None = None
        if precision == "float16":
            if isinstance(optimizer, AfterStep | BeforeStep):
                raise ConfigError(
                    f"{type(optimizer).__name__} makes backward passes of its own, which float16 "
                    f'would need to scale. Use precision = "bfloat16" or "float32" for it.'
                )
            self._scaler = torch.amp.GradScaler(device.type)

    def forward(self) -> AbstractContextManager[object]:
        """Return the context of the forward pass and the loss."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device_type, self._dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of a loss; those of float16 are scaled until the step."""
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of the gradients before the step, for clipping."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the step; with float16 it is left out if a gradient overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()
