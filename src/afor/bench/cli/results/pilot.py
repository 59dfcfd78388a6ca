"""Say what a planned study can decide at the noise of a pilot, for ``afor plan --pilot``."""

import math

from afor.bench.cli.results.reading import find_all, load_conditions
from afor.bench.common.errors import ConfigError
from afor.bench.stats.design.power import (
    POWER,
    assess,
    fewest_folds,
    smallest_effect,
    smallest_margin,
)
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.study.planned_runs import StudyPlan


def pilot_sentences(planned: StudyPlan, pilot: str, baseline: str) -> list[str]:
    """Say what a planned study can decide about accuracy at the noise of a pilot.

    Returns one sentence per data set, backbone and optimizer of the plan. A block that the pilot
    does not hold is judged by the noise of those that it holds, and the sentence says so.
    """
    conditions = load_conditions(find_all([pilot]), None, None)
    expected = planned.expected()
    copies = {row.optimizer for row in expected if row.role is not None and row.role.copy_of}
    listed = dict.fromkeys(row.optimizer for row in expected if row.optimizer not in copies)
    others = [name for name in listed if name != baseline]
    assessments = assess(conditions, "accuracy", baseline=baseline, optimizers=others)
    level = LEVEL / max(1, len(others))
    sentences = []
    for dataset, backbone, folds, draws in dict.fromkeys(
        (row.dataset, row.backbone, row.folds, row.draws) for row in expected
    ):
        same = [a for a in assessments if (a.dataset, a.backbone) == (dataset, backbone)]
        if assessments and folds < fewest_folds(level):
            sentences.append(
                f"{dataset} × {backbone}: {folds} folds are too few to show a difference; with "
                f"Holm's correction over {len(others)} comparisons it takes {fewest_folds(level)}."
            )
            continue
        for made in same or assessments:
            sd = math.sqrt(made.noise.fold_variance(draws))
            noise = "" if same else f", noise of {made.dataset} × {made.backbone}"
            sentences.append(
                f"{dataset} × {backbone}, {made.optimizer} − {baseline}{noise}: {folds} folds × "
                f"{draws} draws show with {100 * POWER:g} % power a difference of "
                f"{_points(smallest_effect(sd, folds, level))}, or equivalence within "
                f"{_points(smallest_margin(sd, folds, level))}."
            )
    if not sentences:
        present = ", ".join(dict.fromkeys(o for _, _, o in conditions))
        raise ConfigError(
            f"--pilot {pilot}: no optimizer of the study shares two or more folds with the "
            f"baseline {baseline!r} there. It holds {present}; choose with --baseline."
        )
    return sentences


def _points(value: float) -> str:
    return f"{100 * value:.2f} points"
