from dataclasses import replace

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.noise import noise_figure
from afor.bench.stats.design.seed_noise import seed_noise
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0, "mars": 0.01, "afor": 0.05}
BLOCK = ("bci2a", "eegnet", "accuracy")


def simulated(gains, datasets=("bci2a",)):
    return Results.of(*simulate_results(gains, datasets=datasets))


def test_every_pair_of_replicates_differs_once_per_fold():
    conditions = simulated(GAINS).conditions
    noise = seed_noise(conditions, *BLOCK)
    assert len(noise.differences) == 3 * 9  # pairs of three replicates, folds
    first, second = (
        conditions["bci2a", "eegnet", name].fold_values("accuracy")[0]
        for name in ("adam", "adam_seed_1")
    )
    assert noise.differences[0] == first - second
    assert np.mean(np.square(noise.differences)) == pytest.approx(noise.spread**2)


def test_rows_are_the_other_seed_and_then_the_optimizers_with_their_sd():
    results = simulated(GAINS)
    conditions, axis = results.conditions, noise_figure(results).axes[0]
    labels = [t.get_text() for t in axis.get_yticklabels()]
    spread = 100 * seed_noise(conditions, *BLOCK).spread
    assert labels[0] == f"other seed (SD {spread:.2f})"
    assert [label.split(" (")[0] for label in labels[1:]] == ["MARS", "AFOR"]
    (mars_comparison,) = results.against("adam", ["mars"], *BLOCK)
    assert labels[1].endswith(f"(SD {100 * mars_comparison.evidence.sd:.2f})")
    identical, mars, _ = axis.collections[:3]
    assert len(identical.get_offsets()) == 54
    assert len(mars.get_offsets()) == 9
    ours, base = (
        conditions["bci2a", "eegnet", o].fold_values("accuracy") for o in ("mars", "adam")
    )
    gains = sorted(100 * (ours[fold] - base[fold]) for fold in ours)
    assert mars.get_offsets()[:, 0].tolist() == pytest.approx(gains)
    means = [line.get_xdata()[0] for line in axis.lines[1:]]
    assert means[0] == pytest.approx(np.mean(gains))


def test_each_block_has_a_panel():
    assert len(noise_figure(simulated(GAINS, ["deap", "bci2a"])).axes) == 2


def test_without_replicates_or_without_the_baseline_it_says_what_to_do():
    with pytest.raises(ConfigError, match="afor run controls"):
        noise_figure(simulated({"adam": 0, "afor": 0}))
    with pytest.raises(ConfigError, match=r"nothing to compare with the baseline 'sgd'"):
        noise_figure(replace(simulated(GAINS), baseline="sgd"))
