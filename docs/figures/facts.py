"""Properties of the paper's equations, released code and numbers, each shown by a computation.

    python docs/figures/facts.py            # all of them
    python docs/figures/facts.py burst      # one of them

Each follows from what is printed. Whether it changes a result is a question for a study.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from afor import AFOR, reference
from afor.bench.common.seeding import isolated
from afor.bench.models.authors import PublishedAdjacency
from afor.bench.stats.labels import PAPER_METRICS, signed, task_label
from afor.bench.stats.paper_numbers import published, published_results
from afor.monitor import read

# Defaults of the method, Sec. III.
LOW, HIGH = 0.99, 0.999  # the bounds of beta2
CLIP = 5.0  # of the z-score
ACTIVE_RMS = (
    0.5  # of z-scores, as in `afor analyse memory`: beta2 is an eighth of its range off the middle
)
WINDOW = 200  # steps over which the root mean square of z-scores is taken


@dataclass(frozen=True)
class Fact:
    """One property: its statement, the numbers that show it, and the limits of its validity."""

    name: str
    statement: str
    values: Mapping[str, Any]
    limits: str


def nsal_dgat_fact(seeds: int = 200) -> Fact:
    """Count the initialisations of the released NSAL-DGAT whose adjacency is NaN."""

    def nan_share(channels: int, *, keep_a_unit: bool = False) -> float:
        nan_count = 0
        for seed in range(seeds):
            with isolated(seed, torch.device("cpu")):
                adjacency = PublishedAdjacency(channels, repair=keep_a_unit)
            adjacency.repair = False  # keeps the unit of the repair, but not its self-loops
            with torch.no_grad():
                nan_count += bool(adjacency().isnan().any())
        return nan_count / seeds

    shares = {channels: nan_share(channels) for channels in (6, 11, 12, 22, 32)}
    one_unit = nan_share(6, keep_a_unit=True)
    return Fact(
        name="nsal-dgat",
        statement=(
            "The released NSAL-DGAT cannot have produced the paper's ISRUC column: with six "
            "channels its bottleneck has 36 // 128 = 0 units, and every output is NaN."
        ),
        values={
            "seeds": seeds,
            "share of NaN by channels": shares,
            "share of NaN with one unit at 6 channels": one_unit,
        },
        limits=(
            "A bottleneck of one unit would give numbers for nine seeds of ten; a form that was "
            "run but not released may have had one."
        ),
    )


def mean_beta2_fact(steps: int = 30_000) -> Fact:
    """Bound the mean of beta2 in a steady state by a linear program, and try four score series."""
    low, high = mean_beta2_range()
    return Fact(
        name="mean-beta2",
        statement=(
            f"In a steady state the mean of beta2 lies in [{low:.5f}, {high:.5f}], whatever the "
            f"scores: z-scores have mean 0 and a variance of at most 1. A layer cannot settle near "
            f"a bound of [{LOW}, {HIGH}]."
        ),
        values={
            "range": [low, high],
            "mean beta2 of score series": {
                name: steady_mean_beta2(scores) for name, scores in score_series(steps).items()
            },
        },
        limits=(
            "It holds for statistics that have settled (memory 1 000 steps) and scores without a "
            "trend, with or without the clip at 5. Single steps reach both bounds, and before the "
            "statistics settle beta2 is near the middle anyway."
        ),
    )


def mean_beta2_range(points: int = 2001) -> tuple[float, float]:
    """Return the smallest and largest mean of beta2 over all distributions of z-scores.

    Admitted are all distributions with mean 0 and variance at most 1 before the clip at 5, here on
    a grid from -100 to 100: a linear program in the probabilities of its points.
    """
    from scipy.optimize import linprog

    inside = np.linspace(-CLIP, CLIP, points)
    beyond = np.linspace(CLIP, 20 * CLIP, points // 2)[1:]
    zscores = np.concatenate([-beyond[::-1], inside, beyond])
    beta2 = LOW + (HIGH - LOW) / (1 + np.exp(-np.clip(zscores, -CLIP, CLIP)))
    bounds = []
    for sign in (1, -1):
        sums = np.array([np.ones_like(zscores), zscores])  # of the probabilities, and the mean
        solved = linprog(sign * beta2, A_ub=[zscores**2], b_ub=[1.0], A_eq=sums, b_eq=[1.0, 0.0])
        bounds.append(sign * float(solved.fun))
    return bounds[0], bounds[1]


def score_series(steps: int) -> dict[str, NDArray[np.float64]]:
    """Return four series of scores, from mild to extreme, by name."""
    rng = np.random.default_rng(0)
    time = np.arange(steps)
    return {
        "normal noise": 1 + 0.1 * rng.standard_normal(steps),
        "a wave of 100 steps": 1 + np.sin(2 * math.pi * time / 100),
        "mostly low, one in 16 high": np.where(rng.random(steps) < 1 / 16, 4.0, 0.2),
        "mostly high, one in 16 low": np.where(rng.random(steps) < 1 / 16, 0.2, 4.0),
    }


def steady_mean_beta2(scores: Sequence[float] | NDArray[np.float64]) -> float:
    """Run Eqs. (zscore_stats) to (beta2_raw) over scores; return beta2's mean over the last half.

    The statistics start at the mean and variance of all scores, so no warm-up enters the mean.
    """
    mean, variance = float(np.mean(scores)), float(np.var(scores))
    beta2 = []
    for score in scores:
        mean = HIGH * mean + (1 - HIGH) * float(score)
        delta = float(score) - mean
        variance = HIGH * variance + (1 - HIGH) * delta**2
        zscore = min(max(delta / math.sqrt(variance + 1e-8), -CLIP), CLIP)
        beta2.append(reference.beta2_raw(zscore, LOW, HIGH))
    return float(np.mean(beta2[len(beta2) // 2 :]))


def burst_fact(steps: int = 20_000, scale: float = 10.0, share: float = 0.01) -> Fact:
    """Compare beta2 in steps whose gradient is larger with beta2 in the others."""
    traced = trace(steps, burst_scale=scale, burst_share=share)
    settled = np.arange(steps) >= steps // 2
    inside = float(traced.beta2[settled & traced.burst].mean())
    outside = float(traced.beta2[settled & ~traced.burst].mean())
    return Fact(
        name="burst",
        statement=(
            f"A burst of the gradient raises beta2: gradients {scale:g} times as large in "
            f"{share:.0%} of the steps give {inside:.4f} there and {outside:.4f} elsewhere. It "
            f"enters the momentum in the numerator of the score as well as the noise in its "
            f"denominator."
        ),
        values={"beta2 in bursts": inside, "beta2 elsewhere": outside, "steps": steps},
        limits=(
            "Shown for white gradient noise and single steps. The squared burst still enters the "
            "second moment, with a smaller weight and a longer memory than an ordinary step."
        ),
    )


def no_fast_channel_fact(steps: int = 16_000) -> Fact:
    """Compare first scores and steps of becoming active with and without the fast channel."""
    whole, without = trace(steps), trace(steps, fast_channel=False)
    since, since_without = whole.active_step(), without.active_step()
    first, first_without = float(whole.score[0]), float(without.score[0])
    later = None if since is None or since_without is None else since_without - since
    return Fact(
        name="no-fast-channel",
        statement=(
            f"The ablation w/o FC changes more than the channel: the slow channel starts at 0, so "
            f"the first score is {first_without:.0f} instead of {first:.1f}, the variance of the "
            f"scores grows with its square, and the controller stays inactive "
            f"{'longer' if later is None else f'about {later:,} steps longer'}."
        ),
        values={
            "first score": first,
            "first score w/o FC": first_without,
            "active from step": since,
            "active from step w/o FC": since_without,
        },
        limits=(
            "Shown for white gradient noise, where AFOR as printed is active late too. A start of "
            "the slow channel at its first residual would remove the difference."
        ),
    )


@dataclass(frozen=True)
class Trace:
    """The controller of one tensor over the steps of a simulated training."""

    beta2: NDArray[np.float64]
    score: NDArray[np.float64]
    zscore: NDArray[np.float64]
    burst: NDArray[np.bool_]

    def active_step(self) -> int | None:
        """Return where the root mean square of z-scores first exceeds 0.5, from step 1000 on."""
        for start in range(1000, len(self.zscore) - WINDOW, WINDOW):
            window = self.zscore[start : start + WINDOW]
            if math.sqrt(float(np.mean(window**2))) > ACTIVE_RMS:
                return start
        return None


def trace(
    steps: int,
    *,
    size: int = 64,
    seed: int = 0,
    burst_scale: float = 1.0,
    burst_share: float = 0.0,
    fast_channel: bool = True,
) -> Trace:
    """Feed AFOR white gradient noise and record its controller.

    A step is a burst with the probability `burst_share`: its gradient is `burst_scale` times as
    large. `fast_channel` is False for the ablation *w/o FC*.
    """
    rng = np.random.default_rng(seed)
    bursts = rng.random(steps) < burst_share
    weight = torch.nn.Parameter(torch.zeros(size))
    optimizer = AFOR([weight], lr=1e-3, weight_decay=0.0, fast_channel=fast_channel)
    rows = []
    for burst in bursts:
        noise = rng.standard_normal(size, dtype=np.float32)
        weight.grad = torch.from_numpy(noise * np.float32(burst_scale if burst else 1.0))
        optimizer.step()
        reading = next(iter(read(optimizer).values()))
        rows.append((reading.beta2, reading.score, reading.zscore))
    beta2, score, zscore = np.array(rows).T
    return Trace(beta2, score, zscore, bursts)


@dataclass(frozen=True)
class SameMethod:
    """One method that the paper prints under two names. Percent."""

    label: str  # data set, network, metric
    fixed: float  # AFOR with beta2 = 0.999 throughout, Table IV
    adamw: float  # AdamW with beta2 = 0.999, Table III
    afor: float  # both tables

    @property
    def apart(self) -> float:
        """Difference between the two printed results of one method."""
        return round(self.fixed - self.adamw, 2)

    @property
    def margin(self) -> float:
        """Gain of the adaptation over the same code with a fixed beta2."""
        return round(self.afor - self.fixed, 2)


def same_method_twice() -> list[SameMethod]:
    """Return the paper's own A/A control: AFOR with beta2 fixed at 0.999 takes AdamW's steps."""
    main, ablation = published_results(), published_results("ablation")
    return [
        SameMethod(
            task_label(dataset, backbone, metric),
            fixed=ablation[dataset, backbone, "afor_fixed_0999", metric].mean,
            adamw=main[dataset, backbone, "adamw", metric].mean,
            afor=main[dataset, backbone, "afor", metric].mean,
        )
        for dataset, backbones in published()["ablation"]["cells"].items()
        for backbone in backbones
        for metric in PAPER_METRICS
    ]


def same_method_fact() -> Fact:
    """Compare the paper's two results of one method with the gain that it claims."""
    rows = [
        "| Task | AdamW | fixed 0.999 | apart | AFOR | margin |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    made = same_method_twice()
    noisy = [abs(row.apart) >= abs(row.margin) for row in made]
    for row, mark in zip(made, noisy, strict=True):
        values = f"{row.adamw:.2f} | {row.fixed:.2f} | {signed(row.apart)} | {row.afor:.2f}"
        rows.append(f"| {row.label} | {values} | {signed(row.margin)}{'~' * mark} |")
    return Fact(
        name="same-method",
        statement=(
            f"The paper prints one method twice, and in {sum(noisy)} of {len(made)} tasks (~) the "
            f"two results lie at least as far apart as AFOR lies above the fixed coefficient."
        ),
        values={"AdamW (Table III) and AFOR with beta2 = 0.999 (Table IV)": "\n" + "\n".join(rows)},
        limits=(
            "The two tables may come from different runs, machines or versions. The printed "
            "numbers cannot tell."
        ),
    )


FACTS: Mapping[str, Callable[[], Fact]] = {
    "same-method": same_method_fact,
    "nsal-dgat": nsal_dgat_fact,
    "mean-beta2": mean_beta2_fact,
    "burst": burst_fact,
    "no-fast-channel": no_fast_channel_fact,
}


def main(names: Sequence[str]) -> None:
    """Print the properties, with the numbers that show them."""
    for name in names or FACTS:
        fact = FACTS[name]()
        print(f"{fact.name}\n  {fact.statement}")
        for key, value in fact.values.items():
            print(f"  {key}: {value}")
        print(f"  Limits: {fact.limits}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
