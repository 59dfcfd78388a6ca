"""Clipping, contamination, orders of subjects and adaptation, on a network of milliseconds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from afor.bench.common.errors import ConfigError, DataError, TrainingError
from afor.bench.data.window_source import ArrayWindows
from afor.bench.training.batches import Batch, Side, contaminate, epoch_batches, split_trials
from afor.bench.training.loop import train
from afor.bench.training.run_spec import Adaptation, Contamination, RunSettings

CPU = torch.device("cpu")


def side_of(source, names=None) -> Side:
    return Side("training", source, names or source.subjects, lambda inputs: inputs, CPU)


def steps_of(settings, source, tiny_net):
    """Train and return the record with the batch and the gradient norm of every step."""
    seen = []

    def watch(fit, batch, _loss):
        norm = torch.stack([p.grad.norm() for p in fit.model.parameters()]).norm().item()
        seen.append((batch, norm))

    return train(settings, source, tiny_net, watch_step=watch), seen


def test_clipping_bounds_the_norm_of_the_whole_gradient(source, settings, tiny_net) -> None:
    _, free = steps_of(settings, source, tiny_net)
    bound = float(np.median([norm for _, norm in free]))
    record, clipped = steps_of(settings.changed(clip_norm=bound), source, tiny_net)
    assert max(norm for _, norm in free) > bound
    assert max(norm for _, norm in clipped) <= bound * (1 + 1e-5)
    assert record.status == "done"


def test_the_last_weights_are_tested_after_all_epochs_on_demand(source, settings, tiny_net) -> None:
    last = train(settings.changed(weights="last", patience=1, max_epochs=6), source, tiny_net)
    assert len(last.history) == 6  # no early stopping
    assert last.best_epoch == 5
    best = train(settings.changed(max_epochs=6), source, tiny_net)
    assert [e.train_loss for e in best.history] == [e.train_loss for e in last.history]
    assert (best.test == last.test) == (best.best_epoch == 5)


def batch_of(n: int = 8) -> Batch:
    labels = torch.arange(n) % 3
    return Batch(torch.ones(n, 2, 4), labels, np.zeros(n, dtype=np.int64))


def contaminated_steps(contamination, steps=2000, n=8):
    """Return for each step which windows have another label or amplitude."""
    batch = batch_of(n)
    changed = []
    for step in range(steps):
        seen = contaminate(batch, contamination, seed=5, step=step, n_classes=3)
        assert ((seen.labels >= 0) & (seen.labels < 3)).all()
        amplitude = (seen.inputs != batch.inputs).flatten(1).any(dim=1)
        changed.append(((seen.labels != batch.labels) | amplitude).numpy())
    return np.array(changed)


def test_a_burst_of_labels_lasts_its_length_and_takes_its_share_of_the_steps() -> None:
    changed = contaminated_steps(Contamination(kind="label_burst", share=0.1, length=5))
    in_burst = changed.all(axis=1)
    assert (changed.any(axis=1) == in_burst).all()  # whole batches
    blocks = in_burst.reshape(-1, 5)
    assert (blocks.all(axis=1) == blocks.any(axis=1)).all()
    assert in_burst.mean() == pytest.approx(0.1, abs=0.04)


def test_windows_are_contaminated_one_by_one_with_the_gain_and_share_asked_for() -> None:
    contamination = Contamination(kind="amplitude", share=0.05, gain=30.0)
    changed = contaminated_steps(contamination)
    assert changed.mean() == pytest.approx(0.05, abs=0.01)
    step = int(np.flatnonzero(changed.any(axis=1))[0])
    seen = contaminate(batch_of(), contamination, seed=5, step=step, n_classes=3)
    assert torch.equal(seen.inputs[torch.from_numpy(changed[step])].unique(), torch.tensor([30.0]))
    labels = contaminated_steps(Contamination(kind="label_noise", share=0.05))
    assert labels.mean() == pytest.approx(0.05, abs=0.01)


def test_contamination_is_paired_and_reaches_training_batches_alone(
    source, settings, tiny_net
) -> None:
    still = settings.changed(lr=1e-30, weight_decay=0.0, normalization="none")
    burst = still.changed(contamination=Contamination(kind="label_burst", share=0.4, length=2))
    clean, clean_steps = steps_of(still, source, tiny_net)
    dirty, dirty_steps = steps_of(burst, source, tiny_net)
    flipped = [
        (a.labels != b.labels).all().item()
        for (a, _), (b, _) in zip(clean_steps, dirty_steps, strict=True)
    ]
    assert 0 < sum(flipped) < len(flipped)
    # The weights do not move, so equal losses mean that validation and test were left alone.
    losses = [[epoch.validation_loss for epoch in record.history] for record in (clean, dirty)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)  # batch norm saw the same inputs
    assert clean.test == dirty.test
    other, _ = steps_of(burst.changed(optimizer="afor"), source, tiny_net)
    assert [e.train_loss for e in other.history] == [e.train_loss for e in dirty.history]
    assert [e.train_loss for e in clean.history] != [e.train_loss for e in dirty.history]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "label_burst", "share": 0.1}, "needs a length"),
        ({"kind": "label_noise", "share": 0.1, "length": 3}, "has no length"),
        ({"kind": "amplitude", "share": 0.1}, "needs a gain"),
        ({"kind": "label_noise", "share": 0.1, "gain": 3.0}, "has no gain"),
        ({"kind": "label_noise", "share": 1.0}, "less than 1"),
    ],
)
def test_a_contamination_that_makes_no_sense_is_refused(values, sentence) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Contamination(**values)


def test_blocks_hold_one_subject_after_the_other_with_every_window_once(source) -> None:
    side = side_of(source)
    batches = epoch_batches(side, 16, seed=3, order="blocks")
    subjects = [np.unique(source.subject_codes[batch]) for batch in batches]
    assert all(len(codes) == 1 for codes in subjects)
    order = [int(codes[0]) for codes in subjects]
    changes = 1 + sum(a != b for a, b in pairwise(order))
    assert changes == len(source.subjects)
    assert sorted(np.concatenate(batches)) == sorted(side.indices)
    again = epoch_batches(side, 16, seed=4, order="blocks")
    assert order != [int(source.subject_codes[batch[0]]) for batch in again]


def test_a_stream_scores_each_subject_before_it_trains_on_them(source, settings, tiny_net) -> None:
    stream = settings.changed(order="stream", passes=3, normalization="none", max_epochs=1)
    record, seen = steps_of(stream, source, tiny_net)
    training = settings.split.train
    assert len(record.history) == len(training) == record.best_epoch + 1
    assert record.steps == len(seen) == len(training) * 3 * 2
    order = [int(batch.subjects[0]) for batch, _ in seen]
    assert len(set(order)) == len(training)
    assert order == sorted(order, key=order.index)  # nobody comes back
    names = [source.subjects[code] for code in dict.fromkeys(order)]
    assert [score.subject for score in record.prequential] == names[1:]
    assert all(score.windows == 30 for score in record.prequential)
    metrics = record.metrics()
    mean = np.mean([score.nll for score in record.prequential])
    assert metrics["prequential_nll"] == pytest.approx(mean)
    assert record.test.n == 30
    assert record.numbers() == train(stream, source, tiny_net).numbers()


def test_a_stream_is_scored_with_the_weights_before_the_subject(source, settings, tiny_net) -> None:
    # With weights that do not move the scores are those of the initial network.
    still = {"lr": 1e-30, "weight_decay": 0.0, "normalization": "none", "order": "stream"}
    record = train(settings.changed(**still), source, tiny_net)
    again = train(settings.changed(**still, optimizer="afor"), source, tiny_net)
    assert record.prequential == again.prequential
    learned = train(settings.changed(**still | {"lr": 1e-2, "passes": 5}), source, tiny_net)
    assert learned.metrics()["prequential_nll"] < record.metrics()["prequential_nll"]


def test_the_trials_of_each_class_are_divided_in_time() -> None:
    labels = np.repeat([0, 1, 0, 1, 0, 1, 0, 1], 2)
    source = ArrayWindows(np.zeros((16, 1, 4)), labels, ["a"] * 16, np.repeat(np.arange(8), 2))
    first, rest = split_trials(side_of(source), 0.5)
    assert first.indices.tolist() == list(range(8))
    assert rest.indices.tolist() == list(range(8, 16))
    first, rest = split_trials(side_of(source), 0.01)
    assert sorted(set(source.trial_ids[first.indices])) == [0, 1]
    single = ArrayWindows(np.zeros((2, 1, 4)), np.array([0, 1]), ["a"] * 2, np.arange(2))
    with pytest.raises(DataError, match="single trial"):
        split_trials(side_of(single), 0.5)


@pytest.mark.parametrize("name", ["adamw", "afor", "sophia", "mars", "adamp", "radam"])
def test_adaptation_tests_the_other_trials_and_the_state_decides(
    name, source, settings, tiny_net
) -> None:
    base = settings.changed(optimizer=name, max_epochs=2)
    adaptation = Adaptation(state="kept", passes=4, share=0.5)
    plain = train(base, source, tiny_net)
    kept = train(base.changed(adaptation=adaptation), source, tiny_net)
    reset = train(
        base.changed(adaptation=Adaptation(state="reset", passes=4, share=0.5)), source, tiny_net
    )
    assert kept.history != ()
    assert [e.train_loss for e in kept.history] == [e.train_loss for e in plain.history]
    assert kept.test.n == reset.test.n == 18  # 3 of 5 trials of both classes, 3 windows each
    assert kept.before_adaptation == reset.before_adaptation
    assert len({kept.before_adaptation.nll, kept.test.nll, reset.test.nll}) == 3
    assert kept.metrics()["nll_before"] == kept.before_adaptation.nll
    again = train(base.changed(adaptation=adaptation), source, tiny_net)
    assert again.numbers() == kept.numbers()


@pytest.mark.parametrize(
    "contamination",
    [
        Contamination(kind="label_noise", share=0.9),
        Contamination(kind="amplitude", share=0.9, gain=9.0),
    ],
)
def test_the_windows_that_a_test_subject_is_adapted_with_are_never_contaminated(
    contamination, source, settings, tiny_net
) -> None:
    # The weights do not move in the training, so the adaptation alone decides the test.
    still = settings.changed(optimizer=f"{__name__}:StillAtFirst", adaptation=Adaptation(passes=3))
    dirty = still.changed(contamination=contamination)
    records = [train(settings, source, NoStatistics) for settings in (still, dirty)]
    losses = [[epoch.train_loss for epoch in record.history] for record in records]
    assert losses[0] != losses[1]
    assert records[0].before_adaptation == records[1].before_adaptation
    assert records[0].test == records[1].test != records[0].before_adaptation


class KnowsSubject(torch.optim.SGD):
    """Must know whose windows a batch holds."""

    def for_subject(self, subject):
        pass


class StillAtFirst(torch.optim.SGD):
    """Steps only when its state was loaded: in the adaptation."""

    moves = False

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.moves = True

    def step(self, closure=None):
        return super().step(closure) if self.moves else None


class NoStatistics(torch.nn.Module):
    """A network that keeps nothing of the windows that it has seen but its weights."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(96, 2)

    def forward(self, inputs):
        return self.head(inputs.flatten(1))


