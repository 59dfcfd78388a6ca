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
from afor.bench.models.input_shape import InputShape
from afor.bench.models.redundant import redundant_tensors
from afor.bench.models.stacked_eegnet import stacks_here
from afor.bench.training.batches import Side, Windows, epoch_batches, make_normalize, split_trials
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
        sides = _Sides(first, source, device)
        fits: dict[Fit, int] = {}
        held = sides.redundant(make_model) if first.hold_redundant else ()
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
                fit = Fit(
                    *(settings, model, sides.training, sides.validation, source.n_classes),
                    watch=watch,
                    watch_step=watch_step,
                )
                fits[fit] = number
            except Exception as error:  # noqa: BLE001  any error fails this run only
                ended(number, error, float((_clocks() - started)[0]))
        _add_share(list(fits), started)
        if fits:
            _Bundle(fits, sides, ended).train()


def make_fit(settings: RunSettings, model: nn.Module, source: Windows, device: torch.device) -> Fit:
    """Return a training that has not begun, of a network that is on the device."""
    sides = _Sides(settings, source, device)
    return Fit(settings, model, sides.training, sides.validation, source.n_classes)


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


class _Sides:
    """What the runs of a bundle share: the windows of their split, normalised."""

    def __init__(self, settings: RunSettings, source: Windows, device: torch.device) -> None:
        self._split, self._device = settings.split, device
        self._normalize = make_normalize(settings.normalization, source, self._split.train, device)
        self._source = source
        self.training = self._side("training", self._split.train)
        self.validation = self._side("validation", self._split.validation)

    def test(self) -> Side:
        """Return the test subjects; they are not touched before."""
        return self._side("test", self._split.test)

    def redundant(self, make_model: Callable[[], nn.Module]) -> tuple[str, ...]:
        """Return the tensors of a network that cannot change what it computes in training."""
        _, channels, samples = self.training.load(self.training.indices[:2]).inputs.shape
        shape = InputShape.unnamed(channels, samples, 1.0, self._source.n_classes)
        return redundant_tensors(make_model, shape)

    def _side(self, role: str, names: Sequence[str]) -> Side:
        return Side(role, self._source, names, self._normalize, self._device)


