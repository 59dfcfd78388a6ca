"""The numbers of the convergence figure: the training loss at the first, middle and last epoch."""

import math
from collections.abc import Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.stats.groups import mean_sd
from afor.bench.stats.labels import mean_sd_text, optimizer_label

Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]  # panel: optimizer: loss per epoch


def convergence_table(curves: Curves) -> Table:
    """Return mean ± SD over runs of the training loss, from what `curves.loss_curves` gives.

    Only runs that reached an epoch count there; the column `runs` says how many reached the last.
    """
    if not any(curves.values()):
        raise ConfigError("There is no training loss here: no finished run of these optimizers.")
    rows, records = [], []
    for panel, by_optimizer in curves.items():
        last = max(len(run) for runs in by_optimizer.values() for run in runs)
        epochs = {"first": 1, "middle": math.ceil(last / 2), "last": last}
        rows.append(Row(f"{panel}: epochs {', '.join(map(str, epochs.values()))}", heading=True))
        for name, runs in by_optimizer.items():
            reached = sum(len(run) == last for run in runs)
            texts = [f"{reached}/{len(runs)}"]
            record: dict[str, object] = {"panel": panel, "optimizer": name, "runs": len(runs)}
            record |= {"epochs": last, "runs_to_the_end": reached}
            for moment, epoch in epochs.items():
                mean, sd, n = mean_sd([run[epoch - 1] for run in runs if len(run) >= epoch])
                texts.append(mean_sd_text(mean, sd, 3) if n else "–")
                record |= {f"{moment}_mean": mean, f"{moment}_sd": sd}
            rows.append(text_row(optimizer_label(name), texts))
            records.append(record)
    return Table(
        name="convergence",
        title="Training loss: mean ± SD over runs",
        columns=columns_of("runs", "first", "middle", "last"),
        rows=tuple(rows),
        notes=(
            "runs: those that reached the last epoch, of all. The preset convergence trains "
            "without early stopping, so that all do.",
        ),
        records=tuple(records),
    )
