"""List the runs of a study, each with the specification that determines its result.

A run's key is the SHA-256 of the canonical JSON of its *spec*: data fingerprint, preprocessing,
subjects of the split, backbone and optimizer with their settings, seed, threads, dtype, device,
and the version of the numeric code. Settings at their defaults are left out, so that a new setting
changes no key; whoever changes what a default means increases `NUMERICS`. Paths, workers, engines,
bundles and the names of the study and its entries are not part of it: a run that two studies share
is trained once.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from afor.bench.common.devices import pick_device
from afor.bench.common.errors import ConfigError
from afor.bench.data.splits import Manifest, Split, make_splits
from afor.bench.models.input_shape import InputShape
from afor.bench.optimizers.build import check_optimizer, full_settings, load_class
from afor.bench.study.bundling import Bundling, bundle_key, plan_bundling
from afor.bench.study.named_code import code_of
from afor.bench.study.planned_runs import FindRate, PlannedRun, Spec, StudyPlan, canonical, run_key
from afor.bench.study.protocol import OWN, SEARCHED, protocol_of
from afor.bench.study.roles import roles_of, run_role
from afor.bench.study.schema import (
    BackboneEntry,
    DatasetEntry,
    OptimizerEntry,
    Study,
    method_training,
    paper_backbone,
    scored_trials,
)
from afor.bench.training.execute import resolve_trainer
from afor.bench.training.run_spec import DEFAULT_TRAINER, Training

if TYPE_CHECKING:
    from afor.bench.study.planned_runs import Source

# Increase it when the training code gives other numbers for the same spec. For a change in one
# network alone there is NETWORK_NUMERICS in models/registry.py. 2: windows that a test subject is
# adapted with are not contaminated.
NUMERICS = 2

# A plan holds all its runs with the names of their subjects in memory.
MAX_RUNS = 200_000


def make_plan(
    study: Study, sources: Mapping[str, "Source"], find_rate: FindRate | None = None
) -> StudyPlan:
    """List the runs of a study and check them as far as possible without training.

    Runs are ordered by repetition and fold, with all backbones and optimizers of a fold together,
    so that an unfinished study is already balanced.

    Args:
        study: The study.
        sources: The windows of each data set, by its name in the study.
        find_rate: Returns the learning rate from a search; None uses the rates of the study.

    Returns:
        The plan with all runs and their keys.

    Raises:
        ConfigError: A part of the study cannot be used.
        LeakageError: A subject would be on two sides of a split.

    Example:
        >>> import tempfile
        >>> from afor.bench.data.loading import open_windows
        >>> from afor.bench.study.schema import load_study
        >>> study = load_study("smoke")
        >>> options = study.datasets[0].options
        >>> windows = open_windows("synthetic", options=options, cache_dir=tempfile.mkdtemp())
        >>> plan = make_plan(study, {"synthetic": windows})
        >>> plan.runs[0].method, plan.runs[0].fold
        ('adam', 0)
    """
    _check_parts(study, sources)
    trainer = {} if study.trainer == DEFAULT_TRAINER else code_of(study.trainer, "trainer")
    device = _device(study)
    networks = {
        network.model_dump_json(): _backbone_spec(network, study.trainer)
        for network in _networks(study)
    }
    roles = roles_of(study)
    manifests: dict[str, Manifest] = {}
    bundling: dict[tuple[str, str], Bundling] = {}
    runs: list[PlannedRun] = []
    for dataset in study.datasets:
        source = sources[dataset.name]
        manifest = make_splits(
            dataset.name,
            source.subjects,
            study_seed=study.seed,
            folds=dataset.folds,
            repetitions=study.protocol.repetitions,
            validation_share=study.protocol.validation_share,
        )
        manifests[dataset.name] = manifest
        options = source.settings.model_dump(mode="json", exclude_defaults=True)
        of_data = {"kind": source.kind, "options": options, "fingerprint": source.fingerprint}
        cut = {entry.name: source.recut(**entry.data.options()) for entry in study.optimizers}
        data = {name: _data_spec(dataset, windows) for name, windows in cut.items()}
        decided: dict[tuple[str, Any, Any, int], Bundling] = {}
        selected = _selected(study, manifest)
        _check_size(study, len(runs), dataset.name, len(selected))
        for split, backbone, optimizer in product(selected, study.backbones, study.optimizers):
            network = optimizer.backbone or backbone
            described = network.model_dump_json()
            training = _training(study, dataset, optimizer)
            windows = cut[optimizer.name]
            alike = (described, training.batch_size, training.precision, windows.window_samples)
            if alike not in decided:
                decided[alike] = plan_bundling(study, network, windows, training, device)
                bundling.setdefault((dataset.name, network.name), decided[alike])
            bundles = decided[alike]
            for label, rate, rate_source in _rates(study, dataset, backbone, optimizer, find_rate):
                spec = _spec(study, training, split, optimizer, rate)
                spec |= {"data": data[optimizer.name], "backbone": networks[described]}
                spec |= {"device": device}
                spec |= {"trainer": trainer} if trainer else {}
                spec = json.loads(canonical(spec))  # exactly as the store returns it
                runs.append(
                    PlannedRun(
                        dataset=dataset.name,
                        backbone=backbone.name,
                        method=label,
                        fold=split.fold,
                        repetition=split.repetition,
                        key=run_key(spec),
                        spec=spec,
                        entry=optimizer.name,
                        rate=rate,
                        role=run_role(roles, optimizer.name, label),
                        protocol=protocol_of(
                            study, network, optimizer, spec, data=of_data, rate=rate_source
                        ),
                        bundle_key=bundle_key(spec) if bundles.together else "",
                    )
                )
    runs.sort(key=lambda run: (run.repetition, run.fold))  # stable: the rest stays as listed
    return StudyPlan(study, tuple(runs), manifests, dict(sources), bundling)


def shard(runs: tuple[PlannedRun, ...], number: int, of: int) -> tuple[PlannedRun, ...]:
    """Return every `of`-th run, starting with the `number`-th, counted from 1.

    Runs that can be one bundle count as one: they stay together.
    """
    if not 1 <= number <= of:
        raise ConfigError(f"shard {number}/{of} does not exist: choose from 1/{of} to {of}/{of}.")
    together: dict[object, list[PlannedRun]] = {}
    for position, run in enumerate(runs):
        together.setdefault(run.bundle_key or position, []).append(run)
    return tuple(run for group in list(together.values())[number - 1 :: of] for run in group)


def _spec(
    study: Study, training: Training, split: Split, optimizer: OptimizerEntry, rate: float
) -> Spec:
    decay = optimizer.weight_decay
    return {
        "code": NUMERICS,
        "dtype": "float32",
        "optimizer": {
            "name": optimizer.use,
            "lr": rate,
            "weight_decay": training.weight_decay if decay is None else decay,
            "settings": full_settings(optimizer.use, optimizer.settings)
            if study.trainer == DEFAULT_TRAINER
            else dict(optimizer.settings),
            **code_of(optimizer.use, "optimizer"),
        },
        "seed": study.seed if optimizer.seed is None else optimizer.seed,
        "split": asdict(split),
        "threads": study.threads,
        "training": training.model_dump(exclude_defaults=True, exclude={"lr", "weight_decay"}),
    }


def _data_spec(dataset: DatasetEntry, windows: "Source") -> Spec:
    return {
        "dataset": dataset.name,  # decides seeds
        "fingerprint": windows.fingerprint,
        "reader": dataset.use,
        "preprocessing": windows.settings.trial_settings(),
        "window_samples": windows.window_samples,
        "stride_samples": windows.stride_samples,
    }


def _training(study: Study, dataset: DatasetEntry, optimizer: OptimizerEntry) -> Training:
    """Return the training settings of a run: the study's, with what its entries override."""
    training = method_training(study.training, optimizer)
    changed: dict[str, object] = {}
    if dataset.batch_size is not None and "batch_size" not in optimizer.training:
        changed["batch_size"] = dataset.batch_size
    if optimizer.clip_norm is not None:
        changed["clip_norm"] = optimizer.clip_norm
    if training.adaptation is not None and optimizer.adaptation_state is not None:
        state = {"state": optimizer.adaptation_state}
        changed["adaptation"] = training.adaptation.model_copy(update=state)
    return training.model_copy(update=changed)


