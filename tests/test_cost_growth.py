"""The script that draws the time of a step over the number of parameters."""

import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("docs/figures/cost_growth.py")


def row(name, parameters, step_us, ratio):
    return {
        "optimizer": name, "parameters": parameters, "step_us": step_us, "latency_ratio": ratio,
        "latency_ratio_low": 0.9 * ratio, "latency_ratio_high": 1.1 * ratio,
    }  # fmt: skip


ROWS = [
    row(name, n, ratio * n, ratio)
    for n in (1_000, 10_000, 100_000)
    for name, ratio in (("adam", 1.0), ("adam fused", 0.3), ("sophia", 0.9), ("afor", 0.2))
]


def test_each_optimizer_is_one_curve_in_each_panel(script):
    time, ratio = script.growth_figure(ROWS).axes
    curves = {line.get_label(): line for line in time.lines}
    assert list(curves["AFOR"].get_xdata()) == [1_000, 10_000, 100_000]
    assert list(curves["AFOR"].get_ydata()) == pytest.approx([200.0, 2_000.0, 20_000.0])
    assert "Sophia (step alone)" in curves
    beside = {line.get_label(): line for line in ratio.lines}
    assert list(beside["Adam fused"].get_ydata()) == [0.3] * 3
    assert "Adam" not in beside  # the line at one


def test_quartiles_are_bands(script):
    _, ratio = script.growth_figure(ROWS).axes
    assert len(ratio.collections) == 3
    low, high = ratio.collections[-1].get_datalim(ratio.transData).intervaly
    assert (low, high) == (pytest.approx(0.18), pytest.approx(0.22))


def test_growth_compares_time_with_adams(script):
    rows = script.measure_growth(["adamw", "afor"], sizes=(120, 1200), rounds=1)
    adam = [row for row in rows if row["optimizer"] == "adam"]
    assert [row["parameters"] for row in adam] == [108, 1200]
    assert all(row["latency_ratio"] == 1.0 for row in adam)


def test_growth_keeps_to_the_size_that_was_asked_for(script):
    for size in (1_000, 30_000, 1_000_000):
        row, *_ = script.measure_growth(["adam"], [size], rounds=1)
        assert row["parameters"] == pytest.approx(size, rel=0.05)
