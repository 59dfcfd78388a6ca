"""Draw one small picture per equation of AFOR: `python docs/figures/equations.py [FOLDER]`.

A small network sees one subject after another, trained step by step with `afor.reference`, the
paper's equations in plain Python. The pictures follow its first layer.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from afor.reference import ReferenceState, StepScalars, beta2_raw, gate, reference_step

# Okabe and Ito: told apart by colour-blind readers.
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.55"
SUBJECTS, BLOCK, STEPS = 8, 60, 1200
FIRST, LAST = 360, 720  # the six subjects that are drawn
GAINS = (1.0, 2.2, 0.7, 1.6, 0.5, 1.9, 0.8, 1.3)  # amplitude of each subject's signal


class Trace:
    """What the first layer went through, one entry per step."""

    def __init__(self, statistics: str) -> None:
        self.seen: list[StepScalars] = []
        self.states: list[dict[str, float]] = []
        self.grad_rms: list[float] = []
        self.v_hat: list[float] = []  # root mean, AFOR's coefficient
        self.v_hat_fixed: list[float] = []  # root mean, 0.999 on the same gradients
        self._train(statistics)

    def of(self, name: str) -> list[float]:
        """Return one scalar over the steps."""
        if name in self.states[0]:
            return [state[name] for state in self.states]
        return [getattr(seen, name) for seen in self.seen]

    def _train(self, statistics: str) -> None:
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Linear(48, 4)
        ).double()
        teacher = torch.randn(24, 4).double()
        mixing = [torch.eye(24) + 0.3 * torch.randn(24, 24) for _ in range(SUBJECTS)]
        people = [gain * matrix.double() for gain, matrix in zip(GAINS, mixing, strict=True)]
        states = [
            ReferenceState.start(p.detach(), statistics=statistics) for p in network.parameters()
        ]
        fixed = torch.zeros(48, 24).double()
        for step in range(STEPS):
            clean = torch.randn(32, 24).double()
            labels = (clean @ teacher + 1.5 * torch.randn(32, 4)).argmax(1)
            logits = network(clean @ people[step // BLOCK % SUBJECTS])
            network.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels).backward()
            for number, (p, state) in enumerate(zip(network.parameters(), states, strict=True)):
                assert p.grad is not None
                grad = p.grad.clone()
                new, seen = reference_step(p.detach(), grad, state, lr=2e-3, statistics=statistics)
                p.data.copy_(new)
                if number == 0:
                    fixed = 0.999 * fixed + 0.001 * grad * grad
                    self._note(seen, state, grad, fixed, statistics)

    def _note(
        self,
        seen: StepScalars,
        state: ReferenceState,
        grad: torch.Tensor,
        fixed: torch.Tensor,
        form: str,
    ) -> None:
        # The calibrated statistics are averages whose weights do not yet add up to one.
        weight = 1.0 if form == "paper" else 1 - 0.999**state.step
        self.seen.append(seen)
        self.states.append(
            {
                "noise_fast": state.noise_fast,
                "noise_slow": state.noise_slow,
                "agreement": state.agreement,
                "mean": state.score_mean / weight,
                "std": (state.score_var / weight) ** 0.5,
                "decay_product": state.decay_product,
            }
        )
        self.grad_rms.append(grad.square().mean().sqrt().item())
        v_hat = state.exp_avg_sq.mean() / (1 - state.decay_product)
        self.v_hat.append(v_hat.sqrt().item())
        self.v_hat_fixed.append((fixed.mean() / (1 - 0.999**state.step)).sqrt().item())


def draw_residual(trace: Trace) -> Figure:
    """Eqs. (5) and (6): the residual and its two averages."""
    figure, axes = _canvas()
    axes.plot(trace.of("residual"), ".", color=GREY, ms=2.5, label="residual $e_t$")
    axes.plot(trace.of("noise_fast"), color=RED, lw=1.4, label="fast average $n^f$")
    axes.plot(trace.of("noise_slow"), color=BLUE, lw=1.4, label="slow average $n^s$")
    _over_subjects(axes, "mean |g − m|")
    return figure


def draw_agreement(trace: Trace) -> Figure:
    """Eq. (8): the cosine and its average."""
    figure, axes = _canvas()
    axes.plot(trace.of("cosine"), ".", color=GREY, ms=2.5, label="cosine, cut at 0")
    axes.plot(trace.of("agreement"), color=GREEN, lw=1.4, label=r"agreement $\bar{c}_t$")
    _over_subjects(axes, "agreement")
    return figure


def draw_score(trace: Trace) -> Figure:
    """Eqs. (7) and (9): the ratio, and the score after the discount."""
    figure, axes = _canvas()
    axes.plot(trace.of("ratio"), color=BLUE, lw=1.1, label=r"ratio $\rho^m_t$")
    axes.plot(trace.of("score"), color=RED, lw=1.4, label=r"score $\rho_t$")
    _over_subjects(axes, "score")
    return figure


def draw_zscore(printed: Trace, calibrated: Trace) -> Figure:
    """Eqs. (10) and (11): the score beside its own past, in both forms."""
    figure, panes = plt.subplots(1, 2, figsize=(7.2, 2.6), layout="constrained", sharey=True)
    titles = ('as printed: statistics="paper"', 'statistics="calibrated"')
    for pane, trace, title in zip(panes, (printed, calibrated), titles, strict=True):
        mean = torch.tensor(trace.of("mean"))
        spread = torch.tensor(trace.of("std"))
        pane.fill_between(
            range(STEPS), mean - spread, mean + spread, color=BLUE, alpha=0.18, lw=0,
            label=r"$\mu \pm \sigma$",
        )  # fmt: skip
        pane.plot(mean, color=BLUE, lw=1.4, label=r"mean $\mu_t$")
        pane.plot(trace.of("score"), color=RED, lw=0.7, label=r"score $\rho_t$")
        pane.set_title(title, fontsize=9)
        pane.set(xlabel="step", xlim=(0, STEPS), ylim=(-1.05, 1.25))
        pane.spines[["top", "right"]].set_visible(False)
    panes[0].set_ylabel("score")
    panes[1].legend(frameon=False, fontsize=8, loc="lower right", ncols=3)
    return figure


def draw_gate(calibrated: Trace) -> Figure:
    """Eqs. (12) and (13): from the z-score to beta2, and the first steps."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.6), layout="constrained")
    zscores = torch.linspace(-5, 5, 101).tolist()
    left.plot(zscores, [beta2_raw(z, 0.99, 0.999) for z in zscores], color=RED, lw=1.6)
    left.plot([0], [0.9945], "o", color=RED, ms=5)
    left.annotate("score at its\nmean: 0.9945", (0, 0.9945), (0.6, 0.9929), fontsize=8, color="0.3")
    left.set(xlabel="z-score ζ", ylabel="β₂ before the gate", ylim=(0.9895, 0.9995))
    memory = left.secondary_yaxis("right")
    memory.set_yticks([0.99, 0.995, 0.998, 0.999], ["100", "200", "500", "1 000"])
    memory.set_ylabel("memory 1/(1 − β₂), steps", fontsize=8)
    memory.tick_params(labelsize=8)
    left.spines["top"].set_visible(False)
    shown = range(1, 301)
    raw = [beta2_raw(z, 0.99, 0.999) for z in calibrated.of("zscore")[:300]]
    right.plot(shown, raw, color=GREY, lw=0.8, label="without the gate")
    right.plot(shown, calibrated.of("beta2")[:300], color=RED, lw=1.4, label="β₂")
    right.set(xlabel="step", ylabel="β₂", ylim=(0.9895, 0.9995), xlim=(0, 300))
    opening = right.twinx()
    opening.plot(shown, [gate(t, 100) for t in shown], color=BLUE, lw=1.1, ls="--", label="gate γ")
    opening.set(ylabel="gate", ylim=(-0.05, 1.06), yticks=(0, 1))
    opening.yaxis.label.set_color(BLUE)
    lines = [*right.get_lines(), *opening.get_lines()]
    opening.legend(
        lines, [str(line.get_label()) for line in lines], frameon=False, fontsize=7,
        loc="lower right", handlelength=1.6, labelspacing=0.25,
    )  # fmt: skip
    for pane in (right, opening):
        pane.spines["top"].set_visible(False)
    return figure