def _rates(
    study: Study,
    dataset: DatasetEntry,
    backbone: BackboneEntry,
    optimizer: OptimizerEntry,
    find_rate: FindRate | None,
) -> list[tuple[str, float, float | str]]:
    """Return the label, the learning rate, and the rate in the protocol of each run.

    There is one run, or one per value of the grid.
    """
    name = optimizer.name
    if study.search is not None:
        return [(f"{name} lr={rate:g}", rate, OWN) for rate in sorted(study.search.grid)]
    if optimizer.lr is not None:
        return [(name, optimizer.lr, OWN)]
    if find_rate is not None:
        rate = find_rate(dataset.name, backbone.name, optimizer)
        return [(name, rate, SEARCHED if getattr(find_rate, "per_optimizer", False) else rate)]
    network = (optimizer.backbone or backbone).name
    by_paper_name = dataset.lr.get(paper_backbone(network), study.training.lr)
    rate = dataset.lr.get(network, by_paper_name)
    return [(name, rate, rate)]


def _selected(study: Study, manifest: Manifest) -> list[Split]:
    """Return the splits to run; raise ConfigError for a fold or repetition that does not exist."""
    folds, repetitions = study.protocol.only_folds, study.protocol.only_repetitions
    wanted_folds = sorted(set(range(manifest.folds) if folds is None else folds))
    wanted_repetitions = sorted(
        set(range(study.protocol.repetitions) if repetitions is None else repetitions)
    )
    return [
        manifest.split(fold, repetition)
        for fold, repetition in product(wanted_folds, wanted_repetitions)
    ]


