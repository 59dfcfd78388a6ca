"""A training of one network, and trainings that take the same steps at once.

Runs of a bundle have the same data, split and seeds, so one stacked network computes the forward
and backward passes of all of them. Each keeps its own optimizer and record, and one whose own code
raises leaves the others alone.
"""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from afor.bench.common.errors import CannotBundleError, TrainingError
from afor.bench.common.seeding import seed_torch
from afor.bench.models.stacked_eegnet import StackedEEGNet
from afor.bench.optimizers.build import AfterStep, BeforeStep, ForSubject, TwoModes, build_optimizer
from afor.bench.training.batches import Batch, Side, Sides, contaminate
from afor.bench.training.controller_trace import Traces
from afor.bench.training.precision import MixedPrecision
from afor.bench.training.record import Epoch, NextSubject
from afor.bench.training.run_spec import RunSettings
from afor.bench.training.schedules import planned_steps, rate_factor

if TYPE_CHECKING:
    from afor.bench.models.eegnet import EEGNet

EVALUATION_BATCH = 256  # evaluation batch size; changing it changes results bit for bit

Logits = NDArray[np.float32]  # (windows, classes)
Watch = Callable[[Epoch, nn.Module], None]
# Called after each step with the training so far, the batch and its loss, a tensor on the device.
WatchStep = Callable[["Fit", Batch, torch.Tensor], None]


class Fit:
    """The training of one network: its steps, its history and its best weights.

    `watch` is called after each epoch with the network as it was evaluated, `watch_step` after each
    step, while the gradients still exist.
    """

    def __init__(self, settings: RunSettings, model: nn.Module, sides: Sides) -> None:
        self.settings = settings
        self.model = model
        self.sides = sides
        self.watch: Watch | None = None
        self.watch_step: WatchStep | None = None
        self.optimizer = optimizer = build_optimizer(
            settings.optimizer,
            model,
            settings.lr,
            settings.weight_decay,
            seed=settings.seed("labels"),
            decay_exempt=settings.decay_exempt,
            **settings.optimizer_settings,
        )
        self._largest_rates = [group["lr"] for group in optimizer.param_groups]
        self._planned_steps = 0  # of a schedule
        if settings.schedule != "constant":
            self._planned_steps = planned_steps(settings, sides.training)
        self.traces = Traces(optimizer, model)
        self.precision = MixedPrecision(settings.precision, self.device, optimizer)
        self.history: list[Epoch] = []
        self.prequential: list[NextSubject] = []
        self.best_epoch: int | None = None
        self.best_accuracy = -1.0
        self.best_weights: dict[str, torch.Tensor] = {}
        self.best_state: dict[str, Any] = {}  # of the optimizer; kept for an adaptation alone
        self.steps = 0
        self.divergence = ""  # its reason
        self.error: Exception | None = None  # that its own code raised
        self.spent_s = np.zeros(2)  # its share of the time of clock and processor
        constrain = getattr(model, "apply_constraints", None)
        self._constrain = constrain if settings.constraints else None
        self._total = torch.zeros(())  # the loss summed over the windows of an epoch
        self._windows = 0

    @property
    def device(self) -> torch.device:
        """Return the device of the network."""
        return next(self.model.parameters()).device

    def begin_batches(self) -> None:
        """Prepare for the steps of an epoch."""
        self.model.train()
        if isinstance(self.optimizer, TwoModes):
            self.optimizer.train()
        self._total, self._windows = torch.zeros((), device=self.device), 0

    def contaminated(self, batch: Batch) -> Batch:
        """Return the batch as the network sees it in the next step."""
        if self.settings.contamination is None:
            return batch
        seed = self.settings.seed("contamination")
        return contaminate(
            batch, self.settings.contamination, seed, self.steps, self.sides.n_classes
        )

    def before_forward(self, batch: Batch) -> None:
        """Do what the optimizer needs before the forward pass."""
        if isinstance(self.optimizer, BeforeStep):
            self.optimizer.before_step(self.model, batch.inputs)  # Sophia on the next batch

    def backward(self, batch: Batch) -> torch.Tensor:
        """Set the gradients of a batch and return its loss."""
        self.optimizer.zero_grad()
        with self.precision.forward():
            loss = cross_entropy(self.model(batch.inputs), batch.labels)
        self.precision.backward(loss)
        return loss.detach()

    def take_step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Take one step with the gradients that the parameters have now."""
        optimizer = self.optimizer
        if self.settings.clip_norm is not None:
            self.precision.unscale(optimizer)
            clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        if self._planned_steps:
            factor = rate_factor(self.settings.schedule, self.steps, self._planned_steps)
            for group, rate in zip(optimizer.param_groups, self._largest_rates, strict=True):
                group["lr"] = factor * rate
        if isinstance(optimizer, ForSubject):
            optimizer.for_subject(_only_subject(batch))
        self.precision.step(optimizer)
        if self._constrain is not None:
            self._constrain()  # max-norm of EEGNet
        if isinstance(optimizer, AfterStep):
            optimizer.after_step(self.model, batch.inputs)  # Sophia's second pass, every 10 steps
        self.traces.after_step()
        if self.watch_step is not None:
            self.watch_step(self, batch, loss)
        self._total += loss * len(batch.subjects)
        self._windows += len(batch.subjects)
        self.steps += 1

    def mean_loss(self) -> float:
        """Return the mean loss over the windows since `begin_batches`."""
        return (self._total / self._windows).item()

    def set_evaluated_weights(self) -> None:
        """Set the weights that are evaluated; schedule-free optimizers average them."""
        if isinstance(self.optimizer, TwoModes):
            self.optimizer.eval()

    def predict(self, side: Side) -> Logits:
        """Return the logits of all windows of a side, in evaluation mode."""
        self.model.eval()
        with torch.inference_mode():
            batches = side.in_order(EVALUATION_BATCH)
            logits = torch.cat([self.model(batch.inputs) for batch in batches])
        expected = len(side.indices), self.sides.n_classes
        if logits.shape != expected:
            raise TrainingError(
                f"the network returns {tuple(logits.shape)} for {len(side.indices)} windows. "
                f"Expected logits of shape {expected}, one per class."
            )
        return logits.cpu().numpy()

    def keep_state(self, epoch: int) -> None:
        """Keep the present weights as the best; for an adaptation also the optimizer's state."""
        self.best_epoch = epoch
        # Clones, because a deep copy of a view copies the weights of all runs of a bundle.
        self.best_weights = {
            name: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
            for name, value in self.model.state_dict().items()
        }
        if self.settings.adaptation is not None:
            self.best_state = copy.deepcopy(self.optimizer.state_dict())


