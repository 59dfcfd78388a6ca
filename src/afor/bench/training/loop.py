"""Train one run: from settings and windows to a record, without files or output.

    record = train(settings, source, lambda: build_backbone("eegnet", shape))

A run is a program that asks for steps and predictions and is answered: alone, or together with the
other runs of its bundle (`serving`).

All random numbers depend on the study seed, the dataset, the fold and the draw, so a run repeats
bit for bit, and two runs that differ only in the optimizer are paired: same weights, batches and
dropout.
"""

import copy
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import ConfigError, TrainingError
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
from afor.bench.training.precision import AUTOCAST, MixedPrecision
from afor.bench.training.record import Epoch, NextSubject, RunRecord
from afor.bench.training.run_spec import Adaptation, RunSettings, shared_settings
from afor.bench.training.serving import (
    PredictRequest,
    Request,
    StackServer,
    TrainRequest,
    check_stackable,
    serve_alone,
)

Outcome = RunRecord | Exception
# Called when a run has ended, with its number and its share of the time in seconds.
Ended = Callable[[int, Outcome, float], None]
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
    outcomes: list[Outcome] = []

    def keep(_number: int, outcome: Outcome, _elapsed_s: float) -> None:
        outcomes.append(outcome)

    train_bundle([settings], source, make_model, keep, watch, watch_step)
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    return outcomes[0]


def train_bundle(
    bundle: Sequence[RunSettings],
    source: Windows,
    make_model: Callable[[], nn.Module],
    ended: Ended,
    watch: Watch | None = None,
    watch_step: WatchStep | None = None,
) -> None:
    """Train several runs that differ in optimizer, clipping or kept state, as one network.

    Each run has its own weights, optimizer, early stopping and record, and the bits that it has
    alone. A run that cannot be trained with the others ends with CannotBundleError: train it by
    itself.

    Args:
        bundle: Settings of the runs, from the same split and seeds.
        source: The windows.
        make_model: Builds the network; its weights come from torch's global generator.
        ended: Called when a run ends, with its position in the bundle, its record or the exception
            that it raised, and its share of the time in seconds.
        watch: Called after each epoch of each run.
        watch_step: Called after each step of each run.

    Raises:
        ConfigError: The runs do not belong together.
    """
    _check_bundle(bundle)
    first, device = bundle[0], pick_device(bundle[0].device)
    server = StackServer() if len(bundle) > 1 else None
    started = _clocks()
    with repeatable(first.threads, first.precision), isolated(first.seed("weights"), device):
        sides = _Sides(first, source, device)
        setup_s = (_clocks() - started) / len(bundle)
        runs = [_Run(number, setup_s) for number in range(len(bundle))]
        for run, settings in zip(runs, bundle, strict=True):
            run.program = _program(
                settings, sides, make_model, len(bundle), run.seconds, watch, watch_step
            )
        waiting = [run for run in runs if run.go_on(None, ended)]
        while waiting:
            by_work: dict[object, list[_Run]] = {}
            for run in waiting:
                by_work.setdefault(run.request.work, []).append(run)
            waiting = []
            for team in by_work.values():
                started = _clocks()
                answers = _answers(server, [run.request for run in team])
                share_s = (_clocks() - started) / len(team)
                for run, answer in zip(team, answers, strict=True):
                    run.spent_s = run.spent_s + share_s
                    if run.go_on(answer, ended):
                        waiting.append(run)


def _answers(server: StackServer | None, requests: Sequence[Request]) -> list[Any]:
    """Return the answers to equal requests; an exception is the answer where one was raised."""
    try:
        return [serve_alone(requests[0])] if server is None else server.serve(requests)
    except Exception as error:  # noqa: BLE001  raised again inside the runs
        return [error] * len(requests)


class _Sides:
    """What the runs of a bundle share: the windows of their split, normalised."""

    def __init__(self, settings: RunSettings, source: Windows, device: torch.device) -> None:
        self._split, self._device = settings.split, device
        self._normalize = make_normalize(settings.normalization, source, self._split.train, device)
        self.source = source
        self.device = device
        self.training = self._side("training", self._split.train)
        self.validation = self._side("validation", self._split.validation)

    def test(self) -> Side:
        """Return the test subjects; they are not touched before."""
        return self._side("test", self._split.test)

    def _side(self, role: str, names: Sequence[str]) -> Side:
        return Side(role, self.source, names, self._normalize, self._device)


