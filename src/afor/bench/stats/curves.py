"""Collect training curves and controller traces for figures."""

from collections.abc import Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.stats.labels import block_label, order_optimizers
from afor.bench.store.results import RunResult
from afor.bench.training.record import RunRecord

WARMUP_STEPS = 100  # Sec. IV-C
Records = Sequence[tuple[RunResult, RunRecord]]


def loss_curves(
    records: Records, optimizers: Sequence[str] | None = None
) -> dict[str, dict[str, list[list[float]]]]:
    """Return {data set and backbone: {optimizer: training loss per epoch, one list per run}}."""
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for run, record in records:
        if not optimizers or run.optimizer in optimizers:
            title = block_label(run.dataset, run.backbone)
            losses = [epoch.train_loss for epoch in record.history]
            curves.setdefault(title, {}).setdefault(run.optimizer, []).append(losses)
    return {
        title: {name: runs[name] for name in order_optimizers(runs)}
        for title, runs in curves.items()
    }


def run_traces(
    records: Records, optimizer: str = "afor"
) -> tuple[list[Mapping[str, Mapping[str, list[float]]]], list[float], str, float]:
    """Return traces of one optimizer on one network; losses, title, warm-up of the first run.

    The warm-up is in epochs, of AFOR's default of 100 steps.
    """
    traced = [(run, record) for run, record in records if record.traces]
    networks = dict.fromkeys((run.dataset, run.backbone) for run, _ in traced)
    selected = [(run, record) for run, record in traced if run.optimizer == optimizer]
    if not selected:
        present = ", ".join(dict.fromkeys(run.optimizer for run, _ in traced)) or "none"
        raise ConfigError(
            f"No run of {optimizer!r} here has traces of its beta2; only AFOR and its variants "
            f"have them. Optimizers with traces: {present}."
        )
    if len(networks) > 1:
        pairs = ", ".join(f"{dataset}/{backbone}" for dataset, backbone in networks)
        raise ConfigError(f"Choose one network with --dataset and --backbone. Here: {pairs}.")
    run, first = selected[0]
    title = f"{block_label(run.dataset, run.backbone)}, fold {run.fold}, draw {run.draw}"
    losses = [epoch.train_loss for epoch in first.history]
    warmup_epochs = WARMUP_STEPS * len(losses) / max(first.steps, 1)
    return [record.traces for _, record in selected], losses, title, warmup_epochs
