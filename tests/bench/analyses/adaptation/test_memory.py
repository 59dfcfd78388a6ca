import numpy as np
import pytest

from afor.bench.analyses.adaptation.memory import (
    INACTIVE,
    Memory,
    active_share,
    active_step,
    extend,
    memory_content,
    part_step,
    watch_memory,
    with_optimizer,
)
from afor.bench.analyses.replay import ChosenRun, find_run, replay
from afor.bench.analyses.step_log import StepLog, Steps
from afor.bench.common.errors import ConfigError
from afor.bench.data.window_source import WindowSource
from afor.bench.study.schema import parse_study
from afor.bench.training import batches as placement


@pytest.fixture
def study(small_study):
    return parse_study(small_study())


@pytest.fixture
def chosen(study, window_cache):
    return find_run(study, cache_dir=window_cache)


def made_steps(zscore: np.ndarray, warmup: int = 100) -> Steps:
    """Return a log whose averages are known: beta2 follows z, sigma is 0.5."""
    beta2 = 0.99 + 0.009 / (1 + np.exp(-zscore))
    values = {"zscore": zscore, "beta2": beta2, "score_std": np.full_like(zscore, 0.5)}
    names = tuple(f"layer{i}.weight" for i in range(zscore.shape[1]))
    steps = len(zscore)
    return Steps(names, values, np.ones(steps), (0.99, 0.999), warmup)


def test_the_controller_is_active_when_half_of_the_tensors_left_the_middle() -> None:
    zscore = np.zeros((1000, 4))
    zscore[:100] = 3.0  # the warm-up does not count
    zscore[400:, :2] = -1.0
    steps = made_steps(zscore)
    assert active_share(steps)[[0, 200, 500]].tolist() == [1.0, 0.0, 0.5]
    assert active_step(steps) == 500, "the share over the last hundred steps is a half from here on"
    zscore[400:, 1] = 0.5  # not beyond
    assert active_step(made_steps(zscore)) is None
    assert active_step(made_steps(zscore[:150])) is None


def test_the_numbers_of_a_known_trace_are_its_averages() -> None:
    zscore = np.zeros((300, 2))
    zscore[100:, 0] = np.log(2.0)  # sigmoid 2/3: beta2 0.996
    steps = made_steps(zscore)
    distances = {
        name: np.array([0.01, 0.2, 0.05, 0.3])
        for name in ("printed", "calibrated", "inactive", "longest", "nudged")
    }
    alone = np.array([0.0, 0.2, 0.3, 0.4])
    memory = Memory("here", steps, steps, np.array([1, 10, 100, 300]), distances, 0.9945, alone)
    found = memory_content(memory)
    assert found["printed"]["beta2_mean"] == pytest.approx((0.996 + 0.9945) / 2)
    assert found["printed"]["beta2_sd_of_range"] == pytest.approx(0.00075 / 0.009)
    assert found["printed"]["active_share"] == 0.5
    assert found["printed"]["mean_abs_zscore"] == pytest.approx(np.log(2) / 2)
    assert found["printed"]["beta2_by_tensor"]["layer0.weight"] == pytest.approx(
        (100 * 0.9945 + 200 * 0.996) / 300
    )
    assert found["apart"]["printed"]["part_step"] == 300
    assert found["adaptation"]["part_step"] == 10
    assert found["adaptation"]["last"] == 0.4
    assert part_step(memory, np.full(4, 0.1)) is None


def test_a_longer_run_begins_with_the_bits_of_the_shorter(chosen) -> None:
    logs = []
    for run in (chosen, extend(chosen, 10)):
        log = StepLog()
        record = replay(run, watch_step=log.watch)
        logs.append(log.result())
    short, long = logs
    assert len(long) >= 10 > len(short)
    for name in short.values:
        np.testing.assert_array_equal(long[name][: len(short)], short[name])
    means = dict(zip(long.names, long["beta2"].mean(axis=0), strict=True))
    assert record.beta2_by_tensor == pytest.approx(means, abs=1e-9)


@pytest.fixture
def in_float64(chosen, monkeypatch):
    """Train in float64: in float32 rounding alone parts two trainings as far as beta2 does.

    The bias of EEGNet's first batch norm has a gradient of zero, which float32 replaces by rounding
    and Adam scales to full steps, other ones on every processor.
    """
    monkeypatch.setattr(placement, "_kept", {})  # windows of earlier runs, in float32
    make_model, gather = ChosenRun.make_model, WindowSource.gather
    monkeypatch.setattr(ChosenRun, "make_model", lambda run: make_model(run).double())
    monkeypatch.setattr(
        WindowSource, "gather", lambda source, at: gather(source, at).astype(np.float64)
    )


@pytest.mark.usefixtures("in_float64")
def test_companions_start_together_and_part(chosen) -> None:
    said: list[str] = []
    memory = watch_memory(chosen, steps=8, progress=said.append)
    assert len(memory.printed) == len(memory.calibrated) == 8
    assert memory.marks.tolist() == list(range(1, 9))
    assert memory.middle == 0.9945
    assert len(said) == 6
    apart = memory.distances
    # The correction for the zero start makes the first step the same whatever beta2 is.
    assert all(apart[name][0] < 1e-6 for name in apart)
    # A nudge of 1e-6 stays one; another constant beta2 parts more, a moving one still more.
    assert 0 < apart["nudged"][-1] < 1e-6
    for nearer, further in (("nudged", "longest"), ("longest", "printed"), ("longest", "inactive")):
        assert apart[further][-1] > 4 * apart[nearer][-1]
    for name in ("printed", "calibrated", "inactive", "longest"):
        assert (np.diff(apart[name]) > 0).all()
        assert 1e-4 < apart[name][-1] < 0.01, "in eight steps of the warm-up nobody goes far"


def test_a_controller_held_still_does_the_warm_up_and_nothing_else(chosen) -> None:
    settings = chosen.planned.spec["optimizer"]["settings"]
    still = with_optimizer(chosen, "afor", {**settings, **INACTIVE})
    log = StepLog()
    replay(still, watch_step=log.watch)
    beta2 = log.result()["beta2"]
    expected = 0.999 - 0.0045 * np.minimum(1, np.arange(1, len(beta2) + 1) / 100)
    np.testing.assert_allclose(beta2, np.repeat(expected[:, None], beta2.shape[1], 1), atol=1e-7)


def test_a_run_compared_with_itself_is_not_apart(chosen) -> None:
    still = with_optimizer(chosen, "adamw", {"betas": (0.9, 0.9945), "eps": 1e-8})
    seen = []
    for _ in range(2):
        kept = []
        replay(still, watch_step=lambda fit, *_, kept=kept: kept.append(fit.model.state_dict()))
        seen.append(kept[-1])
    assert all((seen[0][key] == seen[1][key]).all() for key in seen[0])
    start, same = (run.initial_model().state_dict() for run in (still, chosen))
    assert all((start[key] == same[key]).all() for key in start)


def test_what_cannot_be_watched_is_told(study, window_cache, chosen) -> None:
    adamw = find_run(study, optimizer="adamw", cache_dir=window_cache)
    with pytest.raises(ConfigError, match="AdamW has no controller"):
        watch_memory(adamw)
    with pytest.raises(ConfigError, match="--steps -1"):
        watch_memory(chosen, steps=-1)