def _only_subject(batch: Batch) -> int:
    """Return the subject of a batch; raise TrainingError if it has several."""
    first = int(batch.subjects[0])
    if (batch.subjects != first).any():
        raise TrainingError(
            "the optimizer needs batches of one subject, and this batch has several. "
            'Set order = "blocks" or "stream", or subjects_per_batch = 1.'
        )
    return first


class Team:
    """Runs that take the same steps at once; one whose own code raises leaves.

    Several need networks that can be stacked on this machine.
    """

    def __init__(self, fits: Sequence[Fit]) -> None:
        self.active = list(fits)
        self._shares_generator = len(fits) > 1
        self._stack: StackedEEGNet | None = None

    def take_steps(
        self, side: Side, batches: Sequence[NDArray[np.int64]], dropout_seed: int
    ) -> None:
        """Take one step per batch."""
        seed_torch(dropout_seed)
        self.each(Fit.begin_batches)
        for loaded in side.batches(batches):
            if not self.active:
                return
            self._take_step(self.active[0].contaminated(loaded))

    def _take_step(self, batch: Batch) -> None:
        self._each_without_drawing(lambda fit: fit.before_forward(batch))
        losses = dict(zip(self.active, self._backward(batch), strict=True))
        self._each_without_drawing(lambda fit: fit.take_step(batch, losses[fit]))

    def predict(self, side: Side) -> list[Logits]:
        """Return the logits of all windows of a side, for each active run."""
        if len(self.active) <= 1:
            return [fit.predict(side) for fit in self.active]
        for fit in self.active:
            fit.model.eval()
        stack = self._stacked()
        with torch.inference_mode():
            batches = side.in_order(EVALUATION_BATCH)
            logits = torch.cat([stack(batch.inputs, training=False) for batch in batches], dim=1)
        return list(logits.numpy())

    def each(self, do: Callable[[Fit], object]) -> None:
        """Call a function for each active run; one that raises leaves with its error."""
        for fit in list(self.active):
            try:
                do(fit)
            except Exception as error:  # noqa: BLE001  any error fails this run only
                fit.error = error
                self.active.remove(fit)

    def _each_without_drawing(self, do: Callable[[Fit], object]) -> None:
        """Call a function for each active run; one that draws from torch's generator leaves.

        Dropout draws from it for all runs. Only optimizers that are not part of this package are
        watched: ours do not draw.
        """

        def watched(fit: Fit) -> None:
            if ":" not in fit.settings.optimizer or not self._shares_generator:
                do(fit)
                return
            state = torch.get_rng_state()
            try:
                do(fit)
                if not torch.equal(state, torch.get_rng_state()):
                    raise CannotBundleError(
                        f"{fit.settings.optimizer} draws from torch's generator, which the runs of "
                        "a bundle share"
                    )
            finally:
                torch.set_rng_state(state)

        self.each(watched)

    def _backward(self, batch: Batch) -> Sequence[torch.Tensor]:
        """Set the gradients of all active runs and return their losses."""
        if len(self.active) <= 1:
            return [fit.backward(batch) for fit in self.active]
        stack = self._stacked()
        logits = stack(batch.inputs, training=True)
        losses = torch.stack([cross_entropy(of_run, batch.labels) for of_run in logits])
        stack.backward(losses)
        return losses.detach().unbind(0)

    def _stacked(self) -> StackedEEGNet:
        """Return the stack of the active networks, a new one if runs have left."""
        models = tuple(fit.model for fit in self.active)
        if self._stack is None or self._stack.models != models:
            self._stack = StackedEEGNet(cast("Sequence[EEGNet]", models))
        return self._stack