def test_several_test_subjects_adapt_each_from_the_same_weights(source, settings, tiny_net) -> None:
    split = replace(settings.split, test=("s0", "s1"), train=("s2", "s3"), validation=("s4",))
    both = train(settings.changed(split=split, adaptation=Adaptation(passes=3)), source, tiny_net)
    alone = train(
        settings.changed(split=replace(split, test=("s0",)), adaptation=Adaptation(passes=3)),
        source,
        tiny_net,
    )
    assert both.test.n == 2 * alone.test.n
    last_only = replace(split, test=("s1",))
    assert (
        both.test.nll
        != train(
            settings.changed(split=last_only, adaptation=Adaptation(passes=3)), source, tiny_net
        ).test.nll
    )


def test_settings_that_do_not_fit_together_are_refused(settings: RunSettings) -> None:
    with pytest.raises(ConfigError, match="have not appeared yet"):
        settings.changed(order="stream")
    with pytest.raises(ConfigError, match="belongs to order"):
        settings.changed(order="blocks", subjects_per_batch=2)
    with pytest.raises(ConfigError, match="passes = 3 belongs"):
        settings.changed(passes=3)
    with pytest.raises(ConfigError, match="clip_norm = 0"):
        settings.changed(clip_norm=0.0)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Adaptation(passes=0)


def test_an_optimizer_that_must_know_the_subject_refuses_mixed_batches(
    source, settings, tiny_net
) -> None:
    with pytest.raises(TrainingError, match="batches of one subject"):
        train(settings.changed(optimizer=f"{__name__}:KnowsSubject"), source, tiny_net)
