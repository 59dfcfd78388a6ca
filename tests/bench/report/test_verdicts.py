import re
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.report.verdicts import answers, verdict_of, verdict_word
from afor.bench.stats.comparisons import compare
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.results import Results


def one(gain, folds=9, margins=None, metric="accuracy", **options):
    options = {"datasets": ["deap"], "subject_noise": 0.002, "seed_noise": 0.01, **options}
    results, _ = simulate_results({"adam": 0.0, "afor": gain}, **options)
    conditions = collect_conditions([r for r in results if r.fold < folds], margins=margins)
    return compare(conditions, "deap", "eegnet", metric)[0]


def quieter(comparison):
    """Return a comparison whose noise would have let it find what it looked for."""
    return replace(comparison, differences=0.05 * comparison.differences)


INTERVAL = r"[+−]\d+\.\d\d to [+−]\d+\.\d\d points"
SEEN = r"Acc of AFOR is \d+\.\d\d points (higher|lower)"


@pytest.mark.parametrize(
    ("comparison", "word", "lines"),
    [
        (
            one(0.05),
            "better",
            [
                rf"AFOR is better than Adam: {SEEN}\.",
                rf"95 % interval of the difference {INTERVAL}, p 0\.004\.",
            ],
        ),
        (
            one(-0.05),
            "worse",
            [r"AFOR is worse than Adam: Acc of AFOR is 5\.\d\d points lower\.", ".*, p 0.*"],
        ),
        (
            one(0.01, margins={"accuracy": 5}),
            "better",
            [rf"AFOR is better than Adam, by less than 5 points: {SEEN}\.", ".*"],
        ),
        (
            one(0.0, folds=32),
            "equal ±1",
            [
                r"No difference: AFOR and Adam are equal within 1 point of Acc\.",
                rf"{SEEN} \(90 % interval {INTERVAL}\)\.",
            ],
        ),
        (
            one(0.0, seed_noise=0.04),
            "undecided",
            [
                rf"Undecided: AFOR and Adam are not shown to differ, nor to be equal; {SEEN}\.",
                rf"AFOR − Adam may be anything from {INTERVAL} \(95 % interval\)\.",
                r"About \d+ to \d+ subjects in all would settle a difference of 1 point\.",
            ],
        ),
        (
            one(0.05, folds=3),
            "undecided",
            [
                rf"Undecided: .*{SEEN}\.",
                r"3 subjects are too few for an interval\.",
                r"3 subjects cannot show any difference; it takes at least 6\.",
            ],
        ),
        (
            quieter(one(0.0, seed_noise=0.04)),
            "undecided",
            [
                "Undecided: .*",
                ".* may be anything .*",
                r"A difference of 1 point would have been found; one in between needs more "
                r"subjects\.",
            ],
        ),
    ],
)
def test_the_lines_carry_the_verdict_and_its_numbers(comparison, word, lines):
    assert verdict_word(comparison) == word
    found = verdict_of(comparison).lines
    assert len(found) == len(lines)
    for line, expected in zip(found, lines, strict=True):
        assert re.fullmatch(expected, line), line


def test_what_the_correction_costs_is_said_before_what_would_settle_it():
    gains = {"adam": 0.0, "afor": 0.02, **{f"m{i}": 0.0 for i in range(10)}}
    made = simulate_results(gains, datasets=["bci2a"], seed_noise=0.03, seed=1)
    results = Results.of(*made, metrics=["accuracy"])
    (afor,) = [c for c in results.comparisons if c.method == "afor"]
    assert afor.evidence.p_two_sided < 0.05 < afor.evidence.p_different_holm
    assert re.fullmatch(
        r"The correction over 11 comparisons stands between this result and a verdict: p 0\.\d+ "
        r"becomes 0\.\d+\. Fewer methods, chosen beforehand, would settle it, or about \d+ to \d+ "
        r"subjects if the difference is as large as seen\.",
        verdict_of(afor).then,
    )


def test_less_of_a_loss_is_said_as_lower_and_is_better():
    results, expected = simulate_results({"adam": 0.0, "afor": 0.05}, datasets=["bci2a"])
    losses = [replace(r, metrics={"nll": 1 - r.metrics["accuracy"]}) for r in results]
    (c,) = Results.of(losses, expected, metrics=["nll"]).comparisons
    ours, theirs = (np.mean([getattr(p, side) for p in c.pairs]) for side in ("ours", "theirs"))
    verdict = verdict_of(c)
    assert verdict.what == f"AFOR is better than Adam: NLL of AFOR is {theirs - ours:.4f} lower."
    low, high = c.interval
    assert f"95 % interval of the difference −{high:.4f} to −{low:.4f}," in verdict.sure


def test_without_all_runs_there_is_no_verdict():
    lacking = replace(one(0.05), done=80)
    assert verdict_word(lacking) == "–"
    assert verdict_of(lacking).what.startswith("No verdict yet: 80 of 90 runs of AFOR and Adam")


def test_a_metric_without_a_margin_says_that_one_would_help():
    results, _ = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"])
    results = [replace(r, metrics={"loss": r.metrics["accuracy"]}) for r in results]
    (comparison,) = compare(collect_conditions(results), "bci2a", "eegnet", "loss")
    assert verdict_of(comparison).then.startswith("No margin of equivalence is set for loss: with")
    stated = collect_conditions(results, margins={"loss": 90.0})
    (comparison,) = compare(stated, "bci2a", "eegnet", "loss")
    assert comparison.decision == "equivalent"


def test_folds_of_several_subjects_are_called_folds():
    results, _ = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"], seed_noise=0.05)
    results = [replace(r, test_subjects=("a", "b")) for r in results]
    (comparison,) = compare(collect_conditions(results), "bci2a", "eegnet", "accuracy")
    assert re.search(r"About \d+ to \d+ folds in all would settle", verdict_of(comparison).then)


def test_a_paragraph_starts_with_afor_and_groups_the_others():
    gains = {"adam": 0.0, "mars": 0.05, "radam": 0.06, "sophia": -0.05, "afor": 0.03}
    results = Results.of(*simulate_results(gains, datasets=["bci2a"]))
    (answer,) = answers(results)
    assert answer.text.startswith("BCI IV 2a, EEGNet, 9 folds. AFOR is better than Adam")
    assert answer.text.endswith("Others: better than Adam: RAdam, MARS; worse than Adam: Sophia.")
    others = {key: c for key, c in results.conditions.items() if c.method != "afor"}
    (best,) = answers(Results((), others, ("accuracy",)))
    assert best.text.startswith("BCI IV 2a, EEGNet, 9 folds. RAdam is better than")


def test_other_verdicts_stand_apart_from_the_first():
    results, _ = simulate_results({"adam": 0.0, "mars": 0.0, "afor": 0.0}, datasets=["bci2a"])
    kappa = {"adam": 0.0, "mars": 0.0, "afor": 0.2}
    results = [
        replace(r, metrics={**r.metrics, "kappa": kappa[r.method] + r.fold / 100}) for r in results
    ]
    by_three = Results.of(results, metrics=["accuracy", "weighted_f1", "kappa"])
    (answer,) = answers(by_three)
    assert answer.verdict.what.startswith("Undecided: ")
    assert answer.others == "AFOR by kappa: better than Adam. Others: undecided: MARS."
    by_two = Results.of(results, metrics=["accuracy", "weighted_f1"])
    (alone,) = answers(by_two)
    assert alone.verdict == answer.verdict
    assert alone.others == "Others: undecided: MARS."
