"""One HTML page about the data of a folder: classes, balance, amplitudes and spectra."""

import base64
import html
import io
from collections.abc import Sequence

import numpy as np

from afor.bench.data.inspection.check import inspect_trials
from afor.bench.data.window_source import WindowSource

MAX_WINDOWS = 2000
MAX_CHANNELS = 64
MAX_HZ = 50.0
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #ccc;"
    "text-align:right}tr.all{font-weight:600}th:first-child,td:first-child{text-align:left}img{max-width:100%}"
)


def data_page(
    title: str, findings: Sequence[str], source: WindowSource | None, problem: str
) -> str:
    """Return the page as HTML without scripts or links to other files.

    Args:
        title: Heading of the page.
        findings: Lines that describe the folder.
        source: The windows as the proposed study reads them; None if they cannot be read.
        problem: Why the study cannot be planned, or an empty text.
    """
    parts = [f"<h1>{html.escape(title)}</h1>", _list(findings)]
    if problem:
        parts.append(f"<h2>What must be mended</h2><p>{html.escape(problem)}</p>")
    if source is not None:
        parts.append(_subjects(source))
        if not problem:
            parts.append("<p>No trial occurs in two subjects: all were compared.</p>")
        parts.append(_spectra(source))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"{''.join(parts)}</body></html>\n"
    )


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line.strip())}</li>' for line in lines)}</ul>"


def _subjects(source: WindowSource) -> str:
    """Return a table with the classes and the amplitude of each subject, and what is odd."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in source.class_names)
    rows, odd = [], []
    for code, prepared in enumerate(source.prepared):
        spread, warnings = inspect_trials(source.trials_of(code), prepared)
        odd += [f"{prepared.subject}: {text}" for text in (*prepared.notes, *warnings)]
        cells = "".join(f"<td>{count}</td>" for count in prepared.class_counts())
        rows.append(
            f"<tr><td>{html.escape(prepared.subject)}</td>{cells}<td>{np.median(spread):.1f}</td>"
            "</tr>"
        )
    totals = np.bincount(source.labels, minlength=source.n_classes) // source.windows_per_trial
    last = "".join(f"<td>{count}</td>" for count in totals.tolist())
    return (
        f"<h2>Trials of each class</h2><table><tr><th>subject</th>{head}<th>SD, µV</th></tr>"
        f"{''.join(rows)}<tr class=all><td>all</td>{last}<td></td></tr></table>"
        f"<h2>What is odd</h2>{_list(odd) if odd else '<p>Nothing.</p>'}"
    )


def _spectra(source: WindowSource) -> str:
    """Return a picture with the mean spectrum of each class in each channel."""
    from matplotlib.figure import Figure
    from scipy.signal import welch

    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(source))[:MAX_WINDOWS])
    windows, labels = source.gather(chosen), source.labels[chosen]
    names = source.channel_names[:MAX_CHANNELS]
    columns = min(6, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(2.1 * columns, 1.7 * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes = grid.reshape(-1)
    highest_hz = _highest_hz(source)
    segment = min(windows.shape[2], round(2 * source.rate_hz))
    for label in np.unique(labels):
        freqs, power = welch(windows[labels == label], fs=source.rate_hz, nperseg=segment)
        shown = (freqs > 0) & (freqs <= highest_hz)
        mean = power.mean(axis=0)[:, shown]
        for axis, of_channel in zip(axes, mean[: len(names)], strict=False):
            axis.semilogy(freqs[shown], of_channel, linewidth=1, label=source.class_names[label])
    for axis, channel in zip(axes, names, strict=False):
        axis.set_title(channel, fontsize=8)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    for axis in axes[max(0, len(names) - columns) : len(names)]:
        axis.tick_params(labelbottom=True)  # also above an empty place of the last row
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, fontsize=8, ncols=6, loc="outside upper left", frameon=False)
    figure.supxlabel("Hz", fontsize=8)
    figure.supylabel("µV²/Hz", fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    data = base64.b64encode(picture.getvalue()).decode()
    n_channels = len(source.channel_names)
    left_out = (
        f", the first {len(names)} of {n_channels} channels" if n_channels > len(names) else ""
    )
    return (
        f"<h2>Spectra of the classes</h2><p>Means over subjects{left_out}; classes that lie on "
        "each other in all channels cannot be told apart by power.</p>"
        f'<img alt="Spectra of each class and channel" src="data:image/png;base64,{data}">'
    )


def _highest_hz(source: WindowSource) -> float:
    """Return where spectra end: at the edge of the filter's pass band, at most 50 Hz."""
    band_hz = getattr(source.settings, "band_hz", "none")
    edge_hz = MAX_HZ if band_hz == "none" else float(band_hz[1])
    return min(MAX_HZ, source.rate_hz / 2, edge_hz)
