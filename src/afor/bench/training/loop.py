"""Train runs: from settings and windows to records, without files or output.

    record = train(settings, source, lambda: build_backbone("eegnet", shape))

Every protocol is written once, over a list of runs; a run alone is a list of one.

All random numbers depend on the study seed, the dataset, the fold and the repetition, so a run
repeats bit for bit, and two runs that differ only in the optimizer are paired: same weights,
batches and dropout.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import CannotBundleError, ConfigError
from afor.bench.common.seeding import derive_substep, isolated, seed_torch
from afor.bench.data.window_source import Windows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.redundant import redundant_tensors
from afor.bench.models.stacked_eegnet import stacks_here
from afor.bench.training.batches import Side, Sides, epoch_batches, split_trials
from afor.bench.training.fit import Fit, Logits, Team, Watch, WatchStep
from afor.bench.training.metrics import measure_trials, measure_windows
from afor.bench.training.precision import AUTOCAST
from afor.bench.training.record import Epoch, NextSubject, RunRecord
from afor.bench.training.run_spec import Adaptation, RunSettings, shared_settings

Outcome = RunRecord | Exception
# Called when a run has ended, with its number and its share of the time in seconds.
Ended = Callable[[int, Outcome, float], None]


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
    itself. The other arguments are those of `train`; `ended` gets the record of a run, or the
    exception that its own code raised.

    Raises:
        ConfigError: The runs do not belong together.
        Exception: Whatever code raises that the runs share; those that have not ended will not.
    """
    _check_bundle(bundle)
    first, device = bundle[0], pick_device(bundle[0].device)
    started = _clocks()
    with repeatable(first.threads, first.precision), isolated(first.seed("weights"), device):
        sides = Sides(first, source, device)
        fits: dict[Fit, int] = {}
        held = _redundant(make_model, sides) if first.hold_redundant else ()
        for number, settings in enumerate(bundle):
            try:
                seed_torch(settings.seed("weights"))
                model = make_model().to(device)
                for name in held:
                    model.get_parameter(name).requires_grad_(False)
                if len(bundle) > 1 and not stacks_here(model):
                    raise CannotBundleError(
                        f"{type(model).__name__} has other bits in a bundle than by itself on this "
                        "machine: it does not run in compiled code."
                    )
                fit = Fit(settings, model, sides)
                fit.watch, fit.watch_step = watch, watch_step
                fits[fit] = number
            except Exception as error:  # noqa: BLE001  any error fails this run only
                ended(number, error, float((_clocks() - started)[0]))
        _add_share(list(fits), started)
        _Bundle(first, sides, ended).train(fits)


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


