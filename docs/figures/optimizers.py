"""Draw docs/images/optimizers.png: the paper's seven on one badly scaled valley.

    python docs/figures/optimizers.py

The valley is a real training problem, a two-class classifier with two weights whose features are
correlated and differ in scale, so that Sophia can sample its labels. All optimizers start at the
same point, see the same batches and use the same learning rate and no weight decay.
"""

from pathlib import Path

import matplotlib as mpl
import torch
from torch import nn

from afor.bench.common.seeding import seed_torch
from afor.bench.optimizers.build import AfterStep, build_optimizer
from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS

mpl.use("Agg")
import matplotlib.pyplot as plt

TARGET = Path(__file__).parents[1] / "images" / "optimizers.png"
START, LR, STEPS, BATCH = (-2.2, 2.4), 0.05, 200, 64
X_LIMITS, Y_LIMITS = (-2.9, 4.3), (-3.7, 2.9)
MARKS = (20, 50, 100)  # steps that get a dot
COLORS = dict(
    zip(
        PAPER_OPTIMIZERS,
        ["#111827", "#6b7280", "#0891b2", "#4d7c0f", "#9333ea", "#b45309", "#dc2626"],
        strict=True,
    )
)
DASHED = ("adamw", "adamp")  # they all but lie on Adam's curve, since there is no weight decay


class TwoWeights(nn.Module):
    """Logits (0, w·x) of a classifier with two weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([START]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores = inputs @ self.weight.T
        return torch.cat([torch.zeros_like(scores), scores], dim=1)


def problem() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 512 windows of two features, one direction four times as wide, and noisy labels."""
    seed_torch(11)
    scaled = torch.randn(512, 2) * torch.tensor([0.7, 2.8])
    angle = torch.tensor(0.5)
    rotation = torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])]
    )
    inputs = scaled @ rotation.T
    probability = torch.sigmoid(inputs @ torch.tensor([1.6, 0.3]))
    return inputs, torch.bernoulli(probability).long()


def trajectory(
    name: str, inputs: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, list[float]]:
    """Train and return the weights after every step and the loss over all windows."""
    model = TwoWeights()
    optimizer = build_optimizer(name, model, lr=LR, weight_decay=0.0)
    seed_torch(5)
    weights, losses = [model.weight.detach().clone()], []
    for _ in range(STEPS):
        batch = torch.randint(len(inputs), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()
        if isinstance(optimizer, AfterStep):
            optimizer.after_step(model, inputs[batch])
        weights.append(model.weight.detach().clone())
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(model(inputs), labels).item())
    return torch.cat(weights), losses


def surface(
    inputs: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss over a grid of the two weights."""
    xs, ys = torch.linspace(*X_LIMITS, 120), torch.linspace(*Y_LIMITS, 110)
    grid_x, grid_y = torch.meshgrid(xs, ys, indexing="xy")
    scores = torch.stack([grid_x.flatten(), grid_y.flatten()], dim=1) @ inputs.T
    loss = nn.functional.softplus(scores) - labels * scores
    return grid_x, grid_y, loss.mean(dim=1).reshape(grid_x.shape)


def minimum(inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the smallest loss there is, to which all are compared."""
    model = TwoWeights()
    solver = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    solver.step(closure)
    return closure().item()


def main() -> None:
    """Draw the eight panels and print the loss each optimizer ends at."""
    inputs, labels = problem()
    grid_x, grid_y, loss = surface(inputs, labels)
    lowest = minimum(inputs, labels)
    plt.rcParams.update({"font.size": 9, "axes.titlesize": 10, "font.family": "DejaVu Sans"})
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.4))
    figure.subplots_adjust(left=0.01, right=0.985, top=0.945, bottom=0.09, wspace=0.1, hspace=0.2)
    curves = axes.flat[-1]
    levels = torch.logspace(-2.2, 0.7, 9) + lowest
    for axis, (name, color) in zip(axes.flat, COLORS.items(), strict=False):
        path, losses = trajectory(name, inputs, labels)
        axis.contour(grid_x, grid_y, loss, levels=levels, colors="#cbd5e1", linewidths=0.7)
        axis.plot(*path.T, color=color, linewidth=1.5)
        axis.plot(*path[list(MARKS)].T, ".", color=color, markersize=6)
        axis.plot(*START, "o", color="#111827", markersize=5)
        axis.plot(*path[-1], "*", color=color, markersize=12, markeredgecolor="white")
        axis.set(xlim=X_LIMITS, ylim=Y_LIMITS, xticks=[], yticks=[])
        axis.spines[:].set_color("#94a3b8")
        axis.set_title(OPTIMIZERS[name].label, loc="left", color=color, weight="bold")
        excess = losses[-1] - lowest
        axis.set_title(f"{excess:.3f} above the minimum", loc="right", fontsize=8)
        style = "--" if name in DASHED else "-"
        curves.plot([x - lowest for x in losses], style, color=color, linewidth=1.5)
        print(f"{name:8s} excess loss after {STEPS} steps: {excess:.4f}")
    curves.set(xlabel="step", yscale="log", xlim=(0, STEPS), ylim=(1e-3, 10), xticks=[0, 100, 200])
    curves.xaxis.set_label_coords(0.5, -0.1)
    curves.set_title("loss above the minimum", loc="left")
    curves.minorticks_off()
    curves.tick_params(labelsize=8, direction="in", pad=3)
    curves.spines[["top", "right"]].set_visible(False)
    box = curves.get_position()
    curves.set_position([box.x0 + 0.03, box.y0, box.width - 0.03, box.height])
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=110)


if __name__ == "__main__":
    main()
