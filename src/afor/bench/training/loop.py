"""Train one run: from settings and windows to a record, without files or output.

    record = train(settings, source, lambda: build_backbone("eegnet", shape))

All random numbers depend on the study seed, the dataset, the fold and the draw, so a run repeats
bit for bit, and two runs that differ only in the optimizer are paired: same weights, batches and
dropout.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import TrainingError
from afor.bench.common.seeding import derive_substep, isolated, seed_torch
from afor.bench.optimizers.build import AfterStep, BeforeStep, ForSubject, TwoModes, build_optimizer
from afor.bench.training.batches import (
    Batch,
    Side,
    Windows,
    epoch_batches,
    make_normalize,
    split_trials,
)
from afor.bench.training.contamination import contaminate
from afor.bench.training.controller_trace import Traces
from afor.bench.training.metrics import measure_trials, measure_windows
from afor.bench.training.precision import MixedPrecision
from afor.bench.training.record import Epoch, NextSubject, RunRecord
from afor.bench.training.run_spec import Adaptation, RunSettings

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
    started, processor_started = time.perf_counter(), time.process_time()
    device = pick_device(settings.device)
    with (
        repeatable(settings.threads, settings.precision),
        isolated(settings.seed("weights"), device),
    ):
        model = make_model().to(device)
        optimizer = _make_optimizer(settings, model)
        split = settings.split
        normalize = make_normalize(settings.normalization, source, split.train, device)
        training = Side("training", source, split.train, normalize, device)
        validation = Side("validation", source, split.validation, normalize, device)
        fit = Fit(settings, model, optimizer, training, validation, source.n_classes)
        fit.watch, fit.watch_step = watch, watch_step
        reason = fit.run_stream() if settings.order == "stream" else fit.run()
        test = trials = before = None
        if not reason:
            model.load_state_dict(fit.best_weights)
            held_out = Side("test", source, split.test, normalize, device)
            if settings.adaptation is None:
                logits = predict(model, held_out, source.n_classes)
            else:
                held_out, before_logits, logits = fit.adapt(held_out, settings.adaptation)
                before = measure_windows(before_logits, held_out.labels)
                if not np.isfinite(logits).all():
                    reason = "the logits became non-finite in the adaptation"
        if not reason:
            test = measure_windows(logits, held_out.labels)
            trials = measure_trials(logits, held_out.labels, held_out.trial_ids)
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
        prequential=tuple(fit.prequential),
        before_adaptation=before,
        processor_s=time.process_time() - processor_started if device.type == "cpu" else None,
    )


def _make_optimizer(settings: RunSettings, model: nn.Module) -> torch.optim.Optimizer:
    return build_optimizer(
        settings.optimizer,
        model,
        settings.lr,
        settings.weight_decay,
        seed=settings.seed("labels"),
        **settings.optimizer_settings,
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
        self.best_state: dict[str, Any] = {}  # of the optimizer; kept for an adaptation alone
        self.prequential: list[NextSubject] = []
        self.steps = 0

    def run(self) -> str:
        """Train until the end or early stopping; return the reason of a divergence, or ''."""
        best = -1.0
        for epoch in range(self.settings.max_epochs):
            started = time.perf_counter()
            train_loss = self.train_epoch(epoch)
            if fault := self._end_epoch(train_loss, started, f"epoch {epoch + 1}"):
                return fault
            accuracy = self.history[-1].validation_accuracy
            if accuracy > best or self.settings.weights == "last":
                # strictly above: the first of equal epochs is kept
                best, self.best_epoch = accuracy, epoch
                self._keep_state()
            elif self.best_epoch is not None and epoch - self.best_epoch >= self.settings.patience:
                break
        return ""

    def run_stream(self) -> str:
        """Train on the subjects one after the other; return the reason of a divergence, or ''.

        Each subject but the first is scored before the training on them. The history has one entry
        per subject; nothing is selected by validation, the last weights are kept.
        """
        settings = self.settings
        parts = list(self.training.by_subject().items())
        order = np.random.default_rng(settings.seed("batches")).permutation(len(parts))
        for number, (name, part) in enumerate(parts[i] for i in order):
            if number:
                loss, accuracy = self._evaluate(part)
                if not math.isfinite(loss):
                    return f"the loss on subject {name} became {loss}"
                self.prequential.append(NextSubject(name, len(part.indices), accuracy, loss))
            started = time.perf_counter()
            losses = []
            for turn in range(number * settings.passes, (number + 1) * settings.passes):
                seed = derive_substep(settings.seed("batches"), turn)
                batches = epoch_batches(part, settings.batch_size, seed)
                dropout_seed = derive_substep(settings.seed("dropout"), turn)
                losses.append(self.train_batches(batches, dropout_seed))
            self.traces.end_epoch()
            train_loss = math.fsum(losses) / len(losses)
            if fault := self._end_epoch(train_loss, started, f"subject {name}"):
                return fault
        self.best_epoch = len(self.history) - 1
        self._keep_state()
        return ""

    def adapt(
        self, held_out: Side, adaptation: Adaptation
    ) -> tuple[Side, NDArray[np.float32], NDArray[np.float32]]:
        """Adapt to each test subject, each time from the end of the training.

        Returns:
            The windows that are tested, and their logits before and after the adaptation. Logits
            are NaN after an adaptation that diverged.
        """
        settings = self.settings
        tested, before, after = [], [], []
        for number, side in enumerate(held_out.by_subject().values()):
            first, rest = split_trials(side, adaptation.share)
            self.model.load_state_dict(self.best_weights)
            before.append(predict(self.model, rest, self.n_classes))
            optimizer = _make_optimizer(settings, self.model)
            if adaptation.state == "kept":
                optimizer.load_state_dict(copy.deepcopy(self.best_state))
            fit = Fit(settings, self.model, optimizer, first, rest, self.n_classes)
            subject_seed = derive_substep(settings.seed("adaptation"), number)
            for turn in range(adaptation.passes):
                batches_seed, dropout_seed = (
                    derive_substep(subject_seed, 2 * turn + purpose) for purpose in (0, 1)
                )
                batches = epoch_batches(first, settings.batch_size, batches_seed)
                fit.train_batches(batches, dropout_seed)
            if isinstance(optimizer, TwoModes):
                optimizer.eval()
            after.append(predict(self.model, rest, self.n_classes))
            tested.append(rest.indices)
        side = held_out.part(np.concatenate(tested))
        return side, np.concatenate(before), np.concatenate(after)

    def train_epoch(self, epoch: int) -> float:
        """Take one step per batch of an epoch and return the mean loss over the windows."""
        settings = self.settings
        batches = epoch_batches(
            self.training,
            settings.batch_size,
            derive_substep(settings.seed("batches"), epoch),
            settings.subjects_per_batch,
            settings.order,
        )
        loss = self.train_batches(batches, derive_substep(settings.seed("dropout"), epoch))
        self.traces.end_epoch()
        return loss

    def train_batches(self, batches: Sequence[NDArray[np.int64]], dropout_seed: int) -> float:
        """Take one step per batch and return the mean loss over the windows."""
        settings, model, optimizer = self.settings, self.model, self.optimizer
        seed_torch(dropout_seed)
        constrain = getattr(model, "apply_constraints", None) if settings.constraints else None
        after_step = optimizer.after_step if isinstance(optimizer, AfterStep) else None
        before_step = optimizer.before_step if isinstance(optimizer, BeforeStep) else None
        for_subject = optimizer.for_subject if isinstance(optimizer, ForSubject) else None
        model.train()
        if isinstance(optimizer, TwoModes):
            optimizer.train()
        total, windows = torch.zeros((), device=self.device), 0
        for batch in self.training.batches(batches):
            if settings.contamination is not None:
                seed = settings.seed("contamination")
                batch = contaminate(batch, settings.contamination, seed, self.steps, self.n_classes)
            if before_step is not None:
                before_step(model, batch.inputs)  # Sophia on the next batch
            optimizer.zero_grad()
            with self.precision.forward():
                loss = cross_entropy(model(batch.inputs), batch.labels)
            self.precision.backward(loss)
            if settings.clip_norm is not None:
                self.precision.unscale(optimizer)
                clip_grad_norm_(model.parameters(), settings.clip_norm)
            if for_subject is not None:
                for_subject(_only_subject(batch))
            self.precision.step(optimizer)
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
        return (total / windows).item()

    def _evaluate(self, side: Side) -> tuple[float, float]:
        """Return the loss and the accuracy on a side."""
        if isinstance(self.optimizer, TwoModes):
            self.optimizer.eval()  # schedule-free: evaluate at the averaged weights
        return score(predict(self.model, side, self.n_classes), side.labels)

    def _end_epoch(self, train_loss: float, started: float, when: str) -> str:
        """Validate and add to the history; return the reason of a divergence, or ''."""
        trained = time.perf_counter()
        if not math.isfinite(train_loss):
            return f"the training loss became {train_loss} in {when}"
        loss, accuracy = self._evaluate(self.validation)
        if not math.isfinite(loss):
            return f"the validation loss became {loss} in {when}"
        self.history.append(
            Epoch(train_loss, loss, accuracy, trained - started, time.perf_counter() - trained)
        )
        if self.watch is not None:
            self.watch(self.history[-1], self.model)
        return ""

    def _keep_state(self) -> None:
        self.best_weights = copy.deepcopy(self.model.state_dict())
        if self.settings.adaptation is not None:
            self.best_state = copy.deepcopy(self.optimizer.state_dict())

    @property
    def device(self) -> torch.device:
        """Return the device of the network."""
        return next(self.model.parameters()).device


def _only_subject(batch: Batch) -> int:
    """Return the subject of a batch; raise TrainingError if it has several."""
    first = int(batch.subjects[0])
    if (batch.subjects != first).any():
        raise TrainingError(
            "the optimizer needs batches of one subject, and this batch has several. "
            'Set order = "blocks" or "stream", or subjects_per_batch = 1.'
        )
    return first


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
