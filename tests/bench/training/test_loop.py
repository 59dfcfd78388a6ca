import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from afor.bench.common.errors import LeakageError, TrainingError
from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS
from afor.bench.optimizers.sophia import Sophia
from afor.bench.training.loop import score, train
from afor.bench.training.record import Epoch


class Scripted(nn.Module):
    """A network whose validation accuracy follows a script, one value per evaluation."""

    def __init__(self, source: ArrayWindows, accuracies: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.accuracies = accuracies
        self.epoch = -1
        self.truth = {
            w.tobytes(): int(y) for w, y in zip(source._windows, source.labels, strict=True)
        }
        self.seen: list[float] = []

    def train(self, mode: bool = True) -> "Scripted":
        if mode and not self.training:
            self.epoch += 1
        return super().train(mode)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            return self.weight + torch.zeros(len(inputs), 2)
        truth = torch.tensor([self.truth[w.numpy().tobytes()] for w in inputs])
        right = torch.arange(len(inputs)) < round(self.accuracies[self.epoch + 1] * len(inputs))
        return nn.functional.one_hot(torch.where(right, truth, 1 - truth), 2).float()

    def get_extra_state(self) -> float:
        return self.accuracies[min(self.epoch + 1, len(self.accuracies) - 1)]

    def set_extra_state(self, state: float) -> None:
        self.seen.append(state)


def scripted_run(source, settings, accuracies: list[float], patience: int):
    model = Scripted(source, accuracies)
    settings = settings.changed(patience=patience, max_epochs=len(accuracies), normalization="none")
    return train(settings, source, lambda: model), model


def test_training_learns_what_can_be_learned(source, settings, tiny_net) -> None:
    record = train(settings.changed(max_epochs=25), source, tiny_net)
    assert record.status == "done"
    assert record.test.accuracy > 0.85
    assert record.test.n == 30
    assert record.test_trials.n == 10
    assert record.test_trials.accuracy >= record.test.accuracy
    assert record.history[-1].train_loss < record.history[0].train_loss
    assert record.train_class_counts == (60, 60)
    assert record.steps == 8 * len(record.history)
    assert record.parameters == sum(p.numel() for p in tiny_net().parameters())


@pytest.mark.parametrize("name", PAPER_OPTIMIZERS)
def test_a_run_repeats_bit_by_bit_whatever_happened_before(
    name, source, settings, tiny_net
) -> None:
    settings = settings.changed(optimizer=name)
    first = train(settings, source, tiny_net)
    torch.rand(13)
    np.random.default_rng().random(3)
    again = train(settings, source, tiny_net)
    assert first.numbers() == again.numbers()


@pytest.mark.parametrize("name", PAPER_OPTIMIZERS)
def test_all_optimizers_start_from_the_same_weights_and_see_the_same_batches_and_dropout(
    name, source, settings, tiny_net
) -> None:
    # With a learning rate too small to change a float, every optimizer trains the same network,
    # so equal losses mean equal weights, batches and dropout masks.
    same = {"lr": 1e-30, "weight_decay": 0.0, "max_epochs": 3}
    reference = train(settings.changed(optimizer="adam", **same), source, tiny_net)
    other = train(settings.changed(optimizer=name, **same), source, tiny_net)
    assert [e.train_loss for e in other.history] == [e.train_loss for e in reference.history]
    assert len({e.train_loss for e in other.history}) == 3


@pytest.mark.parametrize("name", [n for n, e in OPTIMIZERS.items() if e.variant_of == "afor"])
def test_every_variant_of_afor_trains_and_leaves_traces(name, source, settings, tiny_net) -> None:
    record = train(settings.changed(optimizer=name, max_epochs=2), source, tiny_net)
    assert record.status == "done"
    for trace in record.traces.values():
        lowest = OPTIMIZERS[name].settings["beta2_min"]
        assert all(lowest - 1e-6 <= value <= 0.999 + 1e-6 for value in trace["beta2"])


def test_a_watcher_sees_every_epoch_and_changes_nothing(source, settings, tiny_net) -> None:
    seen = []

    def watch(epoch: Epoch, model: nn.Module) -> None:
        seen.append((epoch, model.training, model.head.weight.detach().clone()))

    record = train(settings, source, tiny_net, watch)
    assert tuple(epoch for epoch, _, _ in seen) == record.history
    assert not any(training for _, training, _ in seen)
    assert not torch.equal(seen[0][2], seen[-1][2])
    assert record.numbers() == train(settings, source, tiny_net).numbers()


def test_a_record_is_made_of_plain_values(source, settings, tiny_net) -> None:
    record = train(settings, source, tiny_net)
    again = json.loads(json.dumps(dataclasses.asdict(record)))
    assert again["test"]["confusion"] == [list(row) for row in record.test.confusion]
    assert len(again["history"]) == 4


def test_folds_repetitions_and_study_seeds_differ(source, settings, tiny_net) -> None:
    splits = make_splits("toy", source.subjects)
    records = [
        train(settings.changed(**change), source, tiny_net).history[0].train_loss
        for change in (
            {},
            {"study_seed": 1},
            {"split": splits.split(0, 1)},
            {"split": splits.split(1, 0)},
            {"dataset": "other"},
        )
    ]
    assert len(set(records)) == 5


def test_the_global_generator_and_threads_are_left_as_they_were(source, settings, tiny_net) -> None:
    generator, threads = torch.get_rng_state(), torch.get_num_threads()
    train(settings, source, tiny_net)
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.get_num_threads() == threads


def test_the_best_epoch_is_the_first_of_equals_and_its_weights_are_restored(
    source, settings
) -> None:
    record, model = scripted_run(source, settings, [0.5, 0.7, 0.6, 0.7, 0.4], patience=9)
    assert record.best_epoch == 1
    assert [round(e.validation_accuracy, 1) for e in record.history] == [0.5, 0.7, 0.6, 0.7, 0.4]
    assert model.seen == [0.7]


def test_training_stops_when_the_patience_is_used_up(source, settings) -> None:
    record, _ = scripted_run(source, settings, [0.5, 0.7, 0.6, 0.7, 0.6, 0.9], patience=3)
    assert len(record.history) == 5
    assert record.best_epoch == 1


def test_test_windows_are_read_once_and_after_the_last_epoch(source, settings, tiny_net) -> None:
    read: list[np.ndarray] = []
    gather = source.gather
    source.gather = lambda indices: (read.append(indices), gather(indices))[1]
    train(settings, source, tiny_net)
    test = np.flatnonzero(source.subject_codes == source.subjects.index(settings.split.test[0]))
    touched = [i for i, indices in enumerate(read) if np.isin(indices, test).any()]
    assert touched == [len(read) - 1]
    assert np.array_equal(read[-1], test)


def test_no_statistic_of_the_test_subject_enters_the_training(source, settings, tiny_net) -> None:
    before = train(settings, source, tiny_net)
    mine = source.subject_codes == source.subjects.index(settings.split.test[0])
    source._windows[mine] *= 1000
    source.labels[mine] = 1 - source.labels[mine]
    after = train(settings, source, tiny_net)
    assert after.numbers()["history"] == before.numbers()["history"]
    assert after.test != before.test


def test_a_source_that_hands_out_strangers_is_caught_at_the_batch(
    source, settings, tiny_net, monkeypatch
) -> None:
    stranger = int(np.flatnonzero(source.subject_codes == 0)[0])
    assert settings.split.test == ("s0",)
    monkeypatch.setattr(
        "afor.bench.training.loop.epoch_batches",
        lambda side, *_: [np.append(side.indices[:8], stranger)],
    )
    with pytest.raises(LeakageError, match="subject s0"):
        train(settings, source, tiny_net)


@pytest.mark.parametrize("name", ["adam", "sophia", "torch.optim:SGD"])
def test_a_diverged_run_is_recorded_as_such_and_never_tested(
    name, source, settings, tiny_net
) -> None:
    class Exploding(tiny_net):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * 1e30 ** (1 + self.head.weight.abs().max().detach() * 4)

    settings = settings.changed(optimizer=name, lr=1e4)
    record = train(settings, source, Exploding)
    assert record.status == "diverged"
    assert "loss became" in record.reason
    assert record.test is None
    assert all(np.isfinite(e.train_loss) for e in record.history)


def test_constraints_hold_after_every_step_unless_switched_off(source, settings, tiny_net) -> None:
    lengths: list[float] = []

    class Bounded(tiny_net):
        def apply_constraints(self) -> None:
            with torch.no_grad():
                self.head.weight.renorm_(2, 0, 0.25)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            lengths.append(self.head.weight.norm(dim=1).max().item())
            return super().forward(inputs)

    train(settings, source, Bounded)
    assert max(lengths[1:]) <= 0.25 + 1e-5
    lengths.clear()
    train(settings.changed(constraints=False), source, Bounded)
    assert max(lengths[1:]) > 0.25 + 1e-3


def test_an_optimizer_may_see_each_batch_before_its_forward_pass(
    source, settings, tiny_net, monkeypatch
) -> None:
    events = []

    class Watching(tiny_net):
        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            if self.training:
                events.append(("forward", signal.sum().item()))
            return super().forward(signal)  # type: ignore[no-any-return]

    def note(_, model: nn.Module, inputs: torch.Tensor) -> None:
        events.append(("before", inputs.sum().item()))

    monkeypatch.setattr(Sophia, "before_step", note)
    monkeypatch.setattr(Sophia, "after_step", lambda *_: None)
    train(settings.changed(optimizer="sophia_authors", max_epochs=1), source, Watching)
    assert events
    assert [kind for kind, _ in events] == ["before", "forward"] * (len(events) // 2)
    assert all(a[1] == b[1] for a, b in zip(events[::2], events[1::2], strict=True))


def test_few_subjects_per_batch_change_the_batches(source, settings, tiny_net) -> None:
    seen: list[int] = []
    gather = source.gather
    source.gather = lambda i: (seen.append(len(np.unique(source.subject_codes[i]))), gather(i))[1]
    settings = settings.changed(subjects_per_batch=1, max_epochs=1)
    record = train(settings, source, tiny_net)
    assert seen[: record.steps] == [1] * record.steps


def test_a_network_with_the_wrong_number_of_outputs_is_refused(source, settings, tiny_net) -> None:
    with pytest.raises(TrainingError, match=r"Expected logits of shape \(30, 2\)"):
        train(settings, source, lambda: tiny_net(classes=3))


def test_only_afor_leaves_traces_one_value_per_epoch(source, settings, tiny_net) -> None:
    traces = train(settings.changed(optimizer="afor"), source, tiny_net).traces
    assert list(traces) == ["mix", "norm", "head"]
    assert all(len(trace["beta2"]) == 4 for trace in traces.values())
    assert train(settings, source, tiny_net).traces == {}


def test_an_optimizer_with_two_modes_is_judged_in_its_second(
    source, settings, tiny_net, monkeypatch
) -> None:
    events: list[str] = []

    class TwoModesSGD(torch.optim.SGD):
        def train(self) -> None:
            events.append("optimizer trains")

        def eval(self) -> None:
            events.append("optimizer evaluates")

    class Watching(tiny_net):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            event = "network trains" if self.training else "network evaluates"
            if events[-1] != event:
                events.append(event)
            return super().forward(inputs)

    monkeypatch.setattr(
        "afor.bench.training.fit.build_optimizer",
        lambda _name, model, lr, _decay, **_: TwoModesSGD(model.parameters(), lr=lr),
    )
    train(settings.changed(max_epochs=2), source, Watching)
    epoch = ["optimizer trains", "network trains", "optimizer evaluates", "network evaluates"]
    assert events == epoch * 2


def test_score_is_the_mean_cross_entropy_and_the_share_of_hits() -> None:
    logits = np.log(np.array([[0.9, 0.1], [0.4, 0.6]], dtype=np.float32))
    loss, accuracy = score(logits, np.array([0, 0]))
    assert loss == pytest.approx(-(np.log(0.9) + np.log(0.4)) / 2, rel=1e-6)
    assert accuracy == 0.5
