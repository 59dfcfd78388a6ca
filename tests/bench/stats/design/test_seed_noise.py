import math
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.stats.comparisons import main_methods
from afor.bench.stats.design.seed_noise import same_seed_sd, seed_noise
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions, paired_fold_values
from afor.bench.store.files import load_results, write_results
from afor.bench.study.roles import Role

BLOCK = ("bci2a", "eegnet", "accuracy")


def simulated(gains, **options):
    return collect_conditions(*simulate_results(gains, datasets=["bci2a"], **options))


def test_the_spread_is_that_of_the_simulated_seeds():
    spreads = [
        seed_noise(
            simulated({"adam": 0, "adam_again": 0}, repetitions=5, seed_noise=0.02, seed=seed),
            *BLOCK,
        ).spread ** 2
        for seed in range(200)
    ]  # fmt: skip
    # A fold value averages five repetitions; a difference has the variance of both sides.
    assert np.mean(spreads) == pytest.approx(2 * 0.02**2 / 5, rel=0.1)


def test_three_copies_give_the_same_spread_with_more_certainty():
    two = simulated({"adam": 0, "adam_again": 0}, seed=1)
    three = simulated({"adam": 0, "adam_again": 0, "adam_again2": 0}, seed=1)
    assert seed_noise(three, *BLOCK).replicates == (("adam", "adam_again", "adam_again2"),)
    spreads = [
        seed_noise(simulated({"adam": 0, "adam_again": 0, "adam_again2": 0}, seed=s), *BLOCK).spread
        for s in range(100)
    ]
    assert np.mean(np.square(spreads)) == pytest.approx(2 * 0.01**2 / 5, rel=0.1)
    assert seed_noise(two, *BLOCK).folds == 9


def test_afor_with_a_fixed_beta2_is_adamw_under_the_same_seeds_and_stands_apart():
    names = {"adam": 0, "adam_seed_1": 0}
    alone = seed_noise(simulated(names), *BLOCK)
    results, expected = simulate_results(names | {"adamw": 0}, datasets=["bci2a"])
    results += [replace(r, method="afor_fixed_0999") for r in results if r.method == "adamw"]
    conditions = collect_conditions(results, expected)
    noise = seed_noise(conditions, *BLOCK)
    assert noise.replicates == alone.replicates == (("adam", "adam_seed_1"),)
    assert same_seed_sd(conditions, *BLOCK) == 0
    assert math.isnan(same_seed_sd(simulated(names), *BLOCK))
    other = simulated({"adamw": 0, "afor_fixed_0999": 0})
    assert seed_noise(other, *BLOCK) is None
    _, ours, theirs = paired_fold_values(
        *(other["bci2a", "eegnet", name] for name in ("afor_fixed_0999", "adamw")), "accuracy"
    )
    assert same_seed_sd(other, *BLOCK) == pytest.approx((ours - theirs).std(ddof=1))


def test_bit_identical_copies_say_nothing_of_noise():
    results, expected = simulate_results(
        {"afor": 0, "adam": 0, "adam_again": 0}, datasets=["bci2a"]
    )
    results += [replace(r, method="afor_seed_1") for r in results if r.method == "afor"]
    noise = seed_noise(collect_conditions(results, expected), *BLOCK)
    assert noise.identical == (("afor", "afor_seed_1"),)
    assert noise.replicates == (("adam", "adam_again"),)
    only = [r for r in results if r.method.startswith("afor")]
    assert seed_noise(collect_conditions(only), *BLOCK) is None


def test_without_copies_there_is_no_noise_between_seeds():
    assert seed_noise(simulated({"adam": 0, "afor": 0}), *BLOCK) is None


def test_a_replicate_of_any_name_gives_the_noise_and_is_not_compared(tmp_path):
    names = {"adam": 0, "adam_b": 0, "afor": 0.02}
    results, expected = simulate_results(names, datasets=["bci2a"])
    without = collect_conditions(results, expected)
    assert seed_noise(without, *BLOCK) is None
    role = Role(replicate_of="adam", seed=1)
    told = [replace(r, role=role if r.method == "adam_b" else Role()) for r in results]
    planned = [replace(e, role=role if e.method == "adam_b" else Role()) for e in expected]
    for name in ("runs.csv", "runs.json"):
        write_results(tmp_path / name, told, planned)
        conditions = collect_conditions(*load_results([tmp_path / name]))
        assert seed_noise(conditions, *BLOCK).replicates == (("adam", "adam_b"),)
        assert main_methods(conditions) == ["adam", "afor"]
    # A copy without a finished run does not count as a method of its own either.
    left = collect_conditions([r for r in told if r.method != "adam_b"], planned)
    assert main_methods(left) == ["adam", "afor"]
