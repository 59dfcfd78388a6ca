import re
from dataclasses import replace

import pytest

from afor.bench.report.verdicts import (
    answers,
    paragraphs,
    verdict_sentence,
    verdict_word,
    verdicts,
)
from afor.bench.stats.comparisons import compare
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions


def one(gain, folds=9, margins=None, metric="accuracy", **options):
    options = {"datasets": ["deap"], "subject_noise": 0.002, "seed_noise": 0.01, **options}
    results, _ = simulate_results({"adam": 0.0, "afor": gain}, **options)
    conditions = collect_conditions([r for r in results if r.fold < folds], margins=margins)
    return compare(conditions, "deap", "eegnet", metric)[0]


NUMBER = r"[+−]\d+\.\d\d"
INTERVAL = f"{NUMBER} to {NUMBER}"


@pytest.mark.parametrize(
    ("comparison", "word", "sentence"),
    [
        (
            one(0.05),
            "better",
            rf"AFOR is better than Adam: {NUMBER} points of Acc \(95 % interval {INTERVAL}, "
            r"corrected p 0\.004\)\.",
        ),
        (one(-0.05), "worse", rf"AFOR is worse than Adam: {NUMBER} points of Acc \(.*\)\."),
        (
            one(0.01, margins={"accuracy": 5}),
            "better",
            rf"AFOR is better than Adam, by less than 5 points: {NUMBER} points of Acc .*",
        ),
        (
            one(0.0, folds=32),
            "equal ±1",
            rf"No difference: AFOR and Adam are equal within 1 point of Acc \({NUMBER}, 90 % "
            rf"interval {INTERVAL}\)\.",
        ),
        (
            one(0.0, seed_noise=0.04),
            "undecided",
            rf"Undecided: AFOR − Adam is {NUMBER} points of Acc \(95 % interval {INTERVAL}\); "
            r"at this noise \d+ subjects instead of 9, or \d+ draws instead of 5, would decide "
            r"with a probability of 80 % whether there is a difference of 1 point or none\.",
        ),
        (
            one(0.0, seed_noise=0.001, subject_noise=0.04),
            "undecided",
            r"Undecided: .*; at this noise \d+ subjects instead of 9 would decide .*",
        ),
        (one(0.05, folds=3), "undecided", r"Undecided: .*95 % interval unbounded\); at this .*"),
        (
            one(0.0038, folds=32, margins={"accuracy": 0.4}),
            "undecided",
            r"Undecided: .*; 32 subjects decide with a probability of at least 80 % .*",
        ),
    ],
)
def test_the_sentence_carries_the_verdict_and_its_numbers(comparison, word, sentence):
    assert verdict_word(comparison) == word
    assert re.fullmatch(sentence, verdict_sentence(comparison))


def test_without_all_runs_there_is_no_verdict():
    lacking = replace(one(0.05), done=80)
    assert verdict_word(lacking) == "–"
    assert verdict_sentence(lacking).startswith("No verdict yet: 80 of 90 runs of AFOR and Adam")


def test_a_metric_without_a_margin_says_that_the_study_can_state_one():
    results, _ = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"])
    results = [replace(r, metrics={"loss": r.metrics["accuracy"]}) for r in results]
    (comparison,) = compare(collect_conditions(results), "bci2a", "eegnet", "loss")
    assert verdict_sentence(comparison).endswith(
        "no margin of equivalence, which a study can state."
    )
    stated = collect_conditions(results, margins={"loss": 90.0})
    (comparison,) = compare(stated, "bci2a", "eegnet", "loss")
    assert comparison.decision == "equivalent"


def test_folds_of_several_subjects_are_called_folds():
    results, _ = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"], seed_noise=0.05)
    results = [replace(r, test_subjects=("a", "b")) for r in results]
    (comparison,) = compare(collect_conditions(results), "bci2a", "eegnet", "accuracy")
    assert "folds instead of 9" in verdict_sentence(comparison)


def test_a_paragraph_starts_with_afor_and_groups_the_others():
    gains = {"adam": 0.0, "mars": 0.05, "radam": 0.06, "sophia": -0.05, "afor": 0.03}
    conditions = collect_conditions(*simulate_results(gains, datasets=["bci2a"]))
    (text,) = verdicts(conditions)
    assert text.startswith("BCI IV 2a, EEGNet, 9 folds. AFOR is better than Adam")
    assert text.endswith("Others: better than Adam: RAdam, MARS; worse than Adam: Sophia.")
    without = [
        c for c in compare(conditions, "bci2a", "eegnet", "accuracy") if c.optimizer != "afor"
    ]
    assert paragraphs(without)[0].startswith("BCI IV 2a, EEGNet, 9 folds. RAdam is better than")


def test_the_answer_is_one_sentence_and_other_verdicts_stand_apart():
    results, _ = simulate_results({"adam": 0.0, "mars": 0.0, "afor": 0.0}, datasets=["bci2a"])
    kappa = {"adam": 0.0, "mars": 0.0, "afor": 0.2}
    results = [
        replace(r, metrics={**r.metrics, "kappa": kappa[r.optimizer] + r.fold / 100})
        for r in results
    ]
    conditions = collect_conditions(results)
    (answer,) = answers(conditions, ["accuracy", "weighted_f1", "kappa"])
    sentence = answer.sentence.removeprefix("BCI IV 2a, EEGNet, 9 folds. ")
    assert sentence.startswith("Undecided: ")
    assert sentence.count(". ") == 0
    assert answer.details == "AFOR by kappa: better than Adam. Others: undecided: MARS."
    (alone,) = answers(conditions, ["accuracy", "weighted_f1"])
    assert alone.sentence == answer.sentence
    assert alone.details == "Others: undecided: MARS."
