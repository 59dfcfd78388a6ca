"""`judge`: verdicts on any table of scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from afor.bench.notebook.results import StudyResults
from afor.bench.stats.results import Results
from afor.bench.stats.score_tables import read_scores


def judge(
    scores: Any,
    *,
    method: str | None = None,
    unit: str | None = None,
    score: str | None = None,
    task: str | None = None,
    repetition: str | None = None,
    metric: str | None = None,
    baseline: str | None = None,
    methods: Sequence[str] = (),
    metrics: Sequence[str] = (),
    margins: Mapping[str, float] | None = None,
    common: bool = False,
) -> StudyResults:
    """Judge which methods are better than a baseline, from any table of scores.

    Args:
        scores: A data frame or a list of dictionaries with a row per score (such as the results of
            MOABB) or a column per method; a dictionary of `cross_val_score` or `cross_validate` by
            method; or a file: a store, .csv, .json or .parquet.
        method: The column of the methods. Columns with common names are recognised.
        unit: The column of what is paired: the subject, or the fold.
        score: The column of the scores.
        task: The column of the data sets, if there are several.
        repetition: The column that tells repetitions of a unit apart, if there are any.
        metric: The column of the metrics, if a row holds one of several.
        baseline: The method that the others are compared with; None takes the first.
        methods: Methods to compare, which Holm's correction then covers alone; empty takes all.
        metrics: Metrics to show, the first of which decides; empty takes all. A single one says
            what scores without a name are, which sets their direction and margin.
        margins: Margins of equivalence by metric, in points.
        common: Leave out units that some method lacks, or whose score is missing.

    Returns:
        The results, which a notebook shows as verdict and table.

    Raises:
        ConfigError: The scores are not recognised, or a row is incomplete, duplicated or not
            finite.

    Example:
        >>> svm = [0.72, 0.68, 0.81, 0.77, 0.70, 0.74]
        >>> lda = [0.65, 0.60, 0.73, 0.70, 0.66, 0.69]
        >>> found = judge({"lda": lda, "svm": svm}, metrics=["accuracy"])
        >>> found.verdict().partition(":")[0]
        'the table, 6 folds. svm is better than lda'
    """
    roles = {"method": method, "unit": unit, "score": score, "task": task,
             "repetition": repetition, "metric": metric}  # fmt: skip
    columns = {role: column for role, column in roles.items() if column is not None}
    asked: dict[str, Any] = {"baseline": baseline, "methods": methods, "metrics": metrics}
    asked["margins"] = margins
    if isinstance(scores, str | Path):
        return StudyResults(Results.open([scores], columns=columns, common=common, **asked))
    named = metrics[0] if len(metrics) == 1 else "score"
    read = read_scores(scores, columns, named, common=common)
    return StudyResults(Results.of(read.runs, remarks=read.notes, **asked))