class _Bundle:
    """Runs that are trained at once; each is handed to `ended` when it has ended."""

    def __init__(self, settings: RunSettings, sides: Sides, ended: Ended) -> None:
        self._settings = settings  # what all runs share of them
        self._sides = sides
        self._ended = ended
        self._numbers: dict[Fit, int] = {}  # of the runs that have not ended: their positions

    def train(self, fits: Mapping[Fit, int]) -> None:
        """Train and test runs, which have these numbers."""
        self._numbers |= fits
        team = Team(list(fits))
        if self._settings.order == "stream":
            self._train_stream(team)
        else:
            self._train_epochs(team)
        self._test(team.active)

    def _train_epochs(self, team: Team) -> None:
        """Train until the last epoch or early stopping."""
        for epoch in range(self._settings.max_epochs):
            turns = range(epoch, epoch + 1)
            self._train_once(team, self._sides.training, turns, f"epoch {epoch + 1}")
            stopped = [fit for fit in team.active if not _goes_on(fit, epoch)]
            team.active = [fit for fit in team.active if fit not in stopped]
            self._test(stopped)
            if not team.active:
                return

    def _train_stream(self, team: Team) -> None:
        """Train on the subjects one after the other.

        Each subject but the first is scored before the training on them. The history has one entry
        per subject; nothing is selected by validation, the last weights are kept.
        """
        passes = self._settings.passes
        parts = list(self._sides.training.by_subject().items())
        order = np.random.default_rng(self._settings.seed("batches")).permutation(len(parts))
        for number, (name, part) in enumerate(parts[i] for i in order):
            if number:
                self._score_next(team, name, part)
            turns = range(number * passes, (number + 1) * passes)
            self._train_once(team, part, turns, f"subject {name}")
            if not team.active:
                return
        for fit in team.active:
            fit.keep_state(len(fit.history) - 1)

    def _train_once(self, team: Team, side: Side, turns: range, when: str) -> None:
        """Train on a side, once in each turn; then validate and add to the histories."""
        settings, fits, started = self._settings, list(team.active), _clocks()
        losses: dict[Fit, list[float]] = {fit: [] for fit in fits}
        for turn in turns:
            seed = derive_substep(settings.seed("batches"), turn)
            batches = epoch_batches(
                side, settings.batch_size, seed, settings.subjects_per_batch, settings.order
            )
            team.take_steps(side, batches, derive_substep(settings.seed("dropout"), turn))
            for fit in team.active:
                losses[fit].append(fit.mean_loss())
        train_s = _add_share(fits, started)
        for fit in team.active:
            fit.traces.end_epoch()
        scores, validation_s = self._scores(team, self._sides.validation)
        for fit, (loss, accuracy) in scores.items():
            train_loss = math.fsum(losses[fit]) / len(turns)
            if not math.isfinite(train_loss):
                fit.divergence = f"the training loss became {train_loss} in {when}"
            elif not math.isfinite(loss):
                fit.divergence = f"the validation loss became {loss} in {when}"
            else:
                fit.history.append(Epoch(train_loss, loss, accuracy, train_s, validation_s))
        self._hand_in_lost(team)
        team.each(lambda fit: fit.watch and fit.watch(fit.history[-1], fit.model))
        self._hand_in_lost(team)

    def _score_next(self, team: Team, name: str, part: Side) -> None:
        """Score the next subject of a stream."""
        for fit, (loss, accuracy) in self._scores(team, part)[0].items():
            if math.isfinite(loss):
                fit.prequential.append(NextSubject(name, len(part.indices), accuracy, loss))
            else:
                fit.divergence = f"the loss on subject {name} became {loss}"
        self._hand_in_lost(team)

    def _scores(self, team: Team, side: Side) -> tuple[dict[Fit, tuple[float, float]], float]:
        """Return loss and accuracy of each run on a side, and the time that each has spent."""
        fits, started = list(team.active), _clocks()
        team.each(Fit.set_evaluated_weights)
        logits = zip(team.active, team.predict(side), strict=True)
        scores = {fit: score(of_run, side.labels) for fit, of_run in logits}
        return scores, _add_share(fits, started)

    def _hand_in_lost(self, team: Team) -> None:
        """Hand in the runs that have failed or diverged."""
        team.active = [fit for fit in team.active if not fit.divergence]
        for fit in [fit for fit in self._numbers if fit.error or fit.divergence]:
            self._hand_in(fit, fit.error or self._record(fit))

    def _test(self, fits: Sequence[Fit]) -> None:
        """Test trained runs with their best weights, and hand them in."""
        for fit in fits:
            outcome: Outcome
            started = _clocks()
            try:
                outcome = self._tested(fit)
            except Exception as error:  # noqa: BLE001  any error fails this run only
                outcome = error
            _add_share([fit], started)
            self._hand_in(fit, outcome)

    def _tested(self, fit: Fit) -> RunRecord:
        """Return the record of a trained run with its test result."""
        side, before = self._sides.test, None
        if fit.settings.adaptation is None:
            fit.model.load_state_dict(fit.best_weights)
            logits = fit.predict(side)
        else:
            side, unadapted, logits = self._adapted(fit, fit.settings.adaptation)
            before = measure_windows(unadapted, side.labels)
            if not np.isfinite(logits).all():
                fit.divergence = "the logits became non-finite in the adaptation"
        record = replace(self._record(fit), before_adaptation=before)
        if fit.divergence:
            return record
        return replace(
            record,
            test=measure_windows(logits, side.labels),
            test_trials=measure_trials(logits, side.labels, side.trial_ids),
        )

    def _adapted(self, fit: Fit, adaptation: Adaptation) -> tuple[Side, Logits, Logits]:
        """Adapt to each test subject, each time from the end of the training.

        Returns:
            The windows that are tested, and their logits before and after the adaptation.
        """
        settings = fit.settings
        tested, before, after = [], [], []
        for number, side in enumerate(self._sides.test.by_subject().values()):
            first, rest = split_trials(side, adaptation.share)
            fit.model.load_state_dict(fit.best_weights)
            tested.append(rest.indices)
            before.append(fit.predict(rest))
            adapting = _adapting(fit)
            team, seed = Team([adapting]), derive_substep(settings.seed("adaptation"), number)
            for turn in range(adaptation.passes):
                batches = epoch_batches(first, settings.batch_size, derive_substep(seed, 2 * turn))
                team.take_steps(first, batches, derive_substep(seed, 2 * turn + 1))
            if adapting.error:
                raise adapting.error
            adapting.set_evaluated_weights()
            after.append(adapting.predict(rest))
        held_out = self._sides.test.part(np.concatenate(tested))
        return held_out, np.concatenate(before), np.concatenate(after)

    def _record(self, fit: Fit) -> RunRecord:
        """Return the record of a run without a test result."""
        counts = np.bincount(self._sides.training.labels, minlength=self._sides.n_classes)
        return RunRecord(
            status="diverged" if fit.divergence else "done",
            reason=fit.divergence,
            history=tuple(fit.history),
            best_epoch=fit.best_epoch,
            test=None,
            test_trials=None,
            train_class_counts=tuple(int(count) for count in counts),
            parameters=sum(p.numel() for p in fit.model.parameters()),
            steps=fit.steps,
            traces=fit.traces.result,
            device=str(fit.device),
            elapsed_s=0.0,  # set when the run is handed in, as the time of the processor is
            beta2_by_tensor=fit.traces.beta2_by_tensor,
            prequential=tuple(fit.prequential),
        )

    def _hand_in(self, fit: Fit, outcome: Outcome) -> None:
        elapsed_s, processor_s = fit.spent_s.tolist()
        if isinstance(outcome, RunRecord):
            on_cpu = outcome.device == "cpu"
            outcome = replace(
                outcome, elapsed_s=elapsed_s, processor_s=processor_s if on_cpu else None
            )
        self._ended(self._numbers.pop(fit), outcome, elapsed_s)


