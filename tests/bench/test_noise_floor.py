from dataclasses import replace

import numpy as np
import pytest

from afor.bench.fold_values import collect_cells
from afor.bench.noise_floor import noise_floor
from afor.bench.simulated import simulate_results

BLOCK = ("bci2a", "eegnet", "accuracy")


def simulated(gains, **options):
    return collect_cells(*simulate_results(gains, datasets=["bci2a"], **options))


def test_ninety_five_percent_of_gains_between_identical_methods_lie_inside():
    inside = []
    for seed in range(300):
        cells = simulated(
            {"adam": 0, "adam_again": 0, "afor": 0}, draws=1, subject_noise=0, seed=seed
        )
        floor = noise_floor(cells, *BLOCK)
        gain = cells["bci2a", "eegnet", "afor"].summary("accuracy")[0]
        gain -= cells["bci2a", "eegnet", "adam"].summary("accuracy")[0]
        inside.append(abs(gain) <= floor.bound)
    assert 0.91 <= np.mean(inside) <= 0.99


def test_the_spread_is_that_of_the_simulated_seeds():
    spreads = [
        noise_floor(
            simulated({"adam": 0, "adam_again": 0}, draws=5, seed_noise=0.02, seed=seed), *BLOCK
        ).spread ** 2
        for seed in range(200)
    ]  # fmt: skip
    # A fold value averages five draws; a difference has the variance of both sides.
    assert np.mean(spreads) == pytest.approx(2 * 0.02**2 / 5, rel=0.1)


def test_three_copies_give_the_same_spread_with_more_certainty():
    two = simulated({"adam": 0, "adam_again": 0}, seed=1)
    three = simulated({"adam": 0, "adam_again": 0, "adam_again2": 0}, seed=1)
    assert noise_floor(three, *BLOCK).copies == (("adam", "adam_again", "adam_again2"),)
    spreads = [
        noise_floor(
            simulated({"adam": 0, "adam_again": 0, "adam_again2": 0}, seed=s), *BLOCK
        ).spread
        for s in range(100)
    ]
    assert np.mean(np.square(spreads)) == pytest.approx(2 * 0.01**2 / 5, rel=0.1)
    assert noise_floor(two, *BLOCK).folds == 9


def test_afor_with_a_fixed_beta2_is_a_copy_of_adamw():
    floor = noise_floor(simulated({"adamw": 0, "afor_fixed_0999": 0}), *BLOCK)
    assert floor.copies == (("adamw", "afor_fixed_0999"),)


def test_bit_identical_copies_prove_an_identity_and_say_nothing_of_noise():
    results, expected = simulate_results(
        {"adamw": 0, "adam": 0, "adam_again": 0}, datasets=["bci2a"]
    )
    results += [replace(r, optimizer="afor_fixed_0999") for r in results if r.optimizer == "adamw"]
    floor = noise_floor(collect_cells(results, expected), *BLOCK)
    assert floor.identical == (("adamw", "afor_fixed_0999"),)
    assert floor.copies == (("adam", "adam_again"),)
    only = [r for r in results if "adam_" not in r.optimizer and r.optimizer != "adam"]
    assert noise_floor(collect_cells(only), *BLOCK) is None


def test_without_a_control_there_is_no_floor():
    assert noise_floor(simulated({"adam": 0, "afor": 0}), *BLOCK) is None
