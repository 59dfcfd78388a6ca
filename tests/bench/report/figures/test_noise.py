import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.noise import noise_figure
from afor.bench.stats.comparisons import compare
from afor.bench.stats.design.seed_noise import copy_differences, seed_noise
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions

GAINS = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0, "mars": 0.01, "afor": 0.05}
BLOCK = ("bci2a", "eegnet", "accuracy")


def simulated(gains, datasets=("bci2a",)):
    return collect_conditions(*simulate_results(gains, datasets=datasets))


def test_every_pair_of_copies_differs_once_per_fold_with_both_signs():
    conditions = simulated(GAINS)
    found = copy_differences(conditions, *BLOCK)
    assert len(found) == 2 * 3 * 9  # signs, pairs of three copies, folds
    assert sum(found) == pytest.approx(0)
    first, second = (
        conditions["bci2a", "eegnet", name].fold_values("accuracy")[0]
        for name in ("adam", "adam_seed_1")
    )
    assert found[0] == first - second
    # The mean square of the differences is the spread, squared.
    assert np.mean(np.square(found)) == pytest.approx(seed_noise(conditions, *BLOCK).spread ** 2)


def test_rows_are_the_other_seed_and_then_the_optimizers_with_their_sd():
    conditions = simulated(GAINS)
    axis = noise_figure(conditions).axes[0]
    labels = [t.get_text() for t in axis.get_yticklabels()]
    spread = 100 * seed_noise(conditions, *BLOCK).spread
    assert labels[0] == f"other seed (SD {spread:.2f})"
    assert [label.split(" (")[0] for label in labels[1:]] == ["MARS", "AFOR"]
    (mars_comparison,) = compare(conditions, *BLOCK, optimizers=["mars"])
    assert labels[1].endswith(f"(SD {100 * mars_comparison.sd:.2f})")
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


def test_without_copies_or_without_the_baseline_it_says_what_to_do():
    with pytest.raises(ConfigError, match="afor run controls"):
        noise_figure(simulated({"adam": 0, "afor": 0}))
    with pytest.raises(ConfigError, match=r"'sgd' has no finished run.*adam_seed_1"):
        noise_figure(simulated(GAINS), baseline="sgd")
