"""Train one run: from settings and windows to a record, without files or output.

    record = train(settings, source, lambda: build_backbone("eegnet", shape))

All random numbers depend on the study seed, the dataset, the fold and the draw, so a run repeats
bit for bit, and two runs that differ only in the optimizer are paired: same weights, batches and
dropout.
"""

import copy
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import TrainingError
from afor.bench.common.seeding import derive_substep, isolated, seed_torch
from afor.bench.optimizers.build import AfterStep, BeforeStep, TwoModes, build_optimizer
from afor.bench.training.batches import Batch, Side, Windows, epoch_batches, make_normalize
from afor.bench.training.controller_trace import Traces
from afor.bench.training.metrics import measure, vote
from afor.bench.training.precision import MixedPrecision
from afor.bench.training.record import Epoch, RunRecord
from afor.bench.training.run_spec import RunSettings

EVALUATION_BATCH = 256  # evaluation batch size; changing it changes results bit for bit


Watch = Callable[[Epoch, nn.Module], None]
# Called after each step with the training so far, the batch and its loss, a tensor on the device.
WatchStep = Callable[["Fit", Batch, torch.Tensor], None]


def train(
    settings: RunSettings,
    source: Windows,
    make_model: Callable[[], nn.Module],
    watch: Watch | None = None,
    watch_step: WatchStep | None = None,
) -> RunRecord:
    """Train until validation accuracy stops rising, restore the best weights, test once.

    torch's global generator is restored after the run.

    Args:
        settings: Settings of the run.
        source: The windows, a `WindowSource` or `ArrayWindows`.
        make_model: Builds the network; its weights come from torch's global generator.
        watch: Called after each epoch with the epoch and the network as it was evaluated.
        watch_step: Called after each step, while the gradients still exist.

    Returns:
        The record of the run; it has no test result if the loss became non-finite.

    Raises:
        ConfigError: The settings cannot be used.
        DataError: A subject of the split has no windows.
        LeakageError: A batch has a window of a subject of another side.
    """
    started = time.perf_counter()
    device = pick_device(settings.device)
    with (
        repeatable(settings.threads, settings.precision),
        isolated(settings.seed("weights"), device),
    ):
        model = make_model().to(device)
        optimizer = build_optimizer(
            settings.optimizer,
            model,
            settings.lr,
            settings.weight_decay,
            seed=settings.seed("labels"),
            **settings.optimizer_settings,
        )
        split = settings.split
        normalize = make_normalize(settings.normalization, source, split.train, device)
        training = Side("training", source, split.train, normalize, device)
        validation = Side("validation", source, split.validation, normalize, device)
        fit = Fit(settings, model, optimizer, training, validation, source.n_classes)
        fit.watch, fit.watch_step = watch, watch_step
        reason = fit.run()
        test = trials = None
        if not reason:
            model.load_state_dict(fit.best_weights)
            held_out = Side("test", source, split.test, normalize, device)
            logits = predict(model, held_out, source.n_classes)
            labels = held_out.labels
            test = measure(labels, logits.argmax(axis=1), source.n_classes)
            trials = measure(*vote(logits, labels, held_out.trial_ids), source.n_classes)
    counts = np.bincount(training.labels, minlength=source.n_classes)
    return RunRecord(
        status="diverged" if reason else "done",
        reason=reason,
        history=tuple(fit.history),
        best_epoch=fit.best_epoch,
        test=test,
        test_trials=trials,
        train_class_counts=tuple(int(count) for count in counts),
        parameters=sum(p.numel() for p in model.parameters()),
        steps=fit.steps,
        traces=fit.traces.result,
        device=str(device),
        elapsed_s=time.perf_counter() - started,
        beta2_by_tensor=fit.traces.beta2_by_tensor,
    )


