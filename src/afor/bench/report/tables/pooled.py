"""Build the table of comparisons over tasks: pooled gain, interval, heterogeneity."""

import math
from dataclasses import asdict

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of
from afor.bench.report.verdicts import interval_text, pooled_verdict, verdict_word
from afor.bench.stats.labels import gain_scale, metric_style, optimizer_label, p_text, signed
from afor.bench.stats.pooling import PooledComparison
from afor.bench.stats.results import Results

ONE_TASK = "Fewer than two tasks are compared here: there is nothing to pool."


def pooled_table(results: Results) -> Table:
    """Return every method compared with the baseline over all tasks.

    Raises:
        ConfigError: There are fewer than two tasks.
    """
    if not results.pooled:
        raise ConfigError(ONE_TASK)
    rows: list[Row] = []
    heading = ""
    for c in results.pooled:
        style = metric_style(c.metric)
        unit = "" if style.gain_unit == "points" else f", in {style.gain_unit}"
        tasks, datasets = len(c.tasks), c.datasets
        counts = f"{tasks} tasks"
        if datasets < tasks:
            counts += f" on {datasets} data set{'s' * (datasets > 1)}"
        if heading != (heading := f"Over tasks, {style.label}: {counts}{unit}"):
            rows.append(Row(heading, heading=True))
        rows.append(Row(optimizer_label(c.optimizer), _cells(c)))
    return Table(
        name="pooled",
        title=f"Gain over {optimizer_label(results.baseline)}, pooled over tasks (points)",
        columns=(
            *columns_of("verdict", "gain", "95 % interval", "prediction", "I²"),
            *(Column(test, "Holm p") for test in ("different", "equal")),
            *columns_of("W/T/L"),
        ),
        rows=tuple(rows),
        notes=_notes(results),
        records=tuple(_record(c) for c in results.pooled),
    )


def _cells(c: PooledComparison) -> tuple[TableCell, ...]:
    scale = gain_scale(c.metric)
    heterogeneity = "–" if math.isnan(c.i_squared) else f"{100 * c.i_squared:.0f} %"
    return (
        TableCell(verdict_word(c)),
        TableCell(signed(scale * c.gain), partial="" if c.complete else "incomplete"),
        TableCell(interval_text(*c.interval, scale)),
        TableCell(interval_text(*c.prediction, scale)),
        TableCell(heterogeneity),
        *(TableCell(p_text(p)) for p in (c.p_different_holm, c.p_equivalent_holm)),
        TableCell("/".join(map(str, c.won_tied_lost))),
    )


def _notes(results: Results) -> tuple[str, ...]:
    notes = []
    if any(c.datasets < len(c.tasks) for c in results.pooled):
        notes.append(
            "Backbones on one data set share its subjects: their differences are averaged fold by "
            "fold, and a data set counts once."
        )
    if any(c.datasets > 1 for c in results.pooled):
        notes.append(
            "Data sets are pooled by a random-effects model (Paule-Mandel, Knapp-Hartung). "
            "prediction: 95 % interval of the gain on a further data set, from three data sets on. "
            "I²: share of the variance between data sets that chance within them does not explain."
        )
    if any(c.datasets == 1 for c in results.pooled):
        notes.append("With one data set the test is the exact one over its folds.")
    if blind := max(c.blind for c in results.pooled):
        notes.append(
            f"Left out: up to {blind} tasks on which neither method is better than guessing."
        )
    family = max(c.family for c in results.pooled)
    correction = f"over {family} comparisons" if family > 1 else "of one comparison: none"
    return (*notes, f"Holm's correction {correction}. W/T/L: tasks won, tied, lost.")


def _record(c: PooledComparison) -> dict[str, object]:
    record = asdict(c)
    for name in ("interval", "inner_interval", "prediction"):
        record[f"{name}_low"], record[f"{name}_high"] = record.pop(name)
    wins = dict(zip(("wins", "ties", "losses"), record.pop("won_tied_lost"), strict=True))
    return {
        "verdict": c.decision.value if c.decision else None,
        **record,
        **wins,
        "tasks": len(c.tasks),
        "sentence": " ".join(pooled_verdict(c).lines),
    }
