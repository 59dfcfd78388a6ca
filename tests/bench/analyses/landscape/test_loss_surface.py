import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from afor.bench.analyses.landscape.loss_surface import LossSurface
from afor.bench.analyses.landscape.trajectories import unflatten
from afor.bench.training.batches import make_normalize


@pytest.fixture
def last(trained_paths):
    trajectory = trained_paths.trajectories[1]
    return trajectory.weights[-1], trajectory.buffers[-1]


def by_hand(run, indices, last, train_norms=False):
    model = run.make_model().eval()
    unflatten(model, *last)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.train(train_norms)
            module.momentum = 1.0
    source, settings = run.source, run.settings
    normalize = make_normalize("zscore", source, settings.split.train, torch.device("cpu"))
    inputs = normalize(torch.from_numpy(source.gather(indices)))
    labels = torch.from_numpy(source.labels[indices])
    with torch.no_grad():
        if train_norms:
            model(inputs)
            model.eval()
        return cross_entropy(model(inputs), labels).item()


def test_the_loss_is_the_mean_over_training_windows_of_training_subjects(trained_paths, last):
    run = trained_paths.runs[1]
    surface = LossSurface(run, windows=0)
    whole = run.source.indices_of(run.settings.split.train)
    assert np.array_equal(surface.indices, whole)
    assert surface.training_windows == len(whole)
    assert surface(*last) == pytest.approx(by_hand(run, whole, last), rel=1e-5)


def test_a_part_of_the_windows_is_drawn_by_the_seed(trained_paths, last):
    run = trained_paths.runs[1]
    part = LossSurface(run, windows=20, seed=3)
    assert len(set(part.indices.tolist())) == 20
    assert set(part.indices) <= set(run.source.indices_of(run.settings.split.train))
    assert np.array_equal(part.indices, LossSurface(run, windows=20, seed=3).indices)
    assert not np.array_equal(part.indices, LossSurface(run, windows=20, seed=4).indices)
    assert part(*last) == pytest.approx(by_hand(run, part.indices, last), rel=1e-5)


def test_batch_norm_takes_given_or_recomputed_statistics(trained_paths, last):
    run = trained_paths.runs[1]
    fixed = LossSurface(run, windows=32)
    recomputed = LossSurface(run, windows=32, batch_norm="recomputed")
    expected = by_hand(run, fixed.indices, last, train_norms=True)
    assert recomputed(*last) == pytest.approx(expected, rel=1e-4)
    assert abs(recomputed(*last) - fixed(*last)) > 1e-3
    wrong = last[1] + 1.0  # buffers are no part of what is recomputed
    assert recomputed(last[0], wrong) == recomputed(*last)
    assert fixed(last[0], wrong) != fixed(*last)


def test_a_surface_repeats_itself_and_a_copy_does_not_disturb_it(trained_paths, last):
    surface = LossSurface(trained_paths.runs[1], windows=64)
    first = surface(*last)
    assert copy.deepcopy(surface)(last[0] * 2, last[1]) != first
    assert surface(*last) == first
    assert sum(int(np.prod(shape)) for shape in surface.shapes) == len(last[0])