class _Run:
    """One run of a bundle: its program, what it asks for, and its share of the time."""

    program: Generator[Request, Any, RunRecord]
    request: Request

    def __init__(self, number: int, spent_s: NDArray[np.float64]) -> None:
        self.number = number
        self.spent_s = spent_s  # as `_clocks`

    def seconds(self) -> float:
        """Return its share of the time so far."""
        return float(self.spent_s[0])

    def go_on(self, answer: Any, ended: Ended) -> bool:
        """Give it the answer to its request; return False if the run has ended."""
        started = _clocks()
        outcome: Outcome
        try:
            if isinstance(answer, Exception):
                self.request = self.program.throw(answer)
            else:
                self.request = self.program.send(answer)
            return True
        except StopIteration as end:
            outcome = end.value
        except Exception as error:  # noqa: BLE001  the error of one run, given to `ended`
            outcome = error
        finally:
            self.spent_s = self.spent_s + (_clocks() - started)
        elapsed_s, processor_s = self.spent_s.tolist()
        if isinstance(outcome, RunRecord):
            on_cpu = outcome.device == "cpu"
            outcome = replace(
                outcome, elapsed_s=elapsed_s, processor_s=processor_s if on_cpu else None
            )
        ended(self.number, outcome, elapsed_s)
        return False


