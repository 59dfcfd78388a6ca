from dataclasses import replace

import numpy as np
import pytest

from afor.bench.stats.comparisons import main_optimizers
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.noise_floor import identity_gap, noise_floor
from afor.bench.stats.simulated import simulate_results
from afor.bench.store.files import load_results, write_results
from afor.bench.study.roles import Role

BLOCK = ("bci2a", "eegnet", "accuracy")


def simulated(gains, **options):
    return collect_conditions(*simulate_results(gains, datasets=["bci2a"], **options))


def test_ninety_five_percent_of_gains_between_identical_methods_lie_inside():
    inside = []
    for seed in range(300):
        conditions = simulated(
            {"adam": 0, "adam_again": 0, "afor": 0}, draws=1, subject_noise=0, seed=seed
        )
        floor = noise_floor(conditions, *BLOCK)
        gain = conditions["bci2a", "eegnet", "afor"].summary("accuracy")[0]
        gain -= conditions["bci2a", "eegnet", "adam"].summary("accuracy")[0]
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


def test_afor_with_a_fixed_beta2_is_adamw_under_the_same_seeds_and_no_measure_of_noise():
    names = {"adam": 0, "adam_seed_1": 0}
    alone = noise_floor(simulated(names), *BLOCK)
    results, expected = simulate_results(names | {"adamw": 0}, datasets=["bci2a"])
    results += [replace(r, optimizer="afor_fixed_0999") for r in results if r.optimizer == "adamw"]
    conditions = collect_conditions(results, expected)
    floor = noise_floor(conditions, *BLOCK)
    assert floor.copies == alone.copies == (("adam", "adam_seed_1"),)
    assert identity_gap(conditions, *BLOCK) == 0
    assert identity_gap(simulated(names), *BLOCK) is None
    other = simulated({"adamw": 0, "afor_fixed_0999": 0})
    assert noise_floor(other, *BLOCK) is None
    assert identity_gap(other, *BLOCK) > 0


def test_bit_identical_copies_say_nothing_of_noise():
    results, expected = simulate_results(
        {"afor": 0, "adam": 0, "adam_again": 0}, datasets=["bci2a"]
    )
    results += [replace(r, optimizer="afor_seed_1") for r in results if r.optimizer == "afor"]
    floor = noise_floor(collect_conditions(results, expected), *BLOCK)
    assert floor.identical == (("afor", "afor_seed_1"),)
    assert floor.copies == (("adam", "adam_again"),)
    only = [r for r in results if r.optimizer.startswith("afor")]
    assert noise_floor(collect_conditions(only), *BLOCK) is None


def test_without_a_control_there_is_no_floor():
    assert noise_floor(simulated({"adam": 0, "afor": 0}), *BLOCK) is None


def test_a_control_of_any_name_gives_the_floor_and_stays_out_of_the_main_table(tmp_path):
    names = {"adam": 0, "adam_b": 0, "afor": 0.02}
    results, expected = simulate_results(names, datasets=["bci2a"])
    without = collect_conditions(results, expected)
    assert noise_floor(without, *BLOCK) is None
    role = Role(copy_of="adam", seed=1)
    told = [replace(r, role=role if r.optimizer == "adam_b" else Role()) for r in results]
    planned = [replace(e, role=role if e.optimizer == "adam_b" else Role()) for e in expected]
    for name in ("runs.csv", "runs.json"):
        write_results(tmp_path / name, told, planned)
        conditions = collect_conditions(*load_results([tmp_path / name]))
        assert noise_floor(conditions, *BLOCK).copies == (("adam", "adam_b"),)
        assert main_optimizers(conditions) == ["adam", "afor"]
    # A control without a finished run does not count as a method of its own either.
    left = collect_conditions([r for r in told if r.optimizer != "adam_b"], planned)
    assert main_optimizers(left) == ["adam", "afor"]
