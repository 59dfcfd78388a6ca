"""Make a study that compares AFOR with AdamW at AFOR's own time-averaged beta2.

    made = matched_study(store)
    Path("matched.toml").write_text(made.toml)

The averages come from finished AFOR runs of a store. AdamW gets them as one constant for all
tensors, and as one constant per tensor: any gain that AFOR still has comes from adapting.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.optimizers.build import full_settings
from afor.bench.store.database import Store, StoredRun
from afor.bench.study.schema import OptimizerEntry, Study, parse_study
from afor.bench.study.toml_io import study_toml
from afor.bench.training.record import RunRecord

CONTROLS = ("adamw", "adamw_09945", "afor_calibrated")  # besides the two held at the average


@dataclass(frozen=True)
class MatchedStudy:
    """A study that asks whether AFOR gains by adapting, and the averages it was made with."""

    study: Study
    toml: str
    dataset: str
    backbone: str
    optimizer: str
    runs: int
    steps: int
    beta2: float  # over all tensors
    beta2_by_tensor: Mapping[str, float]


def average_beta2(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return each tensor's mean beta2 over the steps of all runs: a long run counts for more.

    Raises ConfigError when the runs have no such means or are of different networks.
    """
    names = list(records[0].beta2_by_tensor) if records else []
    if not names or not all(record.beta2_by_tensor for record in records):
        raise ConfigError(
            "These runs do not hold each tensor's mean beta2: they are of another optimizer than "
            "AFOR, or were made before it was kept. Train them again with `afor run`."
        )
    if any(set(record.beta2_by_tensor) != set(names) for record in records):
        raise ConfigError(
            "These runs are of networks with different tensors, which have no common average. "
            "Choose one data set and one backbone."
        )
    steps = sum(record.steps for record in records)
    return {
        name: sum(record.beta2_by_tensor[name] * record.steps for record in records) / steps
        for name in names
    }


def matched_study(
    store: Store,
    study: str = "",
    dataset: str = "",
    backbone: str = "",
    optimizer: str = "afor",
) -> MatchedStudy:
    """Make the study from the finished runs of one optimizer on one network of a store.

    Everything but the optimizers is as in the stored study, so that its finished runs are not
    repeated in the same store. An empty name stands for the only one of the store. Raises
    ConfigError if the choice is not unique, no run is done, or the runs hold no averages.
    """
    stored_runs = _runs_of_optimizer(store, study, dataset, backbone, optimizer)
    records = [
        run.record
        for run in (store.run(stored.key) for stored in stored_runs if stored.status == "done")
        if run is not None and run.record is not None
    ]
    first = stored_runs[0]
    if not records:
        raise ConfigError(
            f"{store.path}: no run of {optimizer} on {first.dataset} × {first.backbone} is done "
            f"yet. Go on with `afor run {first.study}`."
        )
    by_tensor = average_beta2(records)
    beta2 = sum(by_tensor.values()) / len(by_tensor)
    stored_study = parse_study(store.studies()[first.study], f"{store.path}, study {first.study}")
    rates = {
        stored.entry: stored.rate
        for stored in store.runs(first.study)
        if (stored.dataset, stored.backbone) == (first.dataset, first.backbone)
    }
    matched = _with_controls(stored_study, first, by_tensor, beta2, rates)
    remarks = _remarks(first, len(records), beta2)
    steps = sum(record.steps for record in records)
    return MatchedStudy(
        matched, study_toml(matched, remarks), first.dataset, first.backbone,
        optimizer, len(records), steps, beta2, by_tensor,
    )  # fmt: skip


def _runs_of_optimizer(
    store: Store, study: str, dataset: str, backbone: str, optimizer: str
) -> list[StoredRun]:
    """Return the runs of one optimizer on one network of one study."""
    stored_runs = [stored for stored in store.runs() if not stored.is_search]
    names = {"method": optimizer, "study": study, "dataset": dataset, "backbone": backbone}
    for column, wanted in names.items():
        present = list(dict.fromkeys(getattr(stored, column) for stored in stored_runs))
        if not wanted:
            # A matched study holds the same AFOR runs again; it is never its own origin.
            origins = [name for name in present if column != "study" or "-matched-" not in name]
            if len(origins or present) > 1:
                raise ConfigError(
                    f"{store.path} holds several {column}s with {optimizer} runs; average over "
                    f"one, since they differ. Choose with --{column}: {', '.join(origins)}."
                )
            wanted = (origins or present)[0] if present else ""
        if wanted not in present:
            hint = did_you_mean(wanted, present, quote='"')
            raise ConfigError(
                f'{store.path} has no runs of the {column} "{wanted}".{hint} It has '
                f"{', '.join(present) or 'none'}. AFOR's averages need a finished study with AFOR."
            )
        stored_runs = [stored for stored in stored_runs if getattr(stored, column) == wanted]
    return stored_runs


def _with_controls(
    stored: Study,
    run: StoredRun,
    by_tensor: Mapping[str, float],
    beta2: float,
    rates: Mapping[str, float],
) -> Study:
    """Return the stored study on one network, with AFOR and its controls as its optimizers."""
    by_name = {entry.name: entry for entry in stored.optimizers}
    origin = by_name[run.entry]
    entries = [origin]
    for name in CONTROLS:
        entry = by_name.get(name) or OptimizerEntry(name=name, seed=origin.seed)
        entries.append(entry.model_copy(update={"lr": rates.get(name, run.rate)}))
    # The two controls differ from AFOR in beta2 alone: same learning rate, weight decay and eps.
    full: Mapping[str, Any] = full_settings(origin.use, origin.settings)
    beta1 = full.get("betas", (0.9, 0.999))[0]
    shared = {"eps": full.get("eps", 1e-8)}
    entries += [
        origin.model_copy(update={"name": name, "use": use, "settings": {**shared, **settings}})
        for name, use, settings in (
            ("adamw_mean", "adamw", {"betas": [beta1, beta2]}),
            (
                "adamw_mean_per_tensor",
                "adamw_per_tensor",
                {"betas": [beta1, beta2], "beta2_by_tensor": dict(by_tensor)},
            ),
        )
    ]
    other_rates = {e.name: e.lr if e.lr not in (None, run.rate) else None for e in entries}
    dataset = next(entry for entry in stored.datasets if entry.name == run.dataset)
    name = f"{stored.name}-matched-{run.dataset}-{run.backbone}"
    return stored.model_copy(
        update={
            "name": re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:80],
            "description": f"Is it the adaptation? AFOR beside AdamW at AFOR's mean beta2, "
            f"{run.dataset} × {run.backbone}.",
            # The learning rates that the stored runs were trained with, written out.
            "lr_from": "",
            "datasets": [dataset.model_copy(update={"lr": {run.backbone: run.rate}})],
            "backbones": [entry for entry in stored.backbones if entry.name == run.backbone],
            "optimizers": [e.model_copy(update={"lr": other_rates[e.name]}) for e in entries],
        }
    )


def _remarks(run: StoredRun, runs: int, beta2: float) -> str:
    return (
        f"Is it the adaptation at all? AFOR beside AdamW held at AFOR's own mean beta2.\n"
        f"Averages: {runs} finished runs of {run.method} on {run.dataset} × "
        f"{run.backbone} in the study {run.study},\n"
        f"over all their steps; over all tensors it is {beta2:.6f}.\n"
        f"The averages are pooled over folds and repetitions: a control of the mechanism, "
        f"not a method to report.\n"
        f"Run it with --store on the same store: finished runs are not repeated."
    )