def _redundant(make_model: Callable[[], nn.Module], sides: Sides) -> tuple[str, ...]:
    """Return the tensors of a network that cannot change what it computes in training."""
    _, channels, samples = sides.training.load(sides.training.indices[:2]).inputs.shape
    shape = InputShape.unnamed(channels, samples, 1.0, sides.n_classes)
    return redundant_tensors(make_model, shape)


def _goes_on(fit: Fit, epoch: int) -> bool:
    """Keep the weights of the best epoch; return False if the patience is used up."""
    accuracy = fit.history[-1].validation_accuracy
    if accuracy > fit.best_accuracy or fit.settings.weights == "last":
        # strictly above: the first of equal epochs is kept
        fit.best_accuracy = accuracy
        fit.keep_state(epoch)
    return fit.best_epoch is None or epoch - fit.best_epoch < fit.settings.patience


def _adapting(fit: Fit) -> Fit:
    """Return a training of a trained network, for windows of a test subject.

    Contamination is of training subjects alone. A schedule is over: a kept state goes on with the
    learning rate that it had, a reset one with the largest.
    """
    clean = fit.settings.changed(contamination=None, schedule="constant")
    adapting = Fit(clean, fit.model, fit.sides)
    if fit.settings.adaptation is not None and fit.settings.adaptation.state == "kept":
        adapting.optimizer.load_state_dict(copy.deepcopy(fit.best_state))
    return adapting


def _clocks() -> NDArray[np.float64]:
    """Return the seconds of the clock and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def _add_share(fits: Sequence[Fit], started: NDArray[np.float64]) -> float:
    """Add an equal share of the time since `started` to each run; return it in seconds."""
    share = (_clocks() - started) / max(len(fits), 1)
    for fit in fits:
        fit.spent_s += share
    return float(share[0])


def score(logits: Logits, labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy."""
    loss = cross_entropy(torch.from_numpy(logits), torch.from_numpy(np.ascontiguousarray(labels)))
    return loss.item(), float((logits.argmax(axis=1) == labels).mean())
