"""Draw the example figures of the statistics pages from simulated results.

    python docs/figures/result_figures.py

Everything is simulated with known gains, and each picture says so.
"""

from pathlib import Path

import numpy as np

from afor.bench.report.figures.curves import convergence_figure, forgetting_figure
from afor.bench.report.figures.style import save_figure
from afor.bench.report.registry import draw_figure
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

IMAGES = Path(__file__).parents[1] / "images"
GAINS = {
    "adam": 0.0,
    "adam_again": 0.0,
    "adamw": 0.002,
    "radam": 0.006,
    "adamp": -0.003,
    "sophia": -0.02,
    "mars": 0.008,
    "afor": 0.015,
}
VARIED = {
    "afor": 0.0,
    **{f"afor_beta2_min_{value}": -0.004 for value in (0.9, 0.95, 0.98, 0.995)},
    **{f"afor_w_{value}": gain for value, gain in ((0.0, -0.012), (0.5, -0.004), (1.5, -0.002))},
    **{f"afor_warmup_{value}": -0.001 for value in (0, 50, 200, 500)},
}
GROUPS = ("temporal", "spatial", "separable", "classifier")


def simulated_curves(rng):
    """Return losses that fall to a floor of their own, three runs each."""
    epochs = np.arange(60)
    floors = {"adam": 0.30, "radam": 0.28, "mars": 0.26, "afor": 0.20}
    return {
        (dataset, ""): {
            name: [
                scale * (floor + (1 - floor) * np.exp(-epochs / (9 + 2 * run)))
                * np.exp(rng.normal(0, 0.02, len(epochs)))
                for run in range(3)
            ]
            for name, floor in floors.items()
        }
        for dataset, scale in {"deap": 0.69, "bci2a": 1.38}.items()
    }  # fmt: skip


def simulated_traces(rng):
    """Return traces in which early layers forget faster than the classifier."""
    runs = []
    for _ in range(4):
        run = {}
        for i, group in enumerate(GROUPS):
            score = 0.3 + 0.25 * i + rng.normal(0, 0.06, 40).cumsum() * 0.2
            pull = 1 / (1 + np.exp(-4 * (score - 0.7)))
            settle = 1 - np.exp(-np.arange(40) / 6)
            beta2 = 0.99 + 0.009 * (0.5 + (pull - 0.5) * settle)
            run[group] = {"beta2": beta2, "beta2_sd": 0.0004 + 0 * beta2, "score": score}
        runs.append(run)
    return runs


def main():
    rng = np.random.default_rng(1)
    backbones = ("eegnet", "acrnn", "nsal_dgat", "hslt")
    results, expected = simulate_results(
        GAINS, backbones=backbones, seed_noise=0.02, subject_noise=0.012, seed=3
    )
    simulated = Results.of(results, expected)
    varied = Results.of(*simulate_results(VARIED, datasets=["deap", "isruc"]), metrics=["accuracy"])
    loss = 0.69 * (0.25 + 0.75 * np.exp(-np.arange(40) / 9))
    figures = {
        **{name: draw_figure(name, simulated) for name in ("gain", "folds", "ranks")},
        "convergence": convergence_figure(simulated_curves(rng)),
        "sensitivity": draw_figure("sensitivity", varied),
        "forgetting": forgetting_figure(simulated_traces(rng), loss, "one run"),
    }
    for name, figure in figures.items():
        # Where the figure itself leaves room.
        y, side = (1.0, "top") if name in ("convergence", "forgetting") else (0.005, "bottom")
        figure.text(
            0.995, y, "SIMULATED", ha="right", va=side, fontsize=6, color="#B00000",
            fontweight="bold",
        )  # fmt: skip
        save_figure(figure, IMAGES / f"figure_{name}.png", dpi=220)
        print(IMAGES / f"figure_{name}.png")


if __name__ == "__main__":
    main()
