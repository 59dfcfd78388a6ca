"""Say in words what training and validation curves show, where it is clear."""

import math
from collections.abc import Sequence

import numpy as np

from afor.bench.stats.groups import ConditionKey
from afor.bench.stats.labels import method_label, task_label
from afor.bench.stats.results import Curve, Results
from afor.bench.study.protocol import setting
from afor.bench.training.record import CLEAR

FELL = 0.10  # of ln(classes): a training loss that fell by more has learned its subjects
LAST = 0.10  # of the epochs: a best epoch among them means that more would have helped


def diagnose(results: Results) -> list[str]:
    """Return a sentence for each method whose curves show a clear fault.

    The four faults: the loss never left ln(classes), the training loss falls and the validation
    loss does not, the training stopped while still improving, runs diverged.

    Args:
        results: Results that were read from stores.
    """
    training = results.training
    keys = dict.fromkeys([*training.curves, *training.diverged])
    sentences = []
    for key in (key for key in keys if key[2] in results.methods and key[:2] in results.tasks):
        found = _faults(results, key)
        if found:
            where = f"{task_label(*key[:2])}, {method_label(key[2])}"
            sentences.append(f"{where}: {'; '.join(found)}.")
    return sentences


def _faults(results: Results, key: ConditionKey) -> list[str]:
    training = results.training
    curves = [curve for curve in training.curves.get(key, ()) if len(curve.train)]
    diverged = training.diverged.get(key, 0)
    found = []
    if diverged:
        total = diverged + len(curves)
        found.append(f"{diverged} of {total} runs diverged; lower the learning rate")
    condition = results.conditions.get(key)
    classes = max((run.classes for run in condition.runs.values()), default=0) if condition else 0
    if not curves or classes < 2:
        return found
    guess = math.log(classes)
    train = _median([curve.train.min() for curve in curves])
    validation = _median([curve.validation.min() for curve in curves])
    first = _median([curve.train[0] for curve in curves])
    if train > (1 - CLEAR) * guess:
        found.append(
            f"the training loss never left ln {classes} = {guess:.3f} (lowest {train:.3f}); raise "
            f"the learning rate or the number of epochs"
        )
    elif validation > (1 - CLEAR) * guess and max(first, guess) - train > FELL * guess:
        found.append(
            f"the training loss falls to {train:.3f} and the validation loss does not "
            f"(lowest {validation:.3f}, ln {classes} = {guess:.3f}); the network learns its "
            f"training subjects and nothing that holds for others"
        )
    late = sum(_stopped_early(curve, results, key) for curve in curves)
    if late and 2 * late >= len(curves):
        found.append(
            f"{late} of {len(curves)} runs were best in the last epochs that they were given; "
            f"more epochs would improve them"
        )
    return found


def _stopped_early(curve: Curve, results: Results, key: ConditionKey) -> bool:
    """Tell whether a run used all its epochs and was best in the last of them."""
    runs = results.conditions[key].runs
    most = setting(next(iter(runs.values())).protocol, "max_epochs")
    if not most.isdecimal() or len(curve.train) < int(most) or curve.best is None or int(most) < 2:
        return False
    return curve.best >= int(most) - max(1, math.ceil(LAST * int(most)))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))