def _clocks() -> NDArray[np.float64]:
    """Return the seconds of the clock and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def _check_bundle(bundle: Sequence[RunSettings]) -> None:
    """Raise ConfigError unless the runs may share their batches and their network."""
    first = bundle[0]
    if len(bundle) > 1 and first.precision in AUTOCAST:
        raise ConfigError(f'precision = "{first.precision}" cannot be bundled. Set bundle = false.')
    for settings in bundle:
        if shared_settings(settings) != shared_settings(first):
            raise ConfigError(
                "the runs of a bundle differ in more than the optimizer, its settings, learning "
                "rate and weight decay, clip_norm and the kept state of an adaptation."
            )


def _program(
    settings: RunSettings,
    sides: _Sides,
    make_model: Callable[[], nn.Module],
    runs: int,
    seconds: Callable[[], float],
    watch: Watch | None,
    watch_step: WatchStep | None,
) -> Generator[Request, Any, RunRecord]:
    """Train and test one run; the program yields what it needs and gets the answer."""
    seed_torch(settings.seed("weights"))
    model = make_model().to(sides.device)
    if runs > 1:
        check_stackable(model)
    fit = _make_fit(settings, model, sides)
    fit.seconds, fit.watch, fit.watch_step = seconds, watch, watch_step
    reason = yield from (fit.run_stream() if settings.order == "stream" else fit.run())
    test = trials = before = None
    if not reason:
        model.load_state_dict(fit.best_weights)
        held_out = sides.test()
        if settings.adaptation is None:
            logits = yield PredictRequest(fit, held_out)
        else:
            held_out, before_logits, logits = yield from fit.adapt(held_out, settings.adaptation)
            before = measure_windows(before_logits, held_out.labels)
            if not np.isfinite(logits).all():
                reason = "the logits became non-finite in the adaptation"
    if not reason:
        test = measure_windows(logits, held_out.labels)
        trials = measure_trials(logits, held_out.labels, held_out.trial_ids)
    counts = np.bincount(sides.training.labels, minlength=fit.n_classes)
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
        device=str(sides.device),
        elapsed_s=0.0,  # set when the run has ended, as the time of the processor is
        beta2_by_tensor=fit.traces.beta2_by_tensor,
        prequential=tuple(fit.prequential),
        before_adaptation=before,
    )


def make_fit(
    settings: RunSettings, model: nn.Module, source: Windows, device: torch.device
) -> "Fit":
    """Return a training that has not begun.

    Args:
        settings: Settings of the run.
        model: The network, on the device.
        source: The windows.
        device: The device.
    """
    return _make_fit(settings, model, _Sides(settings, source, device))


def _make_fit(settings: RunSettings, model: nn.Module, sides: _Sides) -> "Fit":
    optimizer = _make_optimizer(settings, model)
    n_classes = sides.source.n_classes
    return Fit(settings, model, optimizer, sides.training, sides.validation, n_classes)


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
        self.seconds: Callable[[], float] = time.perf_counter  # in a bundle, its share
        self.traces = Traces(optimizer, model)
        self.precision = MixedPrecision(settings.precision, self.device, optimizer)
        self.history: list[Epoch] = []
        self.best_epoch: int | None = None
        self.best_weights: dict[str, torch.Tensor] = {}
        self.best_state: dict[str, Any] = {}  # of the optimizer; kept for an adaptation alone
        self.prequential: list[NextSubject] = []
        self.steps = 0
        self._after_step = optimizer.after_step if isinstance(optimizer, AfterStep) else None
        self._before_step = optimizer.before_step if isinstance(optimizer, BeforeStep) else None
        self._for_subject = optimizer.for_subject if isinstance(optimizer, ForSubject) else None
        constrain = getattr(model, "apply_constraints", None)
        self._constrain = constrain if settings.constraints else None
        self._total = torch.zeros(())  # the loss summed over the windows of an epoch
        self._windows = 0

    def run(self) -> Generator[Request, Any, str]:
        """Train until the end or early stopping; return the reason of a divergence, or ''."""
        best = -1.0
        for epoch in range(self.settings.max_epochs):
            started = self.seconds()
            train_loss = yield self.epoch(epoch)
            self.traces.end_epoch()
            if fault := (yield from self._end_epoch(train_loss, started, f"epoch {epoch + 1}")):
                return fault
            accuracy = self.history[-1].validation_accuracy
            if accuracy > best or self.settings.weights == "last":
                # strictly above: the first of equal epochs is kept
                best, self.best_epoch = accuracy, epoch
                self._keep_state()
            elif self.best_epoch is not None and epoch - self.best_epoch >= self.settings.patience:
                break
        return ""

    def run_stream(self) -> Generator[Request, Any, str]:
        """Train on the subjects one after the other; return the reason of a divergence, or ''.

        Each subject but the first is scored before the training on them. The history has one entry
        per subject; nothing is selected by validation, the last weights are kept.
        """
        settings = self.settings
        parts = list(self.training.by_subject().items())
        order = np.random.default_rng(settings.seed("batches")).permutation(len(parts))
        for number, (name, part) in enumerate(parts[i] for i in order):
            if number:
                loss, accuracy = yield from self._evaluate(part)
                if not math.isfinite(loss):
                    return f"the loss on subject {name} became {loss}"
                self.prequential.append(NextSubject(name, len(part.indices), accuracy, loss))
            started = self.seconds()
            losses = []
            for turn in range(number * settings.passes, (number + 1) * settings.passes):
                seed = derive_substep(settings.seed("batches"), turn)
                batches = epoch_batches(part, settings.batch_size, seed)
                dropout_seed = derive_substep(settings.seed("dropout"), turn)
                losses.append((yield TrainRequest(self, batches, dropout_seed)))
            self.traces.end_epoch()
            train_loss = math.fsum(losses) / len(losses)
            if fault := (yield from self._end_epoch(train_loss, started, f"subject {name}")):
                return fault
        self.best_epoch = len(self.history) - 1
        self._keep_state()
        return ""

    def adapt(
        self, held_out: Side, adaptation: Adaptation
    ) -> Generator[Request, Any, tuple[Side, NDArray[np.float32], NDArray[np.float32]]]:
        """Adapt to each test subject, each time from the end of the training.

        Returns:
            The windows that are tested, and their logits before and after the adaptation. Logits
            are NaN after an adaptation that diverged.
        """
        settings = self.settings
        clean = replace(settings, contamination=None)  # of training subjects alone
        tested, before, after = [], [], []
        for number, side in enumerate(held_out.by_subject().values()):
            first, rest = split_trials(side, adaptation.share)
            self.model.load_state_dict(self.best_weights)
            before.append((yield PredictRequest(self, rest)))
            optimizer = _make_optimizer(settings, self.model)
            if adaptation.state == "kept":
                optimizer.load_state_dict(copy.deepcopy(self.best_state))
            fit = Fit(clean, self.model, optimizer, first, rest, self.n_classes)
            subject_seed = derive_substep(settings.seed("adaptation"), number)
            for turn in range(adaptation.passes):
                batches_seed, dropout_seed = (
                    derive_substep(subject_seed, 2 * turn + purpose) for purpose in (0, 1)
                )
                batches = epoch_batches(first, settings.batch_size, batches_seed)
                yield TrainRequest(fit, batches, dropout_seed)
            if isinstance(optimizer, TwoModes):
                optimizer.eval()
            after.append((yield PredictRequest(fit, rest)))
            tested.append(rest.indices)
        side = held_out.part(np.concatenate(tested))
        return side, np.concatenate(before), np.concatenate(after)

    def epoch(self, epoch: int) -> TrainRequest:
        """Ask for one step per batch of an epoch."""
        settings = self.settings
        batches = epoch_batches(
            self.training,
            settings.batch_size,
            derive_substep(settings.seed("batches"), epoch),
            settings.subjects_per_batch,
            settings.order,
        )
        return TrainRequest(self, batches, derive_substep(settings.seed("dropout"), epoch))

    def train_batches(self, batches: Sequence[NDArray[np.int64]], dropout_seed: int) -> float:
        """Take one step per batch and return the mean loss over the windows."""
        seed_torch(dropout_seed)
        self.begin_batches()
        for loaded in self.training.batches(batches):
            batch = self.contaminated(loaded)
            self.before_forward(batch)
            self.optimizer.zero_grad()
            with self.precision.forward():
                loss = cross_entropy(self.model(batch.inputs), batch.labels)
            self.precision.backward(loss)
            self.take_step(batch, loss.detach())
        return self.mean_loss()

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
        return contaminate(batch, self.settings.contamination, seed, self.steps, self.n_classes)

    def before_forward(self, batch: Batch) -> None:
        """Do what the optimizer needs before the forward pass."""
        if self._before_step is not None:
            self._before_step(self.model, batch.inputs)  # Sophia on the next batch

    def take_step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Take one step with the gradients that the parameters have now."""
        settings, optimizer = self.settings, self.optimizer
        if settings.clip_norm is not None:
            self.precision.unscale(optimizer)
            clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        if self._for_subject is not None:
            self._for_subject(_only_subject(batch))
        self.precision.step(optimizer)
        if self._constrain is not None:
            self._constrain()  # max-norm of EEGNet
        if self._after_step is not None:
            self._after_step(self.model, batch.inputs)  # Sophia's second pass, every 10 steps
        self.traces.after_step()
        if self.watch_step is not None:
            self.watch_step(self, batch, loss)
        self._total += loss * len(batch.subjects)
        self._windows += len(batch.subjects)
        self.steps += 1

    def mean_loss(self) -> float:
        """Return the mean loss over the windows since `begin_batches`."""
        return (self._total / self._windows).item()

    def _evaluate(self, side: Side) -> Generator[Request, Any, tuple[float, float]]:
        """Return the loss and the accuracy on a side."""
        if isinstance(self.optimizer, TwoModes):
            self.optimizer.eval()  # schedule-free: evaluate at the averaged weights
        logits = yield PredictRequest(self, side)
        return score(logits, side.labels)

    def _end_epoch(
        self, train_loss: float, started: float, when: str
    ) -> Generator[Request, Any, str]:
        """Validate and add to the history; return the reason of a divergence, or ''."""
        trained = self.seconds()
        if not math.isfinite(train_loss):
            return f"the training loss became {train_loss} in {when}"
        loss, accuracy = yield from self._evaluate(self.validation)
        if not math.isfinite(loss):
            return f"the validation loss became {loss} in {when}"
        self.history.append(
            Epoch(train_loss, loss, accuracy, trained - started, self.seconds() - trained)
        )
        if self.watch is not None:
            self.watch(self.history[-1], self.model)
        return ""

    def _keep_state(self) -> None:
        state = self.model.state_dict()
        # Clones, because a deep copy of a view copies the weights of all runs of a bundle.
        self.best_weights = {
            name: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
            for name, value in state.items()
        }
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


def score(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy."""
    loss = cross_entropy(torch.from_numpy(logits), torch.from_numpy(np.ascontiguousarray(labels)))
    return loss.item(), float((logits.argmax(axis=1) == labels).mean())
