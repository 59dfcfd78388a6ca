"""Select learning rates from a finished search for later studies (Sec. IV-C)."""

from collections.abc import Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.store.database import Store, StoredRun, open_store
from afor.bench.store.locations import find_store
from afor.bench.study.planned_runs import FindRate
from afor.bench.study.schema import OptimizerEntry, Search, Study
from afor.bench.training.record import FinishedRun

# Sec. IV-C: the grid, and the shorter training of its runs.
PAPER_GRID = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
SEARCH_EPOCHS, SEARCH_PATIENCE = 50, 15


def best_rates(store: Store, study: str | None = None) -> dict[tuple[str, str, str], float]:
    """Return the best learning rate by (data set, backbone, optimizer entry).

    The best rate has the highest validation accuracy, of the last epoch if its weights are tested,
    in a stream the highest accuracy on the next subject; of equal ones it is the smallest (the
    paper does not say). A diverged run is never the best. Raises ConfigError if the search is not
    complete, because a missing rate could be the best.
    """
    stored_runs = [stored for stored in store.runs(study) if stored.is_search]
    if not stored_runs:
        raise ConfigError(
            f"{store.path} holds no search for learning rates. Make one with `afor run lr-search`."
        )
    groups: dict[tuple[str, str, str], list[StoredRun]] = {}
    for stored in stored_runs:
        groups.setdefault((stored.dataset, stored.backbone, stored.entry), []).append(stored)
    return {condition: _best(store, condition, group) for condition, group in groups.items()}


class SearchedRates:
    """The learning rates of a search, by (data set, backbone, optimizer entry).

    The rate of a search with one optimizer serves all, as in the paper; with several optimizers,
    each takes its own.
    """

    def __init__(self, rates: Mapping[tuple[str, str, str], float]) -> None:
        self._rates = rates
        self._searched = sorted({entry for _, _, entry in rates})
        self.per_optimizer = len(self._searched) > 1

    def __call__(self, dataset: str, backbone: str, optimizer: OptimizerEntry) -> float:
        """Return the rate of a run; raise ConfigError if the search has none for it."""
        for name in [optimizer.name, optimizer.use] if self.per_optimizer else self._searched:
            if (dataset, backbone, name) in self._rates:
                return self._rates[dataset, backbone, name]
        covered = ", ".join(sorted({f"{d} × {b}" for d, b, _ in self._rates}))
        raise ConfigError(
            f"The search for learning rates has none for {dataset} × {backbone} with "
            f'"{optimizer.name}". It covers {covered} with {", ".join(self._searched)}. '
            f"Give the optimizer an lr in the study, or search with it too."
        )


def searched_rates(search: str) -> FindRate | None:
    """Return the learning rates of a finished search, or None if `search` is empty.

    `search` is the name of its study, its TOML file or its store.
    """
    if not search:
        return None
    with open_store(find_store(search)) as store:
        return SearchedRates(best_rates(store))


def search_study(study: Study) -> Study:
    """Return the search that finds a learning rate for each optimizer of a study."""
    protocol = study.protocol.model_copy(update={"only_folds": [0], "only_draws": [0]})
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
