"""A linear model on the splits of a study: what is there to learn without a network?

Log-variance of each channel, standardised over the training subjects, and logistic regression. It
takes seconds on a CPU, so a study fits it unless that would cost more, and stores the result.
"""

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from afor.bench.data.window_source import WindowSource
from afor.bench.store.database import Store
from afor.bench.store.results import fit_key
from afor.bench.store.tables import LinearFits
from afor.bench.study.planned_runs import PlannedRun, StudyPlan
from afor.bench.study.schema import Study, scored_trials
from afor.bench.training.metrics import measure_windows
from afor.bench.training.record import METRICS
from afor.bench.training.run_spec import DEFAULT_TRAINER

MAX_SAMPLES = 4e8  # of all windows and channels: a few seconds to read
MAX_FIT_VALUES = 4e7  # features times fits: a few seconds to fit
AT_ONCE = 2048  # windows


def is_cheap(study: Study, source: WindowSource, fits: int) -> bool:
    """Tell whether the linear model takes seconds on these data, and has the study's task."""
    same_task = study.training.order != "stream" and study.training.adaptation is None
    same_task = same_task and not scored_trials(study)  # the linear model is scored per window
    channels = len(source.channel_names)
    size = len(source) * channels
    is_small = size * source.window_samples <= MAX_SAMPLES and size * fits <= MAX_FIT_VALUES
    return study.trainer == DEFAULT_TRAINER and same_task and is_small


def fit_references(plan: StudyPlan, sources: Mapping[str, WindowSource], store: Store) -> None:
    """Fit the linear model on the splits that the store lacks, where that is cheap."""
    if not plan.study.reference:
        return
    for dataset, source in sources.items():
        splits: dict[str, PlannedRun] = {}
        for run in plan.runs:
            if run.dataset == dataset and (key := fit_key(run.protocol)):
                splits.setdefault(key, run)
        known = store.linear_fits()
        missing = {key: run for key, run in splits.items() if key not in known}
        if not missing or not is_cheap(plan.study, source, len(missing)):
            continue
        if fits := _fit(source, missing):
            store.add_linear_fits(fits)


def _fit(source: WindowSource, splits: Mapping[str, PlannedRun]) -> LinearFits:
    """Fit the model on each split; none if scikit-learn is missing or the data do not allow it."""
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from threadpoolctl import threadpool_limits
    except ImportError:
        return {}
    features = log_variance(source)
    fits: LinearFits = {}
    for key, run in splits.items():
        train, test = (source.indices_of(run.spec["split"][side]) for side in ("train", "test"))
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        # On one thread: several would wait for each other on a busy machine, twenty times as long.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # not quite converged is good enough here
            try:
                model.fit(features[train], source.labels[train])
            except ValueError:  # one class alone
                continue
            logits = np.full((len(test), source.n_classes), -1e3)
            logits[:, model.classes_] = model.predict_log_proba(features[test])
        found = measure_windows(np.maximum(logits, -1e3), source.labels[test])
        values = {name: getattr(found, name, None) for name in METRICS}
        fits[key] = {name: float(value) for name, value in values.items() if value is not None}
    return fits


def log_variance(source: WindowSource) -> NDArray[np.float64]:
    """Return the log-variance of each channel of every window."""
    parts = []
    for start in range(0, len(source), AT_ONCE):
        windows = source.gather(np.arange(start, min(start + AT_ONCE, len(source))))
        parts.append(np.log(windows.var(axis=2, dtype=np.float64) + 1e-12))
    return np.concatenate(parts)