class Fit:
    """The training of one network with early stopping; keeps the best weights."""

    def __init__(
        self,
        settings: RunSettings,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        training: Side,
        validation: Side,
        n_classes: int,
    ) -> None:
        self.settings = settings
        self.model = model
        self.optimizer = optimizer
        self.training = training
        self.validation = validation
        self.n_classes = n_classes
        self.watch: Watch | None = None
        self.watch_step: WatchStep | None = None
        self.traces = Traces(optimizer, model)
        self.precision = MixedPrecision(settings.precision, self.device, optimizer)
        self.history: list[Epoch] = []
        self.best_epoch: int | None = None
        self.best_weights: dict[str, torch.Tensor] = {}
        self.steps = 0

    def run(self) -> str:
        """Train until the end or early stopping; return the reason of a divergence, or ''."""
        best = -1.0
        for epoch in range(self.settings.max_epochs):
            started = time.perf_counter()
            train_loss = self.train_epoch(epoch)
            trained = time.perf_counter()
            if not math.isfinite(train_loss):
                return f"the training loss became {train_loss} in epoch {epoch + 1}"
            if isinstance(self.optimizer, TwoModes):
                self.optimizer.eval()  # schedule-free: evaluate at the averaged weights
            logits = predict(self.model, self.validation, self.n_classes)
            loss, accuracy = score(logits, self.validation.labels)
            if not math.isfinite(loss):
                return f"the validation loss became {loss} in epoch {epoch + 1}"
            self.history.append(
                Epoch(train_loss, loss, accuracy, trained - started, time.perf_counter() - trained)
            )
            if self.watch is not None:
                self.watch(self.history[-1], self.model)
            if accuracy > best:  # strictly: the first of equal epochs is kept
                best, self.best_epoch = accuracy, epoch
                self.best_weights = copy.deepcopy(self.model.state_dict())
            elif self.best_epoch is not None and epoch - self.best_epoch >= self.settings.patience:
                break
        return ""

    def train_epoch(self, epoch: int) -> float:
        """Take one step per batch and return the mean loss over the windows."""
        settings, model, optimizer = self.settings, self.model, self.optimizer
        order = epoch_batches(
            self.training,
            settings.batch_size,
            derive_substep(settings.seed("batches"), epoch),
            settings.subjects_per_batch,
        )
        seed_torch(derive_substep(settings.seed("dropout"), epoch))
        constrain = getattr(model, "apply_constraints", None) if settings.constraints else None
        after_step = optimizer.after_step if isinstance(optimizer, AfterStep) else None
        before_step = optimizer.before_step if isinstance(optimizer, BeforeStep) else None
        model.train()
        if isinstance(optimizer, TwoModes):
            optimizer.train()
        total, windows = torch.zeros((), device=self.device), 0
        for batch in self.training.batches(order):
            if before_step is not None:
                before_step(model, batch.inputs)  # Sophia on the next batch
            optimizer.zero_grad()
            with self.precision.forward():
                loss = cross_entropy(model(batch.inputs), batch.labels)
            self.precision.backward(loss)
            self.precision.step()
            if constrain is not None:
                constrain()  # max-norm of EEGNet
            if after_step is not None:
                after_step(model, batch.inputs)  # Sophia's second pass, every 10 steps
            self.traces.after_step()
            if self.watch_step is not None:
                self.watch_step(self, batch, loss.detach())
            total += loss.detach() * len(batch.subjects)
            windows += len(batch.subjects)
            self.steps += 1
        self.traces.end_epoch()
        return (total / windows).item()

    @property
    def device(self) -> torch.device:
        """Return the device of the network."""
        return next(self.model.parameters()).device


def predict(model: nn.Module, side: Side, n_classes: int) -> NDArray[np.float32]:
    """Return the logits of all windows of a side, (windows, classes), in evaluation mode."""
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(batch.inputs) for batch in side.in_order(EVALUATION_BATCH)])
    if logits.shape != (len(side.indices), n_classes):
        raise TrainingError(
            f"the network returns {tuple(logits.shape)} for {len(side.indices)} windows. "
            f"Expected logits of shape ({len(side.indices)}, {n_classes}), one per class."
        )
    return logits.cpu().numpy()


def score(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy."""
    loss = cross_entropy(torch.from_numpy(logits), torch.from_numpy(np.ascontiguousarray(labels)))
    return loss.item(), float((logits.argmax(axis=1) == labels).mean())
