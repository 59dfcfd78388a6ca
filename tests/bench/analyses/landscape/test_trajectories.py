import numpy as np
import pytest
import torch

from afor.bench.analyses.landscape.trajectories import (
    flatten,
    load_trajectories,
    record_trajectory,
    save_trajectories,
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
    assert trajectory.steps[0] == 0
    assert trajectory.steps[-1] == record.steps
    assert trajectory.key == run.planned.key


def test_two_optimizers_leave_from_the_same_weights_and_part(trained_paths):
    adam, afor = trained_paths.trajectories
    assert np.array_equal(adam.weights[0], afor.weights[0])
    assert not np.array_equal(adam.weights[-1], afor.weights[-1])


def test_points_between_epochs_are_kept_on_request_and_change_no_number(trained_paths):
    by_epoch = trained_paths.trajectories[1]
    seen = []
    finer = record_trajectory(trained_paths.runs[1], every_steps=2, watch=seen.append)
    assert seen == list(range(1, by_epoch.epochs + 1))
    wanted = set(range(0, int(by_epoch.steps[-1]) + 1, 2)) | set(by_epoch.steps.tolist())
    assert finer.steps.tolist() == sorted(wanted)
    at_epochs = np.isin(finer.steps, by_epoch.steps)
    assert np.array_equal(finer.weights[at_epochs], by_epoch.weights)
    assert finer.steps[finer.solution] == by_epoch.steps[by_epoch.solution]
    with pytest.raises(ConfigError, match="every_steps = -1"):
        record_trajectory(trained_paths.runs[1], every_steps=-1)


def test_a_run_that_diverges_has_no_solution(trained_paths):
    text = trained_paths.file.read_text().replace("max_epochs = 3", "max_epochs = 3\nlr = 1e30")
    run = find_run(parse_study(text), optimizer="adam", cache_dir=trained_paths.cache)
    with pytest.raises(TrainingError, match=r"adam, fold 0, draw 0: .* no solution to centre on"):
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


def test_trajectories_come_back_from_a_file_as_they_were(trained_paths, tmp_path):
    path = tmp_path / "new" / "paths.npz"
    save_trajectories(path, trained_paths.trajectories, every_steps=0)
    found = load_trajectories(path, every_steps=0)
    for one in trained_paths.trajectories:
        for name, value in vars(one).items():
            assert np.array_equal(value, getattr(found[one.key], name)), name
    with pytest.raises(ConfigError, match="a point every 0 steps, 5 are asked for"):
        load_trajectories(path, every_steps=5)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 cut off"])
def test_a_file_that_holds_no_trajectories_is_told(tmp_path, content):
    path = tmp_path / "paths.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="does not hold trajectories"):
        load_trajectories(path, every_steps=0)
