import dataclasses
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afor.bench.common.errors import ConfigError, LeakageError
from afor.bench.data.splits import (
    Manifest,
    make_splits,
    manifest_text,
    prove_disjoint,
)


def cohort(n: int) -> list[str]:
    return [f"s{i:03d}" for i in range(n)]


@pytest.mark.parametrize(
    ("n", "folds", "sizes", "count"),
    [
        (32, None, (25, 6, 1), 32),  # DEAP, Table I
        (9, None, (6, 2, 1), 9),  # BCI IV 2a
        (100, 10, (70, 20, 10), 10),  # ISRUC
    ],
)
def test_the_papers_subject_counts_come_out_exactly(
    n: int, folds: int | None, sizes: tuple[int, int, int], count: int
) -> None:
    manifest = make_splits("any", cohort(n), folds=folds)
    assert {(len(s.train), len(s.validation), len(s.test)) for s in manifest.splits} == {sizes}
    assert len(manifest.splits) == count * 5


@settings(max_examples=60, deadline=None)
@given(
    names=st.sets(st.text(min_size=1, max_size=6), min_size=4, max_size=40),
    seed=st.integers(0, 2**40),
    repetitions=st.integers(1, 4),
    data=st.data(),
)
def test_any_cohort_is_split_without_leakage(
    names: set[str], seed: int, repetitions: int, data: st.DataObject
) -> None:
    folds = data.draw(st.none() | st.integers(2, len(names)))
    manifest = make_splits(
        "x", sorted(names), study_seed=seed, folds=folds, repetitions=repetitions
    )
    everybody = set(names)
    tests: Counter[str] = Counter()
    for split in manifest.splits:
        train, validation, test = set(split.train), set(split.validation), set(split.test)
        assert train | validation | test == everybody
        assert len(train) + len(validation) + len(test) == len(everybody)
        assert len(validation) == max(1, int(0.2 * len(everybody) + 0.5))
        tests.update(split.test)
    assert tests == Counter(dict.fromkeys(everybody, repetitions))
    sizes = [len(split.test) for split in manifest.splits]
    assert max(sizes) - min(sizes) <= 1


def test_the_order_of_the_list_does_not_matter() -> None:
    names = cohort(20)
    assert make_splits("x", names, folds=5) == make_splits("x", names[::-1], folds=5)


def test_seed_and_dataset_decide_who_validates() -> None:
    def drawn(dataset: str, seed: int) -> list[tuple[str, ...]]:
        return [s.validation for s in make_splits(dataset, cohort(20), study_seed=seed).splits]

    assert drawn("a", 0) == drawn("a", 0)
    assert drawn("a", 0) != drawn("a", 1)
    assert drawn("a", 0) != drawn("b", 0)


def test_the_repetitions_of_a_fold_differ() -> None:
    splits = make_splits("x", cohort(32)).splits
    assert len({s.validation for s in splits if s.fold == 0}) == 5


def test_validation_subjects_are_drawn_evenly() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        for split in make_splits("x", cohort(10), study_seed=seed, repetitions=1).splits:
            counts.update(split.validation)
    # 60 studies x 10 folds x 2 of 9 candidates: 120 each, standard deviation about 10.
    assert set(counts) == set(cohort(10))
    assert all(abs(count - 120) < 45 for count in counts.values())


def test_these_splits_stay_the_same_in_every_version() -> None:
    split = make_splits("bci2a", [f"A0{i}" for i in range(1, 10)]).split(0, 0)
    assert split.test == ("A01",)
    assert split.validation == ("A03", "A06")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": ("s000", "s003")}, "subject s000 is in train and in test"),
        ({"validation": ("s000", "s001")}, "subject s000 is in validation and in test"),
        ({"train": ("s001", "s002", "s003")}, "is in train and in validation"),
        ({"validation": ()}, "no subject is in validation"),
        ({"train": ("s002",)}, "differ by s003"),
        ({"train": ("s002", "s003", "s099")}, "differ by s099"),
    ],
)
def test_a_split_that_mixes_people_is_refused(
    change: dict[str, tuple[str, ...]], message: str
) -> None:
    manifest = make_splits("x", cohort(4), repetitions=1)
    first = dataclasses.replace(
        manifest.splits[0], train=("s002", "s003"), validation=("s001",), test=("s000",)
    )
    rest = manifest.splits[1:]
    prove_disjoint(dataclasses.replace(manifest, splits=(first, *rest)))
    bad = dataclasses.replace(first, **change)
    with pytest.raises(LeakageError, match=message):
        prove_disjoint(dataclasses.replace(manifest, splits=(bad, *rest)))


def test_a_subject_tested_twice_or_never_is_refused() -> None:
    manifest = make_splits("x", cohort(4), repetitions=1)
    again = dataclasses.replace(manifest.splits[0], fold=4)
    with pytest.raises(LeakageError, match="tested in folds 0 and 4"):
        prove_disjoint(dataclasses.replace(manifest, splits=(*manifest.splits, again)))
    with pytest.raises(LeakageError, match="never tested: s000"):
        prove_disjoint(dataclasses.replace(manifest, splits=manifest.splits[1:]))


def test_a_subject_listed_twice_is_refused() -> None:
    with pytest.raises(LeakageError, match="s001 is listed twice"):
        make_splits("x", ["s000", "s001", "s001", "s002"])


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (2, {}, "at least 3"),
        (9, {"folds": 10}, "Choose from 2 to 9"),
        (9, {"folds": 1}, "Choose from 2 to 9"),
        (4, {"folds": 2, "validation_share": 0.5}, "leaves none to train on"),
        (9, {"repetitions": 0}, "repetitions must be at least 1"),
        (9, {"validation_share": 1.0}, "between 0 and 1"),
    ],
)
def test_splits_that_cannot_be_made_say_what_is_accepted(
    n: int, options: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_splits("x", cohort(n), **options)


def test_the_manifest_is_json_with_every_split() -> None:
    manifest = make_splits("x", ["Zoë", *cohort(8)], study_seed=7)
    text = manifest_text(manifest)
    assert "Zoë" in text
    content = json.loads(text)
    assert content["subjects"] == list(manifest.subjects)
    assert [list(map(str, s.values())) for s in content["splits"]] == [
        [str(s.fold), str(s.repetition), *(str(list(x)) for x in (s.train, s.validation, s.test))]
        for s in manifest.splits
    ]


def test_a_split_is_found_by_fold_and_repetition() -> None:
    manifest: Manifest = make_splits("x", cohort(5))
    assert manifest.split(3, 2).test == ("s003",)
    with pytest.raises(ConfigError, match="Folds go from 0 to 4, repetitions from 0 to 4"):
        manifest.split(5, 0)
