"""Select learning rates from a finished search for later studies (Sec. IV-C)."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.store.database import Store, StoredRun, open_store
from afor.bench.store.locations import find_store
from afor.bench.study.planned_runs import FindRate
from afor.bench.study.schema import OptimizerEntry, Search, Study
from afor.bench.training.record import CLEAR, FinishedRun

# Sec. IV-C: the grid, and the shorter training of its runs.
PAPER_GRID = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
SEARCH_EPOCHS, SEARCH_PATIENCE = 50, 15
# The search with one method that new studies begin with, and on how many folds.
SMALL_GRID, SMALL_FOLDS = [1e-3, 3e-3, 1e-2], 2

Condition = tuple[str, str, str]  # data set, backbone, optimizer entry


class SearchedRates:
    """The learning rates of a search, by (data set, backbone, optimizer entry).

    The rate of a search with one optimizer serves all, as in the paper; with several optimizers,
    each takes its own.

    Args:
        rates: The best rates.
        tried: All rates that were tried.
        guessing: The conditions in which no rate was better than guessing.
    """

    def __init__(
        self,
        rates: Mapping[Condition, float],
        tried: Mapping[Condition, Iterable[float]] | None = None,
        guessing: Container[Condition] = (),
    ) -> None:
        self.rates = rates
        self._tried = tried or {}
        self._guessing = guessing
        self._searched = sorted({entry for _, _, entry in rates})
        self.per_optimizer = len(self._searched) > 1

    @classmethod
    def of(cls, store: Store, study: str | None = None) -> "SearchedRates":
        """Read the rates of a finished search from its store.

        The best rate has the highest validation accuracy, of the last epoch if its weights are
        tested, in a stream the highest accuracy on the next subject; of equal ones it is the
        smallest (the paper does not say). A diverged run is never the best. Raises ConfigError if
        the search is not complete, because a missing rate could be the best.
        """
        groups: dict[Condition, list[StoredRun]] = {}
        for stored in store.runs(study):
            if stored.is_search:
                condition = (stored.dataset, stored.backbone, stored.entry)
                groups.setdefault(condition, []).append(stored)
        if not groups:
            raise ConfigError(
                f"{store.path} holds no search for learning rates. Make one with `afor run "
                f"lr-search`."
            )
        return cls(
            {condition: _best(store, condition, runs) for condition, runs in groups.items()},
            {condition: {run.rate for run in runs} for condition, runs in groups.items()},
            [condition for condition, runs in groups.items() if _only_guessed(store, runs)],
        )

    def lines(self) -> list[str]:
        """Return a line per condition; one that cannot be relied on says what to do.

        >>> key = ("deap", "eegnet", "adam")
        >>> SearchedRates({key: 0.01}, {key: [0.001, 0.01]}).lines()[0].partition(",")[0]
        'learning rate of deap × eegnet × adam: 0.01'
        """
        return [
            f"learning rate of {' × '.join(condition)}: {rate:g}{self._doubt(condition)}"
            for condition, rate in self.rates.items()
        ]

    def doubts(self) -> list[str]:
        """Return the lines of the conditions whose best rate cannot be relied on."""
        lines = zip(self.lines(), self.rates, strict=True)
        return [line for line, condition in lines if self._doubt(condition)]

    def _doubt(self, condition: Condition) -> str:
        """Say that no rate learned anything, or that the best is at the edge of those tried."""
        if condition in self._guessing:
            return (
                ", chosen among rates of which none was better than guessing on the validation "
                "subjects: it says nothing"
            )
        rate, tried = self.rates[condition], sorted(self._tried.get(condition, ()))
        if len(tried) < 2 or rate not in (tried[0], tried[-1]):
            return ""
        end, other = ("largest", "larger") if rate == tried[-1] else ("smallest", "smaller")
        factor = 3.0 if rate == tried[-1] else 1 / 3
        grid = ", ".join(f"{rate * factor**i:.1g}" for i in sorted((0, 1, 2), key=factor.__pow__))
        return (
            f", the {end} of those tried: a {other} one may be better; try lr_search = [{grid}] in "
            f"the study"
        )

    def __call__(self, dataset: str, backbone: str, optimizer: OptimizerEntry) -> float:
        """Return the rate of a run; raise ConfigError if the search has none for it."""
        for name in [optimizer.name, optimizer.use] if self.per_optimizer else self._searched:
            if (dataset, backbone, name) in self.rates:
                return self.rates[dataset, backbone, name]
        covered = ", ".join(sorted({f"{d} × {b}" for d, b, _ in self.rates}))
        raise ConfigError(
            f"The search for learning rates has none for {dataset} × {backbone} with "
            f'"{optimizer.name}". It covers {covered} with {", ".join(self._searched)}. '
            f"Give the method an lr in the study, or search with it too."
        )


def searched_rates(search: str) -> FindRate | None:
    """Return the learning rates of a finished search, or None if `search` is empty.

    `search` is the name of its study, its TOML file or its store.
    """
    if not search:
        return None
    with open_store(find_store(search)) as store:
        return SearchedRates.of(store)


def small_search(study: Study, baseline: str = "adam") -> Study:
    """Return the search that a study with `lr_search` begins with.

    It tries the rates of `lr_search`, or else three usual ones, with one method on two folds. If
    methods have networks of their own, each is searched.

    Args:
        study: The study.
        baseline: The method to search with; the first if the study has no such method.
    """
    search = search_study(study)
    first = [entry for entry in search.optimizers if entry.name == baseline]
    own_networks = any(entry.backbone is not None for entry in search.optimizers)
    optimizers = search.optimizers if own_networks else (first or search.optimizers)[:1]
    folds = study.protocol.only_folds or list(range(SMALL_FOLDS))
    only = {"only_folds": folds[:SMALL_FOLDS], "only_repetitions": [0]}
    return search.model_copy(
        update={
            "search": Search(grid=study.lr_search or SMALL_GRID),
            "protocol": study.protocol.model_copy(update=only),
            "optimizers": optimizers,
        }
    )


def search_study(study: Study) -> Study:
    """Return the search that finds a learning rate for each optimizer of a study."""
    protocol = study.protocol.model_copy(update={"only_folds": [0], "only_repetitions": [0]})
    training = study.training.model_copy(
        update={
            "max_epochs": min(SEARCH_EPOCHS, study.training.max_epochs),
            "patience": min(SEARCH_PATIENCE, study.training.patience),
        }
    )
    # A control differs from its original in the seed alone: it takes the original's rate.
    optimizers = [entry for entry in study.optimizers if entry.seed is None]
    return study.model_copy(
        update={
            "name": f"{study.name}-lr-search",
            "search": Search(grid=PAPER_GRID),
            "protocol": protocol,
            "training": training,
            "optimizers": optimizers,
            "lr_from": "",
            "lr_search": [],
        }
    )


def _best(store: Store, condition: tuple[str, str, str], stored_runs: Sequence[StoredRun]) -> float:
    scores: dict[float, list[float]] = {}
    for stored in stored_runs:
        if stored.status in ("open", "failed"):
            raise ConfigError(
                f"The search {stored.study} is not complete: {' × '.join(condition)} with "
                f"lr = {stored.rate:g} is {stored.status}. Finish it with "
                f"`afor run {stored.study}`."
            )
        run = store.run(stored.key) if stored.status == "done" else None
        scores.setdefault(stored.rate, []).append(_score(run) if run else -1.0)
    means = {rate: sum(values) / len(values) for rate, values in scores.items()}
    return min(means, key=lambda rate: (-means[rate], rate))


def _only_guessed(store: Store, stored_runs: Sequence[StoredRun]) -> bool:
    """Tell whether the validation loss of no run fell clearly below that of guessing."""
    runs = [store.run(stored.key) for stored in stored_runs if stored.status == "done"]
    records = [run.record for run in runs if run is not None and run.record is not None]
    losses = [
        min(epoch.validation_loss for epoch in record.history)
        / math.log(len(record.train_class_counts))
        for record in records
        if record.history and len(record.train_class_counts) > 1 and not record.prequential
    ]
    return bool(losses) and min(losses) > 1 - CLEAR


def _score(run: FinishedRun) -> float:
    """Return the accuracy by which a rate is chosen; no test subject has a part in it."""
    if run.record is None:
        return -1.0
    if run.record.prequential:
        return run.record.metrics()["prequential_accuracy"]
    accuracies = [epoch.validation_accuracy for epoch in run.record.history]
    if run.spec["training"].get("weights") == "last":
        return accuracies[-1]
    return max(accuracies, default=-1.0)
