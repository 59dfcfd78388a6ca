"""Simulate results with known gains, for examples and for tests of the statistics."""

from collections.abc import Mapping, Sequence

import numpy as np

from afor.bench.stats.design.seed_noise import SAME_METHOD
from afor.bench.store.results import RunResult
from afor.bench.study.planned_runs import ExpectedRuns
from afor.bench.study.protocol import DATA_KIND
from afor.bench.study.roles import role_from_name

# Subjects, classes, level and spread of accuracy between subjects, as in the paper's Table III.
DATASETS: Mapping[str, tuple[int, int, float, float]] = {
    "deap": (32, 2, 0.60, 0.075),
    "bci2a": (9, 4, 0.37, 0.03),
    "isruc": (10, 5, 0.63, 0.035),
}
WINDOWS: Mapping[str, int] = {"deap": 2400, "bci2a": 2880, "isruc": 170_000}

SIMULATED: Mapping[str, str] = {DATA_KIND: "simulated"}  # the protocol of these results


def simulate_results(
    gains: Mapping[str, float],
    *,
    datasets: Sequence[str] = ("deap", "bci2a", "isruc"),
    backbones: Sequence[str] = ("eegnet",),
    repetitions: int = 5,
    seed_noise: float = 0.01,
    subject_noise: float = 0.01,
    seed: int = 0,
) -> tuple[list[RunResult], list[ExpectedRuns]]:
    """Draw accuracies around a level that each fold has for all methods. Fractions.

    A method adds its gain, an effect of its own for each fold (SD `subject_noise`, equal for
    replicates such as `adam` and `adam_seed_1`) and noise per run (SD `seed_noise`).
    """
    rng = np.random.default_rng(seed)
    results, expected = [], []
    for dataset in datasets:
        folds, classes, level, spread = DATASETS[dataset]
        for backbone in backbones:
            base = rng.normal(level, spread, folds)
            fold_effects: dict[str, np.ndarray] = {}
            for name, gain in gains.items():
                original = role_from_name(name).replicate_of or name
                method = SAME_METHOD.get(original, original)
                fold_effect = fold_effects.setdefault(method, rng.normal(0, subject_noise, folds))
                expected.append(ExpectedRuns(dataset, backbone, name, folds, repetitions))
                for fold in range(folds):
                    for repetition in range(repetitions):
                        noise = rng.normal(0, seed_noise)
                        value = float(np.clip(base[fold] + gain + fold_effect[fold] + noise, 0, 1))
                        results.append(
                            RunResult(
                                study="simulated",
                                dataset=dataset,
                                backbone=backbone,
                                method=name,
                                fold=fold,
                                repetition=repetition,
                                test_subjects=(f"s{fold + 1:02d}",),
                                metrics={"accuracy": value, "weighted_f1": 0.93 * value},
                                majority_accuracy=1 / classes + 0.05,
                                classes=classes,
                                test_windows=WINDOWS[dataset],
                                protocol=SIMULATED,
                            )
                        )
    return results, expected
