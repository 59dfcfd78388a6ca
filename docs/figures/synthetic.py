"""Draw the synthetic subjects and print how hard they are across subjects.

    python docs/figures/synthetic.py        # writes docs/images/synthetic_*.png, prints a table

Difficulty is the accuracy of shrinkage LDA on log band power of one window, leave one subject out.
"""

import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import welch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score

from afor.bench.data.datasets.synthetic import RECIPES, SyntheticSettings, subject_truth
from afor.bench.data.loading import open_windows
from afor.bench.data.montage import electrode_xy

IMAGES = Path(__file__).resolve().parents[1] / "images"
BANDS_HZ = ((1, 4), (4, 8), (8, 13), (13, 18), (18, 30))
SHIFTS = (0.0, 0.5, 1.0, 1.5, 2.0)
INK, MUTED = "#1d2733", "#8a94a0"
COLOURS = ("#2f6db3", "#d0722c", "#3f8f5f", "#8d5aa8", "#b8433f")
plt.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "text.color": INK,
     "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": INK, "ytick.color": INK,
     "axes.titlelocation": "left", "axes.titlesize": 10, "axes.titleweight": "bold"}
)  # fmt: skip


def open_synthetic(kind: str, shift: float, cache: str):
    return open_windows("synthetic", options={"kind": kind, "shift": shift}, cache_dir=cache)


def features(source) -> np.ndarray:
    parts = []
    for subject in source.subjects:
        x = source.gather(source.indices_of([subject]))
        hz, power = welch(x, source.rate_hz, nperseg=x.shape[-1])
        bands = [power[..., (hz >= low) & (hz < high)].mean(axis=-1) for low, high in BANDS_HZ]
        parts.append(np.log(np.concatenate(bands, axis=1)))
    return np.concatenate(parts)


def difficulty(cache: str) -> dict[str, list[np.ndarray]]:
    scores: dict[str, list[np.ndarray]] = {}
    print("kind      shift  accuracy across subjects  SD over subjects  majority class")
    for kind in RECIPES:
        scores[kind] = []
        for shift in SHIFTS:
            source = open_synthetic(kind, shift, cache)
            lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
            values = cross_val_score(
                lda, features(source), source.labels, groups=source.subject_codes,
                cv=LeaveOneGroupOut(),
            )  # fmt: skip
            majority = np.bincount(source.labels).max() / len(source)
            scores[kind].append(values)
            print(
                f"{kind:<9} {shift:>5.1f}  {values.mean():>24.3f}  {values.std(ddof=1):>16.3f}"
                f"  {majority:>14.3f}"
            )
    return scores


def draw_difficulty(scores: dict[str, list[np.ndarray]], chance: dict[str, float]) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), sharey=True, layout="constrained")
    for axis, (kind, values), colour in zip(axes, scores.items(), COLOURS, strict=False):
        for shift, subjects in zip(SHIFTS, values, strict=True):
            spread = np.linspace(-0.1, 0.1, len(subjects))
            axis.plot(shift + spread, subjects, "o", ms=3, color=colour, alpha=0.35, mew=0)
        axis.plot(SHIFTS, [v.mean() for v in values], "-o", color=colour, ms=5, lw=1.8)
        axis.axhline(chance[kind], color=MUTED, lw=1, ls=(0, (4, 3)))
        axis.annotate(
            "majority class", (0, chance[kind]), xytext=(0, -4), textcoords="offset points",
            ha="left", va="top", fontsize=8, color=MUTED,
        )  # fmt: skip
        axis.set(title=kind, xlabel="shift", xticks=SHIFTS, ylim=(0, 1))
    axes[0].set_ylabel("accuracy on an unseen subject")
    figure.savefig(IMAGES / "synthetic_difficulty.png", dpi=130)
    plt.close(figure)


def draw_subjects() -> None:
    """Show place, size and peak of one rhythm in twelve subjects, for three shifts."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
    xy = np.array([electrode_xy(name) for name in RECIPES["imagery"].channel_names])
    for axis, shift in zip(axes, (0.0, 1.0, 2.0), strict=True):
        axis.add_patch(plt.Circle((0, 0), 1, fill=False, color=MUTED, lw=1))
        axis.plot([-0.1, 0, 0.1], [0.995, 1.09, 0.995], color=MUTED, lw=1)
        axis.plot(*xy.T, "o", color=MUTED, ms=2.5)
        for name in ("C3", "Cz", "C4"):
            x, y = electrode_xy(name)
            axis.annotate(name, (x, y), xytext=(0, -13), textcoords="offset points",
                          ha="center", fontsize=8, color=INK)  # fmt: skip
        truths = [subject_truth(SyntheticSettings(shift=shift), i) for i in range(12)]
        shown = axis.scatter(
            *np.array([truth.centres[0] for truth in truths]).T,
            s=[9 * truth.amplitude_uv[0] for truth in truths],
            c=[truth.peak_hz[0] for truth in truths],
            cmap="viridis", vmin=7.5, vmax=13.5, alpha=0.8, linewidths=0.6, edgecolors="white",
        )  # fmt: skip
        axis.set(title=f"shift {shift:g}", xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
        axis.axis("off")
    figure.colorbar(shown, ax=axes, label="peak frequency (Hz)", shrink=0.8, pad=0.02)
    figure.savefig(IMAGES / "synthetic_subjects.png", dpi=130)
    plt.close(figure)


def draw_spectra(cache: str) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
    shown = {"imagery": "C4", "sleep": "C3", "emotion": "F3"}
    for axis, (kind, channel) in zip(axes, shown.items(), strict=True):
        source = open_windows(
            "synthetic", options={"kind": kind, "shift": 0, "window_samples": 0}, cache_dir=cache
        )
        hz, power = welch(
            source.gather(np.arange(len(source)))[:, source.channel_names.index(channel)],
            source.rate_hz, nperseg=int(2 * source.rate_hz),
        )  # fmt: skip
        keep = (hz >= 1) & (hz <= 35)
        for label, name in enumerate(source.class_names):
            mean = power[source.labels == label].mean(axis=0)
            axis.semilogy(hz[keep], mean[keep], color=COLOURS[label], lw=1.5, label=name)
        axis.set(title=f"{kind}, {channel}", xlabel="frequency (Hz)")
        axis.legend(frameon=False, fontsize=8, handlelength=1.2)
    axes[0].set_ylabel("power (µV²/Hz)")
    figure.savefig(IMAGES / "synthetic_spectra.png", dpi=130)
    plt.close(figure)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        scores = difficulty(cache)
        chance = {
            kind: np.bincount(s.labels).max() / len(s)
            for kind in RECIPES
            for s in [open_synthetic(kind, 1.0, cache)]
        }
        draw_difficulty(scores, chance)
        draw_subjects()
        draw_spectra(cache)


if __name__ == "__main__":
    main()
