"""Draw one picture per data set: a trial, its spectrum by class, class counts per subject.

    AFOR_PHYSIONET_ROOT=… python docs/figures/datasets.py [NAME …]

PhysioNet is drawn from the real recordings in AFOR_PHYSIONET_ROOT and left out without them. DEAP,
BCI IV 2a and ISRUC need an agreement or a large download: they are drawn from stand-ins in their
format (`afor data stand-in`), and the pictures say so.
"""

import os
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter
from scipy.signal import welch

from afor.bench.data.catalog import get_dataset
from afor.bench.data.loading import open_windows
from afor.bench.data.stand_ins import write_stand_in

IMAGES = Path(__file__).resolve().parents[1] / "images"
INK, MUTED = "#1d2733", "#8a94a0"
COLOURS = ("#2f6db3", "#d0722c", "#3f8f5f", "#8d5aa8", "#b8433f")
SHOWN_CHANNELS = 6
plt.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "text.color": INK,
     "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": INK, "ytick.color": INK,
     "axes.titlelocation": "left", "axes.titlesize": 9.5, "axes.titleweight": "bold"}
)  # fmt: skip

# name → (subjects of the stand-in or None, its trials, options, channel of the spectrum, seconds)
SETS = {
    "synthetic": (None, 0, {}, "C4", 3),
    "physionet_mi": (None, 0, {}, "Oz", 4),
    "deap": (["s01", "s02", "s03", "s04"], 0, {}, "F3", 5),
    "bci2a": ([f"A0{i}" for i in range(1, 10)], 96, {}, "C4", 3),
    "isruc": ([str(i) for i in range(1, 13)], 150, {}, "C3", 10),
}


def draw(name: str, source, label: str, channel: str, seconds: float) -> None:
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(10, 3.1), layout="constrained", width_ratios=(1.25, 1, 1.25)
    )
    whole = source.gather(np.arange(len(source)))
    names = source.channel_names
    rows = np.linspace(0, len(names) - 1, min(SHOWN_CHANNELS, len(names))).astype(int)
    samples = min(round(seconds * source.rate_hz), whole.shape[2])
    trial = whole[0, rows, :samples]
    step = 6 * np.median(trial.std(axis=1))
    time = np.arange(samples) / source.rate_hz
    for row in range(len(rows)):
        left.plot(time, trial[row] - row * step, color=INK, lw=0.7)
    left.set_yticks([-row * step for row in range(len(rows))], [names[at] for at in rows])
    left.spines["left"].set_visible(False)
    left.tick_params(axis="y", length=0)
    bar = float(f"{step / 2:.1g}")
    left.plot([time[-1] * 1.03] * 2, [-bar / 2, bar / 2], color=INK, lw=2, clip_on=False)
    left.annotate(
        f"{bar:g} µV", (time[-1] * 1.05, 0), va="center", fontsize=8, annotation_clip=False
    )
    title = f"subject {source.subjects[0]}, {source.class_names[source.labels[0]]}"
    left.set(xlabel="time (s)", title=f"A trial: {title}", xlim=(0, time[-1]))

    hz, power = welch(
        whole[:, names.index(channel)], source.rate_hz, nperseg=int(2 * source.rate_hz)
    )
    keep = (hz >= 1) & (hz <= 45)
    for code, word in enumerate(source.class_names):
        if (source.labels == code).any():
            mean = power[source.labels == code].mean(axis=0)
            middle.semilogy(hz[keep], mean[keep], color=COLOURS[code], lw=1.4, label=word)
    middle.yaxis.set_minor_formatter(NullFormatter())
    middle.set(xlabel="frequency (Hz)", title=f"Power at {channel} (µV²/Hz)")
    middle.legend(frameon=False, fontsize=8, handlelength=1.1)

    bottom = np.zeros(len(source.subjects))
    counts = np.array([s.class_counts() for s in source.prepared])
    for code in range(len(source.class_names)):
        right.bar(
            range(len(bottom)), counts[:, code], bottom=bottom, color=COLOURS[code], width=0.8
        )
        bottom += counts[:, code]
    every = 1 if len(bottom) <= 12 else -(-len(bottom) // 5)
    right.set_xticks(range(0, len(bottom), every), source.subjects[::every])
    right.tick_params(axis="x", length=0, labelsize=8)
    right.set(title="Trials per subject and class", xlim=(-0.6, len(bottom) - 0.4))
    figure.suptitle(label, x=0.008, ha="left", fontsize=11, fontweight="bold")
    figure.savefig(IMAGES / f"dataset_{name}.png", dpi=120)
    plt.close(figure)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SETS:
        subjects, trials, options, channel, seconds = SETS[name]
        title = get_dataset(name).info.title
        root: Path | None = None
        with tempfile.TemporaryDirectory() as folder:
            if name == "physionet_mi":
                if "AFOR_PHYSIONET_ROOT" not in os.environ:
                    print("physionet_mi: left out, AFOR_PHYSIONET_ROOT is not set")
                    continue
                root = Path(os.environ["AFOR_PHYSIONET_ROOT"])
                title += ", eyes open and closed: real recordings"
            elif subjects:
                root = Path(folder) / name
                write_stand_in(name, root, subjects, trials=trials)
                title += ": synthetic stand-in in its format, not the data set"
            source = open_windows(
                name, root, options={**options, "window_samples": 0, "stride_samples": 0},
                cache_dir=Path(folder) / "cache",
            )  # fmt: skip
            draw(name, source, title, channel, seconds)
        print(f"docs/images/dataset_{name}.png: {len(source.subjects)} subjects")


if __name__ == "__main__":
    main()
