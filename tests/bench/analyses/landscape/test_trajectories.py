import numpy as np
import pytest
import torch

from afor.bench.analyses.landscape.trajectories import (
    flatten,
    record_trajectory,
    unflatten,
)
from afor.bench.analyses.replay import find_run, replay
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.study.schema import parse_study


def test_a_trajectory_starts_at_the_initial_weights_and_holds_every_epoch(trained_paths):
    run, trajectory = trained_paths.runs[1], trained_paths.trajectories[1]
    epochs = []
    record = replay(run, watch=lambda _, model: epochs.append(flatten(model)))
    assert trajectory.epochs == len(epochs) == len(trajectory.weights) - 1
    for kept, (weights, buffers) in zip(trajectory.weights[1:], epochs, strict=True):
        assert np.array_equal(kept, weights)
        assert len(buffers) == trajectory.buffers.shape[1]
    assert trajectory.solution == record.best_epoch + 1


def test_two_optimizers_leave_from_the_same_weights_and_part(trained_paths):
    adam, afor = trained_paths.trajectories
    assert np.array_equal(adam.weights[0], afor.weights[0])
    assert not np.array_equal(adam.weights[-1], afor.weights[-1])


def test_every_epoch_is_told(trained_paths):
    seen = []
    record_trajectory(trained_paths.runs[1], seen.append)
    assert seen == list(range(1, trained_paths.trajectories[1].epochs + 1))


def test_a_run_that_diverges_has_no_solution(trained_paths):
    text = trained_paths.file.read_text().replace("max_epochs = 3", "max_epochs = 3\nlr = 1e30")
    run = find_run(parse_study(text), optimizer="adam", cache_dir=trained_paths.cache)
    with pytest.raises(
        TrainingError, match=r"adam, fold 0, repetition 0: .* a smaller learning rate"
    ):
        record_trajectory(run)


def test_flat_weights_fill_a_network_again():
    one, other = (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)),
                  torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))  # fmt: skip
    one(torch.randn(5, 3))
    unflatten(other, *flatten(one))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    with pytest.raises(ConfigError, match="has 12 values of this kind, 13 were given"):
        unflatten(other, np.zeros(13))