class _Bundle:
    """Trains and tests runs at once; each is handed to `ended` when it has ended.

    `numbers` are their positions in the bundle.
    """

    def __init__(self, numbers: Mapping[Fit, int], sides: _Sides, ended: Ended) -> None:
        self._numbers = dict(numbers)
        self._sides = sides
        self._ended = ended
        self._settings = next(iter(numbers)).settings  # what all runs share of them

    def train(self) -> None:
        """Train all runs to their end."""
        team = Team(list(self._numbers))
        if self._settings.order == "stream":
            self._train_stream(team)
        else:
            self._train_epochs(team)
        self._test(team.active)

    def _train_epochs(self, team: Team) -> None:
        """Train until the last epoch or early stopping."""
        settings, side = self._settings, self._sides.training
        for epoch in range(settings.max_epochs):
            batches = epoch_batches(
                side,
                settings.batch_size,
                derive_substep(settings.seed("batches"), epoch),
                settings.subjects_per_batch,
                settings.order,
            )
            dropout_seed = derive_substep(settings.seed("dropout"), epoch)
            fits, started = list(team.active), _clocks()
            team.take_steps(side, batches, dropout_seed)
            losses = {fit: fit.mean_loss() for fit in team.active}
            self._end_epoch(team, losses, _add_share(fits, started), f"epoch {epoch + 1}")
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
        settings = self._settings
        parts = list(self._sides.training.by_subject().items())
        order = np.random.default_rng(settings.seed("batches")).permutation(len(parts))
        for number, (name, part) in enumerate(parts[i] for i in order):
            if number:
                self._score_next(team, name, part)
            fits, started = list(team.active), _clocks()
            losses: dict[Fit, list[float]] = {fit: [] for fit in fits}
            for turn in range(number * settings.passes, (number + 1) * settings.passes):
                seed = derive_substep(settings.seed("batches"), turn)
                batches = epoch_batches(part, settings.batch_size, seed)
                team.take_steps(part, batches, derive_substep(settings.seed("dropout"), turn))
                for fit in team.active:
                    losses[fit].append(fit.mean_loss())
            means = {fit: math.fsum(losses[fit]) / len(losses[fit]) for fit in team.active}
            self._end_epoch(team, means, _add_share(fits, started), f"subject {name}")
            if not team.active:
                return
        for fit in team.active:
            fit.keep_state(len(fit.history) - 1)

    def _score_next(self, team: Team, name: str, part: Side) -> None:
        """Score the next subject of a stream."""
        fits, started = list(team.active), _clocks()
        team.each(Fit.set_evaluated_weights)
        for fit, logits in zip(list(team.active), team.predict(part), strict=True):
            loss, accuracy = score(logits, part.labels)
            if math.isfinite(loss):
                fit.prequential.append(NextSubject(name, len(part.indices), accuracy, loss))
            else:
                fit.divergence = f"the loss on subject {name} became {loss}"
        _add_share(fits, started)
        self._hand_in_lost(team)

    def _end_epoch(
        self, team: Team, losses: Mapping[Fit, float], train_s: float, when: str
    ) -> None:
        """Validate and add to the histories; hand in the runs that have failed or diverged."""
        for fit in team.active:
            fit.traces.end_epoch()
            if not math.isfinite(losses[fit]):
                fit.divergence = f"the training loss became {losses[fit]} in {when}"
        self._hand_in_lost(team)
        fits, started = list(team.active), _clocks()
        team.each(Fit.set_evaluated_weights)
        side, scores = self._sides.validation, {}
        for fit, logits in zip(team.active, team.predict(side), strict=True):
            scores[fit] = score(logits, side.labels)
        validation_s = _add_share(fits, started)
        for fit, (loss, accuracy) in scores.items():
            if math.isfinite(loss):
                epoch = Epoch(losses[fit], loss, accuracy, train_s, validation_s)
                fit.history.append(epoch)
            else:
                fit.divergence = f"the validation loss became {loss} in {when}"
        self._hand_in_lost(team)
        team.each(lambda fit: fit.watch and fit.watch(fit.history[-1], fit.model))
        self._hand_in_lost(team)

    def _hand_in_lost(self, team: Team) -> None:
        """Hand in the runs that have failed or diverged."""
        team.active = [fit for fit in team.active if not fit.divergence]
        for fit in [fit for fit in self._numbers if fit.error or fit.divergence]:
            self._hand_in(fit, fit.error or self._record(fit))

    def _test(self, fits: Sequence[Fit]) -> None:
        """Test trained runs with their best weights, and hand them in."""
        if not fits:
            return
        started = _clocks()
        for fit in fits:
            fit.model.load_state_dict(fit.best_weights)
        held_out = self._sides.test()
        before: dict[Fit, list[Logits]] = {}
        if (adaptation := self._settings.adaptation) is None:
            logits = dict(zip(fits, Team(fits).predict(held_out), strict=True))
        else:
            held_out, before, logits = self._adapt(fits, held_out, adaptation)
        records: dict[Fit, Outcome] = {}
        for fit in fits:
            records[fit] = fit.error or self._record(fit, held_out, before.get(fit), logits[fit])
        _add_share(fits, started)
        for fit in fits:
            self._hand_in(fit, records[fit])

    def _adapt(
        self, fits: Sequence[Fit], held_out: Side, adaptation: Adaptation
    ) -> tuple[Side, dict[Fit, list[Logits]], dict[Fit, Logits]]:
        """Adapt to each test subject, each time from the end of the training.

        Returns:
            The windows that are tested, and the logits of every run that has not failed, before
            the adaptation (by subject) and after it. Logits are NaN after an adaptation that
            diverged.
        """
        settings = self._settings
        tested = []
        before: dict[Fit, list[Logits]] = {fit: [] for fit in fits}
        after: dict[Fit, list[Logits]] = {fit: [] for fit in fits}
        for number, side in enumerate(held_out.by_subject().values()):
            first, rest = split_trials(side, adaptation.share)
            tested.append(rest.indices)
            team = Team([fit for fit in fits if fit.error is None])
            for fit in team.active:
                fit.model.load_state_dict(fit.best_weights)
            for fit, logits in zip(team.active, team.predict(rest), strict=True):
                before[fit].append(logits)
            adapted = {fit: _adapting(fit, first, rest) for fit in team.active}
            team = Team(list(adapted.values()))
            subject_seed = derive_substep(settings.seed("adaptation"), number)
            for turn in range(adaptation.passes):
                batches_seed, dropout_seed = (
                    derive_substep(subject_seed, 2 * turn + purpose) for purpose in (0, 1)
                )
                batches = epoch_batches(first, settings.batch_size, batches_seed)
                team.take_steps(first, batches, dropout_seed)
            team.each(Fit.set_evaluated_weights)
            found = dict(zip(team.active, team.predict(rest), strict=True))
            for fit, copied in adapted.items():
                fit.error = copied.error
                if copied in found:
                    after[fit].append(found[copied])
        done = {fit: np.concatenate(after[fit]) for fit in fits if fit.error is None}
        return held_out.part(np.concatenate(tested)), before, done

    def _record(
        self,
        fit: Fit,
        held_out: Side | None = None,
        before: Sequence[Logits] | None = None,
        logits: Logits | None = None,
    ) -> RunRecord:
        """Return the record of a run; without windows and logits of one that diverged."""
        if logits is not None and before and not np.isfinite(logits).all():
            fit.divergence = "the logits became non-finite in the adaptation"
        test = trials = unadapted = None
        if held_out is not None and before:
            unadapted = measure_windows(np.concatenate(before), held_out.labels)
        if held_out is not None and logits is not None and not fit.divergence:
            test = measure_windows(logits, held_out.labels)
            trials = measure_trials(logits, held_out.labels, held_out.trial_ids)
        counts = np.bincount(self._sides.training.labels, minlength=fit.n_classes)
        return RunRecord(
            status="diverged" if fit.divergence else "done",
            reason=fit.divergence,
            history=tuple(fit.history),
            best_epoch=fit.best_epoch,
            test=test,
            test_trials=trials,
            train_class_counts=tuple(int(count) for count in counts),
            parameters=sum(p.numel() for p in fit.model.parameters()),
            steps=fit.steps,
            traces=fit.traces.result,
            device=str(fit.device),
            elapsed_s=0.0,  # set when the run is handed in, as the time of the processor is
            beta2_by_tensor=fit.traces.beta2_by_tensor,
            prequential=tuple(fit.prequential),
            before_adaptation=unadapted,
        )

    def _hand_in(self, fit: Fit, outcome: Outcome) -> None:
        elapsed_s, processor_s = fit.spent_s.tolist()
        if isinstance(outcome, RunRecord):
            on_cpu = outcome.device == "cpu"
            outcome = replace(
                outcome, elapsed_s=elapsed_s, processor_s=processor_s if on_cpu else None
            )
        self._ended(self._numbers.pop(fit), outcome, elapsed_s)


def _goes_on(fit: Fit, epoch: int) -> bool:
    """Keep the weights of the best epoch; return False if the patience is used up."""
    accuracy = fit.history[-1].validation_accuracy
    if accuracy > fit.best_accuracy or fit.settings.weights == "last":
        # strictly above: the first of equal epochs is kept
        fit.best_accuracy = accuracy
        fit.keep_state(epoch)
    return fit.best_epoch is None or epoch - fit.best_epoch < fit.settings.patience


def _adapting(fit: Fit, first: Side, rest: Side) -> Fit:
    """Return the training of a trained network on windows of a test subject.

    Contamination is of training subjects alone. A schedule is over: a kept state goes on with the
    learning rate that it had, a reset one with the largest.
    """
    clean = fit.settings.changed(contamination=None, schedule="constant")
    adapting = Fit(clean, fit.model, first, rest, fit.n_classes)
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