def _check_size(study: Study, planned: int, dataset: str, splits: int) -> None:
    """Raise ConfigError before listing the runs of a data set if there are too many."""
    rates = len(study.search.grid) if study.search else 1
    runs = splits * len(study.backbones) * len(study.optimizers) * rates
    if planned + runs > MAX_RUNS:
        raise ConfigError(
            f"{study.name} has {planned + runs} runs up to the data set {dataset}, a study has at "
            f"most {MAX_RUNS}. Take fewer repetitions, folds, backbones or methods, or make "
            f"several studies of it."
        )


def _networks(study: Study) -> list[BackboneEntry]:
    """Return the networks of all runs: those of methods, and the study's for other methods."""
    own = [entry.backbone for entry in study.optimizers if entry.backbone is not None]
    return own if len(own) == len(study.optimizers) else [*study.backbones, *own]


def _backbone_spec(entry: BackboneEntry, trainer: str) -> Spec:
    """Return the backbone with the settings that are not at their defaults."""
    spec: Spec = {"name": entry.use, "settings": dict(entry.settings)}
    spec |= code_of(entry.use, "backbone")
    if trainer != DEFAULT_TRAINER:
        return spec
    from afor.bench.models.registry import BACKBONES, NETWORK_NUMERICS

    if entry.use in BACKBONES:
        parameters = inspect.signature(BACKBONES[entry.use]).parameters
        spec["settings"] = {
            key: value for key, value in entry.settings.items() if value != parameters[key].default
        }
    if entry.use in NETWORK_NUMERICS:
        spec["code"] = NETWORK_NUMERICS[entry.use]
    return spec


def _device(study: Study) -> str:
    """Return the kind of device, on which results depend; which of several GPUs is no matter."""
    if study.trainer != DEFAULT_TRAINER:
        return study.device
    device_type = study.device.partition(":")[0]
    return pick_device(study.device).type if device_type == "auto" else device_type


def _check_protocol(study: Study, optimizer: OptimizerEntry) -> None:
    """Raise ConfigError for an optimizer that does not fit the order or has no use for a key."""
    training = method_training(study.training, optimizer)
    if scored_trials(study) and (training.order == "stream" or training.adaptation is not None):
        raise ConfigError(
            f'{study.name}: methods have windows of their own, and "{optimizer.name}" learns from '
            f"a stream or adapts to its test subjects, which is scored per window. Windows of two "
            f"lengths are not comparable: give all methods the same windows."
        )
    one_subject = training.order != "shuffled" or training.subjects_per_batch == 1
    if hasattr(load_class(optimizer.use), "for_subject") and not one_subject:
        raise ConfigError(
            f'{study.name}: optimizer "{optimizer.name}" needs batches of one subject. Set '
            f'order = "blocks" or order = "stream" in [training], or leave it out.'
        )
    if optimizer.adaptation_state is not None and training.adaptation is None:
        raise ConfigError(
            f'{study.name}: optimizer "{optimizer.name}" has adaptation_state = '
            f'"{optimizer.adaptation_state}", but the study adapts to nobody. Add '
            f"[training.adaptation], or remove it."
        )


def _check_parts(study: Study, sources: Mapping[str, "Source"]) -> None:
    """Check every backbone and optimizer without allocating weights or reading data."""
    if study.trainer != DEFAULT_TRAINER:
        resolve_trainer(study.trainer)
        if scored_trials(study):
            raise ConfigError(
                f"{study.name}: methods have windows of their own, so that runs are scored per "
                f"trial, which a trainer of your own need not do. Give all the same windows."
            )
        return  # a custom trainer interprets names and settings itself
    import torch

    from afor.bench.models.registry import BACKBONES, build_backbone, check_backbone

    for optimizer in study.optimizers:
        decay = optimizer.weight_decay
        check_optimizer(
            optimizer.use,
            optimizer.settings,
            weight_decay=study.training.weight_decay if decay is None else decay,
        )
        _check_protocol(study, optimizer)
    for backbone, windows in _inputs(study, sources):
        check_backbone(backbone.use, backbone.settings)
        try:
            with torch.device("meta"):
                build_backbone(backbone.use, InputShape.of(windows), **backbone.settings)
        except (NotImplementedError, RuntimeError) as error:
            if backbone.use in BACKBONES:
                raise ConfigError(
                    f"Backbone {backbone.name!r} cannot be built for the windows of "
                    f"{windows.dataset}: {error}"
                ) from error
            # A custom network may not support the meta device; its runs will show.


def _inputs(
    study: Study, sources: Mapping[str, "Source"]
) -> Iterator[tuple[BackboneEntry, "Source"]]:
    """Yield each network with each kind of windows that it is given."""
    seen = set()
    for entry, source in product(study.optimizers, sources.values()):
        windows = source.recut(**entry.data.options())
        for network in [entry.backbone] if entry.backbone else study.backbones:
            kind = (network.model_dump_json(), windows.dataset, windows.window_samples)
            if kind not in seen:
                seen.add(kind)
                yield network, windows
