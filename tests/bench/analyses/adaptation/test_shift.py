import numpy as np
import pytest
import torch

from afor.bench.analyses.adaptation import shift as shift_module
from afor.bench.analyses.adaptation.shift import (
    ALL,
    CHAIN,
    blocked,
    measure_shift,
    shift_content,
    shuffled,
    train_schedule,
)
from afor.bench.analyses.replay import find_run
from afor.bench.analyses.step_log import Steps
from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import parse_study


@pytest.fixture
def study(small_study):
    return parse_study(
        small_study(
            training={"max_epochs": None, "batch_size": 16},
            dataset={"lr": {"eegnet": 3e-3}},
            options={"n_subjects": 5, "shift": 2.0},
        )
    )


@pytest.fixture
def chosen(study, window_cache):
    return find_run(study, cache_dir=window_cache)


def made_training(effect: float):
    """Return a trainer whose blocks answer as the paper says, and whose control does nothing."""

    def train(_chosen, schedule, _settings):
        rng = np.random.default_rng(len(schedule.batches) + schedule.batches[0].sum())
        steps = len(schedule.batches)
        codes = {int(index) // 40 for batch in schedule.batches[:10] for index in batch}
        size = effect if len(codes) == 1 else 0.0  # ten batches of one subject: it is blocked
        pulse = np.zeros((steps, 2))
        for change in schedule.changes:
            pulse[change : change + 10] = 1.0
        noise = 0.01 * rng.standard_normal((4, steps, 2))
        values = {
            "residual": 2.0 * (1 + size * pulse + noise[0]),
            "agreement": 0.5 - size * pulse + noise[1],
            "score": 0.8 * (1 - size * pulse + noise[2]),
            "beta2": 0.9945 - 0.009 * (size * pulse + noise[3]),
        }
        return Steps(("a.w", "b.w"), values, np.ones(steps), (0.99, 0.999), 30)

    return train


def test_a_known_effect_is_found_with_its_size(chosen, monkeypatch) -> None:
    monkeypatch.setattr(shift_module, "train_schedule", made_training(0.1))
    found = measure_shift(chosen, batches_per_block=20, blocks=8)
    assert [link.answer for link in found.links] == ["as claimed"] * 4
    sizes = [link.difference for link in found.links]
    expected = [np.log(1.1), -0.1, np.log(0.9), -0.0009]
    assert sizes == pytest.approx(expected, rel=0.05)
    shown = float(found.links[0].sentence.partition("rises: ")[2].partition(" %")[0])
    assert shown == pytest.approx(10.0, abs=0.5)
    assert "of its range [0.99, 0.999]; as the paper says." in found.links[3].sentence
    assert list(found.links[2].blocked) == [ALL, "a", "b"]
    numbers = shift_content(found)
    assert numbers["links"][3]["share_of_beta2_range"] == pytest.approx(-0.1, rel=0.05)
    assert numbers["events"] == len(found.links[0].blocked[ALL].by_event)


def test_the_opposite_and_nothing_are_told_apart(chosen, monkeypatch) -> None:
    monkeypatch.setattr(shift_module, "train_schedule", made_training(-0.1))
    found = measure_shift(chosen, batches_per_block=20, blocks=8)
    assert {link.answer for link in found.links} == {"the opposite"}
    assert "residual falls" in found.links[0].sentence
    assert "the paper says it rises" in found.links[0].sentence
    monkeypatch.setattr(shift_module, "train_schedule", made_training(0.0))
    found = measure_shift(chosen, batches_per_block=20, blocks=8)
    assert [link.answer for link in found.links].count("not seen") >= 3  # at 5 % each
    assert [link.quantity for link in found.links] == list(CHAIN)
    assert all(abs(link.shuffled[ALL].size) < 0.01 for link in found.links)


def test_events_in_the_warm_up_do_not_count(chosen, monkeypatch) -> None:
    monkeypatch.setattr(shift_module, "train_schedule", made_training(0.1))
    found = measure_shift(chosen, batches_per_block=10, blocks=4)
    # 3 training subjects x 4 blocks: changes at 10, 20, ..., 110; five steps before, after 30.
    assert (found.steps, found.events) == (120, 8)
    with pytest.raises(ConfigError, match="Raise --blocks"):
        measure_shift(chosen, batches_per_block=10, blocks=1)


def test_blocks_and_control_train_from_the_same_start(chosen) -> None:
    side = chosen.side("training", torch.device("cpu"))
    schedule = blocked(side, 16, 0, batches_per_block=3, blocks=2)
    own = chosen.settings.optimizer_settings
    one, again, other = (
        train_schedule(chosen, plan, own) for plan in (schedule, schedule, shuffled(schedule, 0))
    )
    assert len(one) == 18
    for name in one.values:
        np.testing.assert_array_equal(one[name], again[name])
    assert (one["beta2"] != other["beta2"]).any()


def test_the_whole_experiment_runs_on_a_real_network(chosen) -> None:
    warm = {**chosen.planned.spec["optimizer"]["settings"], "warmup_steps": 4}
    chosen.planned.spec["optimizer"]["settings"] = warm
    found = measure_shift(chosen, batches_per_block=3, blocks=3, statistics="calibrated")
    assert found.statistics == "calibrated"
    assert found.events == 7
    assert set(found.links[3].blocked) > {ALL, "temporal", "classifier"}
    assert all(np.isfinite(link.difference) for link in found.links)


def test_another_optimizer_is_refused(study, window_cache) -> None:
    adamw = find_run(study, optimizer="adamw", cache_dir=window_cache)
    with pytest.raises(ConfigError, match="AdamW has no controller"):
        measure_shift(adamw)
