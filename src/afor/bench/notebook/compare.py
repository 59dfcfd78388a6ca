"""`compare`: the strict protocol on data in memory, in one call."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from afor.bench.common.devices import cores
from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.prepared import open_cache
from afor.bench.notebook.live_cell import LiveCell
from afor.bench.notebook.own_code import entries_of
from afor.bench.notebook.results import StudyResults
from afor.bench.notebook.session import Session
from afor.bench.notebook.trials import as_trials, write_trials
from afor.bench.stats.results import Results
from afor.bench.store.learning_rates import SMALL_GRID
from afor.bench.store.locations import store_path
from afor.bench.study.schema import parse_study
from afor.bench.training.record import METRICS


def compare(
    data: Any,
    labels: Any = None,
    subjects: Any = None,
    *,
    optimizers: Any = None,
    backbone: Any = "eegnet",
    backbones: Any = None,
    methods: Sequence[Any] | None = None,
    rate_hz: float | None = None,
    channel_names: Sequence[str] | None = None,
    trial_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    control: bool = False,
    reference: bool = True,
    lr: float | Sequence[float] | None = None,
    batch_size: int = 32,
    max_epochs: int = 60,
    patience: int = 10,
    repetitions: int = 1,
    folds: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    name: str = "notebook",
    metric: str = "accuracy",
    store: str | Path | None = None,
    cache_dir: str | Path | None = None,
    workers: int = 0,
    progress: bool = True,
) -> StudyResults:
    """Compare optimizers, networks or other choices across subjects.

    Networks train on some people and are tested on others: every subject is tested once, by
    networks that have not seen them. All methods have the same splits; those with the same network
    start from the same weights and see the same batches. Each finished run is stored at once: the
    same call again trains only what is missing.

    Args:
        data: An array (trials, channels, samples) in microvolts; MNE Epochs; a dictionary from
            subjects to arrays, Epochs or Raw; a data set of torch, skorch or braindecode; or the
            name of a data set of `afor data list`.
        labels: Class of each trial, or a dictionary by subject. None takes the event names of MNE
            and the labels of a data set.
        subjects: Subject of each trial, or the name of a column of Epochs' metadata. None for a
            dictionary, and for braindecode's descriptions. For a named data set: those to use.
        optimizers: Names of optimizers, classes such as ``torch.optim.SGD``, instances, or
            ``functools.partial`` of a class with settings; None is AdamW and AFOR.
        backbone: Name of a network, a class or function that takes an `InputShape`, a class of
            ``braindecode.models``, or a list of these, of which each is a task of its own.
        backbones: Networks that are compared with each other, as `backbone` takes them; each is
            trained with every one of `optimizers`, None for AdamW.
        methods: What is compared, if it is more than optimizers or networks: dictionaries with the
            keys of ``[[methods]]`` of a study, such as ``{"name": "cosine", "optimizer": "adam",
            "training": {"schedule": "cosine"}}``, and what `optimizers` takes.
        rate_hz: Sampling rate of arrays.
        channel_names: Names of the channels of arrays; None numbers them.
        trial_s: Length of a trial of Raw, from its annotations on; None takes their duration.
        options: Options of the data set, such as ``window_samples`` or ``band_hz``.
        baseline: The method that the others are compared with; None takes the first.
        control: Train the baseline a second time under another seed, to see how far apart the
            same method comes out.
        reference: Fit a linear model on the same splits where that takes seconds.
        lr: Learning rate of all optimizers. Several are tried with the baseline on two folds first,
            and the best serves all; None tries 0.001, 0.003 and 0.01.
        batch_size: Number of windows in a batch.
        max_epochs: Maximum number of epochs.
        patience: Epochs without a better validation accuracy after which a training stops.
        repetitions: Trainings of each fold, each with other validation subjects.
        folds: Number of folds; None leaves out one subject at a time.
        minutes: Fit the study into this time on this machine: first the rates, then epochs up to
            `max_epochs`, folds, and as many repetitions as fit. `results.spent` says what was done,
            and what more time would change. A notebook shows the verdict while it trains.
        seed: Seed of weights, batches and splits.
        name: Name of the study.
        metric: The metric of verdict and figures.
        store: File of the results; None uses ``results/NAME.db``.
        cache_dir: Folder of the prepared data; None uses ``$AFOR_CACHE`` or the user's cache.
        workers: Number of parallel processes; 0 uses all available cores.
        progress: Show the progress and, in a notebook, the results so far.

    Returns:
        The results. A notebook shows them as verdict and table.

    Raises:
        ConfigError: A setting cannot be used, such as a baseline that is none of the optimizers.
        AforError: The data cannot be used, or runs failed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> results = compare(
        ...     "synthetic", optimizers=["afor"], options={"n_subjects": 3, "trials": 4},
        ...     lr=1e-3, max_epochs=1, store=folder / "x.db", cache_dir=folder, workers=1,
        ...     progress=False,
        ... )
        >>> len(results.to_rows())
        3
    """
    if metric not in METRICS:
        hint = did_you_mean(metric, METRICS)
        raise ConfigError(f"No run has the metric {metric!r}.{hint} Here: {', '.join(METRICS)}.")
    if minutes is not None and not (isinstance(minutes, int | float) and 0 < minutes < math.inf):
        raise ConfigError(f"minutes={minutes!r}: expected a number above 0.")
    cache = open_cache(cache_dir)
    entries = _methods(optimizers, backbones, methods, cache / "code")
    names = [entry["name"] for entry in entries]
    first = baseline or (names[0] if names else "")
    if first not in names:
        raise ConfigError(f"baseline {first!r} is not one of the methods {', '.join(names)}.")
    if isinstance(data, str):
        dataset: dict[str, Any] = {"name": data, "options": dict(options or {})}
        if subjects is not None:
            dataset["subjects"] = [str(subject) for subject in subjects]
    else:
        trials = as_trials(
            data, labels, subjects, rate_hz=rate_hz, channel_names=channel_names, trial_s=trial_s
        )
        folder = write_trials(trials, cache / "arrays")
        dataset = {"name": name, "use": "folder", "root": str(folder)}
        dataset["options"] = dict(options or {})
    if folds is not None:
        dataset["folds"] = folds
    if control:
        again = next(entry for entry in entries if entry["name"] == first)
        copied = {"use": first, **again, "name": f"{first}_seed_{seed + 1}", "seed": seed + 1}
        entries.append(copied)
    networks = {"backbones": entries_of(backbone, "backbone", cache / "code")}
    study = parse_study(
        {
            "name": name,
            "description": f"{', '.join(names)} on {dataset['name']}.",
            "seed": seed,
            "reference": reference,
            "datasets": [dataset],
            **({} if isinstance(lr, int | float) else {"lr_search": list(lr or SMALL_GRID)}),
            **({} if all("backbone" in entry for entry in entries) else networks),
            "methods": entries,
            "training": {
                **({"lr": float(lr)} if isinstance(lr, int | float) else {}),
                "batch_size": batch_size,
                "max_epochs": max_epochs,
                "patience": patience,
            },
            "protocol": {"repetitions": repetitions},
        },
        where="compare",
    )
    path = store_path(name, Path(store) if store is not None else None)

    def read() -> StudyResults:
        return StudyResults(Results.open([path], studies=[study.name], baseline=first).by(metric))

    cell = LiveCell.here(read) if progress else None
    session = Session(path, cache, workers or cores(), progress, first, cell)
    if minutes is not None:
        spent = session.run_within(study, minutes)
        return replace(read(), spent=spent)
    session.run(study, session.search(study))
    return read()


def _methods(
    optimizers: Any,
    backbones: Any,
    methods: Sequence[Any] | None,
    folder: Path,
) -> list[dict[str, Any]]:
    """Return the entries of what is compared; raise ConfigError if it is named twice."""
    if methods is None and backbones is None:
        return entries_of(
            ("adamw", "afor") if optimizers is None else optimizers, "optimizer", folder
        )
    if methods is None:
        trained = entries_of("adamw" if optimizers is None else optimizers, "optimizer", folder)
        networks = entries_of(backbones, "backbone", folder)
        return [
            {
                "use": optimizer["name"],
                **optimizer,
                "name": network["name"] + (f"_{optimizer['name']}" if len(trained) > 1 else ""),
                "backbone": network,
            }
            for network in networks
            for optimizer in trained
        ]
    if optimizers is not None or backbones is not None:
        raise ConfigError("methods name their optimizers and networks themselves: leave them out.")
    entries: list[dict[str, Any]] = []
    for method in methods:
        if not isinstance(method, Mapping):
            entries += entries_of(method, "optimizer", folder)
            continue
        entry = dict(method)
        if "optimizer" in entry:
            (optimizer,) = entries_of(entry.pop("optimizer"), "optimizer", folder)
            entry = {"use": optimizer["name"], **optimizer, **entry}
        if "backbone" in entry:
            (entry["backbone"],) = entries_of(entry["backbone"], "backbone", folder)
        entries.append(entry)
    return entries
