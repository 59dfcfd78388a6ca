"""Split subjects into training, validation and test, and prove that the sides are disjoint.

Every subject is tested in exactly one fold. Each fold draws its validation subjects several times
from those that are not tested; all others train. The split depends on the study seed, the name of
the data set and the names of the subjects, not on their order, the machine or library versions.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

from afor.bench.common.errors import ConfigError, LeakageError
from afor.bench.common.seeding import derive_seed

FORMAT = 2
# Sec. IV-B: "approximately 20%", of all subjects: only that gives the paper's 6, 2 and 20.
VALIDATION_SHARE = 0.2
# Limit of folds × repetitions × subjects; drawing so many splits takes seconds.
MAX_NAMES = 5_000_000
REPETITIONS = 5  # Sec. IV-B: "the validation split is drawn five times"


@dataclass(frozen=True)
class Split:
    """The subjects of one fold and repetition."""

    fold: int
    repetition: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """All splits of one data set in one study."""

    dataset: str
    study_seed: int
    folds: int  # number of folds; equal to the number of subjects for leave-one-subject-out
    subjects: tuple[str, ...]
    splits: tuple[Split, ...]

    @cached_property
    def _by_number(self) -> dict[tuple[int, int], Split]:
        return {(split.fold, split.repetition): split for split in self.splits}

    def split(self, fold: int, repetition: int) -> Split:
        """Return the split of a fold and repetition; raise ConfigError if it does not exist."""
        if split := self._by_number.get((fold, repetition)):
            return split
        raise ConfigError(
            f"{self.dataset} has no fold {fold}, repetition {repetition}. Folds go from 0 to "
            f"{self.folds - 1}, repetitions from 0 to "
            f"{max(split.repetition for split in self.splits)}."
        )


def make_splits(
    dataset: str,
    subjects: Sequence[str],
    *,
    study_seed: int = 0,
    folds: int | None = None,
    repetitions: int = REPETITIONS,
    validation_share: float = VALIDATION_SHARE,
) -> Manifest:
    """Split subjects into training, validation and test, so that each is tested in one fold.

    Args:
        dataset: Name of the data set; part of the random seeds.
        subjects: Names of the subjects, in any order.
        study_seed: Seed of the study.
        folds: Number of folds; None leaves one subject out at a time.
        repetitions: Number of validation repetitions of each fold.
        validation_share: Share of all subjects that validate.

    Returns:
        All splits, proved to be disjoint.

    Raises:
        ConfigError: The numbers are not possible, or a fold would have no training subject.
        LeakageError: A subject is listed twice.

    Example:
        >>> first = make_splits("deap", [f"s{i:02d}" for i in range(1, 33)]).splits[0]
        >>> len(first.train), len(first.validation), len(first.test)
        (25, 6, 1)
    """
    names = _checked_subjects(dataset, subjects)
    if folds is not None and not 2 <= folds <= len(names):
        raise ConfigError(
            f"{dataset}: {folds} test groups of {len(names)} subjects are not possible. "
            f"Choose from 2 to {len(names)}, or none for leave-one-subject-out."
        )
    if repetitions < 1 or not 0.0 < validation_share < 1.0:
        raise ConfigError(
            f"{dataset}: repetitions must be at least 1 and the validation share between 0 and 1, "
            f"got {repetitions} and {validation_share}."
        )
    count = len(names) if folds is None else folds
    if count * repetitions * len(names) > MAX_NAMES:
        raise ConfigError(
            f"{dataset}: {count} folds with {repetitions} repetitions of {len(names)} subjects are "
            f"too many splits; folds × repetitions × subjects must be at most {MAX_NAMES}. Take "
            f"fewer repetitions or fewer subjects, or set folds."
        )
    n_validation = max(1, math.floor(validation_share * len(names) + 0.5))
    splits = []
    for fold, test in enumerate(_test_groups(dataset, names, folds, study_seed)):
        tested = set(test)
        untested = [name for name in names if name not in tested]
        if len(untested) <= n_validation:
            raise ConfigError(
                f"{dataset}: fold {fold} tests {len(test)} of {len(names)} subjects and "
                f"validates on {n_validation}, which leaves none to train on. Use more subjects, "
                f"more folds or a smaller validation share."
            )
        for repetition in range(repetitions):
            seed = derive_seed(study_seed, dataset, fold, repetition, "validation")
            validation = set(_shuffled(untested, seed)[:n_validation])
            train = tuple(name for name in untested if name not in validation)
            splits.append(Split(fold, repetition, train, tuple(sorted(validation)), tuple(test)))
    manifest = Manifest(dataset, study_seed, count, tuple(names), tuple(splits))
    prove_disjoint(manifest)
    return manifest


def prove_disjoint(manifest: Manifest) -> None:
    """Raise LeakageError unless every split separates subjects and each subject is tested once."""
    everybody = set(manifest.subjects)
    tested: dict[str, int] = {}
    for split in manifest.splits:
        where = f"{manifest.dataset}, fold {split.fold}, repetition {split.repetition}"
        owner: dict[str, str] = {}
        for side in ("train", "validation", "test"):
            names = getattr(split, side)
            for name in names:
                if name in owner:
                    raise LeakageError(
                        f"{where}: subject {name} is in {owner[name]} and in {side}. "
                        f"A subject belongs to one side; make the splits again."
                    )
                owner[name] = side
            if not names:
                raise LeakageError(f"{where}: no subject is in {side}; make the splits again.")
        if owner.keys() != everybody:
            odd = ", ".join(sorted(owner.keys() ^ everybody))
            raise LeakageError(
                f"{where}: the sides and the list of subjects differ by {odd}. "
                f"Every subject of the dataset belongs to one side."
            )
        for name in split.test:
            if tested.setdefault(name, split.fold) != split.fold:
                raise LeakageError(
                    f"{manifest.dataset}: subject {name} is tested in folds {tested[name]} and "
                    f"{split.fold}. Every subject is tested in one fold."
                )
    if tested.keys() != everybody:
        missing = ", ".join(sorted(everybody - tested.keys()))
        raise LeakageError(
            f"{manifest.dataset}: never tested: {missing}. Every subject is tested in one fold."
        )


def manifest_text(manifest: Manifest) -> str:
    """Return the manifest as JSON."""
    content = {"format": FORMAT, **asdict(manifest)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _checked_subjects(dataset: str, subjects: Sequence[str]) -> list[str]:
    names = sorted(subjects)
    twice = sorted({name for name, next_name in pairwise(names) if name == next_name})
    if twice:
        raise LeakageError(
            f"{dataset}: subject {', '.join(twice)} is listed twice. One person, one name: "
            f"the same person under two entries would be on both sides of a split."
        )
    if len(names) < 3:
        raise ConfigError(
            f"{dataset}: {len(names)} subjects cannot be split; training, validation and test "
            f"need one each, so at least 3."
        )
    return names


def _test_groups(
    dataset: str, names: list[str], folds: int | None, study_seed: int
) -> list[list[str]]:
    if folds is None:
        return [[name] for name in names]
    order = _shuffled(names, derive_seed(study_seed, dataset, None, None, "folds"))
    edges = [round(i * len(names) / folds) for i in range(folds + 1)]
    return [sorted(order[a:b]) for a, b in pairwise(edges)]


def _shuffled(names: Sequence[str], seed: int) -> list[str]:
    # Ordered by hash, which does not depend on the version of a random generator.
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
