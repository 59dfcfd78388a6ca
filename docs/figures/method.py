"""Draw beta2 while a small network trains: `python docs/figures/method.py [FOLDER]`.

Writes beta2.png (README) and wake_up.png (the controller as printed and calibrated).
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from afor import AFOR
from afor.monitor import Monitor

COLOURS = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito: told apart by colour-blind readers
LAYERS = {"0.weight": "first layer", "2.weight": "second layer", "4.weight": "classifier"}
SUBJECTS, BLOCK, STEPS = 8, 60, 6000


def train(steps: int, statistics: str) -> Monitor:
    """Train on subjects in turn, whose inputs are scaled and rotated differently."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Linear(48, 48), torch.nn.ReLU(),
        torch.nn.Linear(48, 4),
    )  # fmt: skip
    teacher = torch.randn(24, 4)
    mixing = [torch.eye(24) + 0.35 * torch.randn(24, 24) for _ in range(SUBJECTS)]
    optimizer = AFOR(network.named_parameters(), lr=1e-3, weight_decay=1e-4, statistics=statistics)
    monitor = Monitor(optimizer)
    for step in range(steps):
        subject = step // BLOCK % SUBJECTS
        clean = torch.randn(32, 24)
        labels = (clean @ teacher + 1.5 * torch.randn(32, 4)).argmax(1)
        loss = torch.nn.functional.cross_entropy(network(clean @ mixing[subject]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.record()
    return monitor


def traces(monitor: Monitor, quantity: str) -> dict[str, list[float]]:
    """Return one list over the steps per layer."""
    by_layer: dict[str, list[float]] = {name: [] for name in LAYERS}
    for reading in monitor.readings():
        if reading.name in by_layer:
            by_layer[reading.name].append(getattr(reading, quantity))
    return by_layer


def smooth(values: list[float], width: int = 25) -> torch.Tensor:
    """Return the running mean."""
    return torch.tensor(values).unfold(0, width, 1).mean(1)


def draw_beta2(calibrated: Monitor, folder: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.2, 2.7), layout="constrained")
    first, last = 1200, 2400
    for colour, (name, values) in zip(COLOURS, traces(calibrated, "beta2").items(), strict=True):
        line = smooth(values)[first:last]
        axes.plot(range(first, last), line, color=colour, lw=1.4, label=f"AFOR, {LAYERS[name]}")
    axes.axhline(0.999, color="0.35", lw=1.2, ls="--", label="AdamW")
    for change in range(first, last, BLOCK):
        axes.axvline(change, color="0.88", lw=0.8, zorder=0)
    axes.set(xlabel="step (grey lines: another subject)", ylabel="β₂", xlim=(first, last))
    axes.set_ylim(0.989, 1.0)
    axes.legend(frameon=False, ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "beta2.png", dpi=160)
    plt.close(figure)


def draw_wake_up(printed: Monitor, calibrated: Monitor, folder: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.0), sharex=True, sharey="row")
    figure.set_layout_engine("constrained")
    for column, (monitor, title) in enumerate(
        ((printed, 'as printed: statistics="paper"'), (calibrated, 'statistics="calibrated"'))
    ):
        for row, quantity in enumerate(("zscore", "beta2")):
            pane = axes[row, column]
            for colour, (name, values) in zip(
                COLOURS, traces(monitor, quantity).items(), strict=True
            ):
                pane.plot(smooth(values), color=colour, lw=0.8, label=LAYERS[name])
            pane.spines[["top", "right"]].set_visible(False)
        axes[0, column].set_title(title, fontsize=9)
        axes[1, column].set_xlabel("step")
        axes[1, column].axhline(0.9945, color="0.4", lw=0.8, ls=":")
    axes[0, 0].set_ylabel("z-score ζ")
    axes[1, 0].set_ylabel("β₂")
    axes[1, 0].annotate("0.9945", (STEPS * 0.02, 0.99435), fontsize=7, va="top", color="0.3")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(folder / "wake_up.png", dpi=150)
    plt.close(figure)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "images")
    printed, calibrated = (train(STEPS, form) for form in ("paper", "calibrated"))
    draw_beta2(calibrated, folder)
    draw_wake_up(printed, calibrated, folder)
    for form, monitor in (("paper", printed), ("calibrated", calibrated)):
        shares = dict(monitor.active_share())
        for step in (500, 2000, 6000):
            print(f"{form:10s} step {step}: {shares[step]:.0%} of tensors with |z| > 0.5")


if __name__ == "__main__":
    main()
