"""The results as Markdown tables, for the terminal and for the documentation."""

from collections.abc import Iterable, Sequence

from contenders import CONTENDERS
from results import USEFUL_BYTES, Record, Results, Spread, ratio
from targets import Verdict, judge, label

QUIET = 0.05  # cores in use by others, up to which a measurement counts
UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))
GRADIENTS = {
    "kept": "gradients kept",
    "fresh": "fresh gradients each step",
    "backward": "optimizer's part of the step",
}


def render(results: Results) -> str:
    """Return all tables."""
    parts = [_machine(results)]
    for group in dict.fromkeys(r.group for r in results.records):
        if not group[0].startswith("scaling-"):
            rows = [r for r in results.records if r.group == group]
            parts.append(_workload(results, rows))
    parts += filter(None, (_scaling(results), _state(results), _copy(results)))
    return "\n\n".join(parts) + "\n"


def render_targets(results: Results) -> str:
    """Return the table of targets."""
    rows = [_target_row(verdict) for verdict in judge(results)]
    header = ("workload", "threads", "contender", "against", "at most", "measured", "verdict")
    return f"### Targets{_isa(results)}\n\n" + _table(header, rows, numbers=(1, 4, 5))


def _target_row(verdict: Verdict) -> tuple[str, ...]:
    target = verdict.target
    return (
        target.title,
        str(verdict.threads),
        label(target.contender),
        label(target.against),
        f"{target.at_most:.3g}",
        _ratio(verdict.reached) if verdict.reached else "—",
        verdict.word,
    )


def _machine(results: Results) -> str:
    m = results.machine
    isa = m.get("kernel_isa")  # runs before it was recorded have none
    text = (
        f"Measured on {m['cpu']}, {m['cores']} cores, {m['system']}, Python {m['python']}, "
        f"torch {m['torch']}, {m['date']}. "
        + (f"Instruction set of AFOR's kernel: {isa}. " if isa else "")
        + "Median (quartiles) over rounds; ratios are taken within rounds."
    )
    if m.get("clock") == "processor":
        text += " Times are the processor time of all threads together, not wall time."
    others = m.get("cores_used_by_others")
    if others is not None:
        text += f" Other programs used {others:.2f} cores meanwhile."
        if others > QUIET and m.get("clock") != "processor":
            text += " **The machine was busy: do not quote these numbers.**"
    return text


def _isa(results: Results) -> str:
    """Return the instruction set of AFOR's kernel as titles name it."""
    isa = results.machine.get("kernel_isa")
    return f", {isa}" if isa else ""


def _workload(results: Results, rows: Sequence[Record]) -> str:
    first = rows[0]
    plural = "s" if first.threads > 1 else ""
    note = GRADIENTS[first.gradients]
    title = f"### {first.title}, {first.threads} thread{plural}{_isa(results)} ({note})"
    fused, adam = (
        results.find(first.workload, first.threads, name, first.gradients)
        for name in ("adamw-fused", "adam")
    )
    copies = results.copy_gb_s.get(first.threads)
    large = first.parameters > 1_000_000
    header = ["contender", "step", "× AdamW fused", "× Adam"]
    if first.gradients == "backward":
        header += ["whole training step", "× Adam, whole"]
    if large:
        header.append("useful GB/s")
        header += ["of a copy"] if copies else []
    table = []
    for row in sorted(rows, key=lambda r: r.time_us.median if r.samples_us else float("inf")):
        if not row.samples_us:
            continue
        cells = [
            f"**{row.label}**" if row.contender == "afor-fused" else row.label,
            _time(row.time_us),
            _ratio(ratio(row, fused)) if fused else "—",
            _ratio(ratio(row, adam)) if adam else "—",
        ]
        if first.gradients == "backward":
            cells.append(_time(Spread.of(row.whole_us)))
            cells.append(_ratio(ratio(row, adam, whole=True)) if adam else "—")
        if large:
            cells.append(f"{row.useful_gb_s:.1f}")
            if copies:
                cells.append(f"{row.useful_gb_s / Spread.of(copies).median:.0%}")
        table.append(cells)
    return f"{title}\n\n" + _table(header, table, numbers=range(1, len(header))) + _missing(rows)


def _missing(rows: Sequence[Record]) -> str:
    """Return who is not in the table, and why."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            reasons.setdefault(row.missing, []).append(row.label)
    return "".join(f"\n\n{', '.join(who)}: {why}." for why, who in reasons.items())


def _scaling(results: Results) -> str:
    rows = [r for r in results.records if r.workload.startswith("scaling-") and r.samples_us]
    if not rows:
        return ""
    sizes = sorted({r.parameters for r in rows})
    names = [name for name in CONTENDERS if any(r.contender == name for r in rows)]
    table = []
    for size in sizes:
        cells = [f"{size:,}"]
        for name in names:
            same = [r for r in rows if r.parameters == size and r.contender == name]
            cells.append(_time(same[0].time_us, brief=True) if same else "—")
        table.append(cells)
    header = ["parameters", *(label(name) for name in names)]
    threads = rows[0].threads
    title = f"### One tensor from {sizes[0]:,} to {sizes[-1]:,} parameters, threads: {threads}"
    return f"{title}\n\n" + _table(header, table, numbers=range(len(header)))


def _state(results: Results) -> str:
    """Return what each optimizer keeps, on the workload with the fewest parameters."""
    rows = [r for r in results.records if r.workload == "eegnet" and r.samples_us]
    rows = list({r.contender: r for r in rows}.values())
    if not rows:
        return ""
    moments = 2 * 4 * rows[0].parameters
    table = [
        [r.label, f"{r.state_bytes:,}", f"{(r.state_bytes - moments) / r.tensors:.0f}"]
        for r in sorted(rows, key=lambda r: r.state_bytes)
    ]
    header = ("contender", "bytes of state on EEGNet", "per tensor beyond two moments")
    return "### State\n\n" + _table(header, table, numbers=(1, 2))


def _copy(results: Results) -> str:
    if not results.copy_gb_s:
        return ""
    rows = [
        [str(threads), f"{s.median:.1f} ({s.low:.1f}–{s.high:.1f})"]
        for threads, s in ((t, Spread.of(v)) for t, v in results.copy_gb_s.items())
    ]
    text = _table(("threads", "GB/s copied, reads and writes counted"), rows, numbers=(0, 1))
    return (
        f"### Memory\n\n{text}\n\nUseful GB/s count {USEFUL_BYTES} bytes per parameter, the least "
        "an Adam step can move, whatever a contender really moves."
    )


def _time(spread: Spread, *, brief: bool = False) -> str:
    unit, scale = next((u for u in UNITS if spread.median >= u[1]), UNITS[-1])
    values = [_digits(value / scale) for value in spread]
    return f"{values[0]} {unit}" if brief else f"{values[0]} {unit} ({values[1]}–{values[2]})"


def _ratio(spread: Spread) -> str:
    return f"{_digits(spread.median)} ({_digits(spread.low)}–{_digits(spread.high)})"


def _digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = ()
) -> str:
    """Return an aligned Markdown table; the columns in ``numbers`` are set right."""
    right = set(numbers)
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * (w - 1) + ":" if i in right else "-" * w for i, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])