def draw_correction(calibrated: Trace) -> Figure:
    """Eqs. (14) and (15): what a gradient of constant size 1 is estimated as."""
    figure, axes = _canvas()
    moment, raw, fixed, cumulative = 0.0, [], [], []
    for step, beta2 in enumerate(calibrated.of("beta2"), start=1):
        moment = beta2 * moment + (1 - beta2)
        raw.append(moment)
        fixed.append(moment / (1 - 0.999**step))
        cumulative.append(moment / (1 - calibrated.of("decay_product")[step - 1]))
    axes.plot(raw, color=GREY, lw=1.4, label="$v_t$ alone")
    axes.plot(fixed, color=BLUE, lw=1.4, ls="--", label=r"$v_t/(1-\beta_2^t)$ with 0.999")
    axes.plot(cumulative, color=RED, lw=1.6, label=r"$v_t/(1-C_t)$")
    axes.set(xlabel="step", ylabel="estimate of 1", xlim=(0, STEPS), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_update(trace: Trace) -> Figure:
    """Eq. (16): the divisor of the step, as AFOR and as AdamW would have it."""
    figure, axes = _canvas()
    axes.plot(trace.grad_rms, ".", color=GREY, ms=2.5, label="size of $g_t$")
    axes.plot(trace.v_hat_fixed, color=BLUE, lw=1.4, ls="--", label="divisor, β₂ = 0.999")
    axes.plot(trace.v_hat, color=RED, lw=1.6, label="divisor, AFOR")
    _over_subjects(axes, "root mean square", (STEPS // 2, STEPS))
    return figure


def _canvas() -> tuple[Figure, Axes]:
    return plt.subplots(figsize=(7.2, 2.3), layout="constrained")


def _over_subjects(axes: Axes, label: str, span: tuple[int, int] = (FIRST, LAST)) -> None:
    first, last = span
    shown = [y for line in axes.get_lines() for y in list(line.get_ydata())[first:last]]
    for change in range(first, last + 1, BLOCK):
        axes.axvline(change, color="0.88", lw=0.8, zorder=0)
    axes.set(xlabel="step (grey lines: another subject)", ylabel=label, xlim=span)
    axes.set_ylim(0, 1.22 * max(shown))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper left", markerscale=2)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw all pictures and print their sizes."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "images")
    printed, calibrated = Trace("paper"), Trace("calibrated")
    pictures: dict[str, Callable[[], Figure]] = {
        "residual": lambda: draw_residual(calibrated),
        "agreement": lambda: draw_agreement(calibrated),
        "score": lambda: draw_score(calibrated),
        "zscore": lambda: draw_zscore(printed, calibrated),
        "gate": lambda: draw_gate(calibrated),
        "correction": lambda: draw_correction(calibrated),
        "update": lambda: draw_update(calibrated),
    }
    for name, draw in pictures.items():
        target = folder / f"equation_{name}.png"
        figure = draw()
        figure.savefig(target, dpi=150)
        plt.close(figure)
        print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
