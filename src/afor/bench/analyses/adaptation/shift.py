"""Test the paper's claim about changes of subject (Sec. III-B) in an experiment.

    shift = measure_shift(find_run(load_study("demo")), blocks=30)
    for link in shift.links:
        print(link.sentence)

The paper: "a change of sampled subject raises e_t and lowers rho_t", and a lower score shortens
the memory. One training takes its batches from one subject at a time and changes the subject every
so many batches; its control sees the same windows, shuffled, with pseudo-events at the same steps.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from afor.bench.analyses.replay import ChosenRun
from afor.bench.analyses.step_log import StepLog, Steps
from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.report.figures import style
from afor.bench.training.batches import Side, Sides
from afor.bench.training.fit import Fit, Team

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """The windows of every step of a training, and the steps at which subjects change."""

    batches: tuple[Indices, ...]
    changes: tuple[int, ...]  # position of the first batch of each block but the first
    rounds: tuple[int, ...]  # position of the first batch of each round over all subjects


def blocked(
    side: Side, batch_size: int, seed: int, *, batches_per_block: int = 20, blocks: int = 10
) -> Schedule:
    """Make a schedule that stays with a subject for a block of batches, then changes the subject.

    Every subject has `blocks` blocks, and no subject has two successive ones. Raises ConfigError if
    a number is too small or there is no subject to change to.
    """
    rng = np.random.default_rng(seed)
    codes = np.unique(side.subject_codes)
    if min(batches_per_block, blocks) < 1 or batch_size < 2:
        raise ConfigError("Blocks need at least one batch, one round, and batches of two windows.")
    if len(codes) < 2:
        raise ConfigError("A change of subject needs two or more training subjects, found one.")
    batches: list[Indices] = []
    changes, starts = [], []
    previous = None  # the subject of the block before
    for _ in range(blocks):
        starts.append(len(batches))
        order = rng.permutation(codes)
        while order[0] == previous:
            order = rng.permutation(codes)
        for subject in order:
            if batches:
                changes.append(len(batches))
            pool = side.indices[side.subject_codes == subject]
            batches += _fill(rng, pool, batch_size, batches_per_block)
        previous = order[-1]
    return Schedule(tuple(batches), tuple(changes), tuple(starts))


def shuffled(schedule: Schedule, seed: int) -> Schedule:
    """Shuffle the windows of each round: same windows, sizes and steps, but no blocks."""
    rng = np.random.default_rng(seed)
    batches: list[Indices] = []
    ends = (*schedule.rounds[1:], len(schedule.batches))
    for start, end in zip(schedule.rounds, ends, strict=True):
        of_round = schedule.batches[start:end]
        cuts = np.cumsum([len(batch) for batch in of_round])[:-1]
        dealt = np.split(rng.permutation(np.concatenate(of_round)), cuts)
        batches += [np.sort(batch) for batch in dealt]
    return Schedule(tuple(batches), schedule.changes, schedule.rounds)


def _fill(rng: np.random.Generator, pool: Indices, batch_size: int, count: int) -> list[Indices]:
    """Draw `count` batches; no window is drawn again before all others were drawn."""
    size = min(batch_size, len(pool))
    if size < 2:
        raise ConfigError(
            "A training subject has a single window, and batch norm cannot train on it. "
            "Leave the subject out."
        )
    per_pass = len(pool) // size
    passes = [rng.permutation(pool) for _ in range(-(-count // per_pass))]
    batches = [order[i * size : (i + 1) * size] for order in passes for i in range(per_pass)]
    return [np.sort(batch) for batch in batches[:count]]


FloatArray = NDArray[np.float64]
CONFIDENCE = 0.95
FLOOR = 1e-3  # smallest value before a logarithm, as a share of its window's mean


@dataclass(frozen=True)
class Response:
    """The mean over events: per step of the window, and over the judged steps after the event."""

    offsets: NDArray[np.int64]  # steps from the event; 0 is the first step after the change
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    by_event: FloatArray  # (events,): the mean over the judged steps
    size: float  # mean of `by_event`
    interval: tuple[float, float]  # of `size`, 95 %

    def content(self) -> dict[str, Any]:
        """Return size, interval and curve, ready for JSON."""
        return {"size": self.size, "interval": list(self.interval), "curve": self.mean.tolist()}


def event_windows(
    series: FloatArray, events: Sequence[int], before: int, after: int, *, relative: bool = False
) -> FloatArray:
    """Cut windows around events and subtract the mean before the event from each.

    Args:
        series: Values, (steps, tensors).
        events: For each event, the position of the first step that follows it.
        before: Steps of a window before the event.
        after: Steps of a window from the event on.
        relative: Return the logarithm of the ratio to the geometric mean before the event; 0 for a
            tensor that is zero throughout.

    Returns:
        The windows, (events, before + after, tensors), without those that leave the series.
    """
    complete = [event for event in events if event - before >= 0 and event + after <= len(series)]
    if not complete or before < 1 or after < 1:
        raise ConfigError(
            f"No event has {before} steps before and {after} steps after it in a training of "
            f"{len(series)} steps. Train longer, or make the window or the blocks shorter."
        )
    windows = np.stack([series[event - before : event + after] for event in complete])
    if relative:
        # Ratios to a noisy level exceed 1 on average even if nothing happens; logarithms are 0.
        level = windows.mean(axis=1, keepdims=True)
        windows = np.log(np.where(level > 0, np.maximum(windows, FLOOR * level), 1.0))
    change: FloatArray = windows - windows[:, :before].mean(axis=1, keepdims=True)
    return change


def respond(windows: FloatArray, before: int, judged: int) -> Response:
    """Average windows of `event_windows` over tensors and events.

    The size of the response is its mean over the `judged` steps from the event on.

    >>> steps = np.array([0.0, 0.0, 2.0, 1.0])[None, :, None]
    >>> respond(np.concatenate([steps, steps]), before=2, judged=2).size
    1.5
    """
    curves = windows.mean(axis=2)
    by_event = curves[:, before : before + judged].mean(axis=1)
    mean, low, high = mean_interval(curves)
    size, least, most = mean_interval(by_event[:, None])
    return Response(
        np.arange(-before, windows.shape[1] - before),
        mean,
        low,
        high,
        by_event,
        float(size[0]),
        (float(least[0]), float(most[0])),
    )


def mean_interval(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean over the first axis and its 95 % t interval; infinite for a single value."""
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, -math.inf), np.full_like(mean, math.inf)
    half = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


BEFORE, AFTER = 10, 20  # steps around a change; shorter when the blocks are
JUDGED = 10  # steps over which a response is averaged: the momentum's memory, 1 / (1 - beta1)
ALL = "all tensors"

Answer = Literal["as claimed", "the opposite", "not seen"]


@dataclass(frozen=True)
class Quantity:
    """One link of the claimed chain."""

    name: str  # as in `Steps`
    label: str
    direction: int  # +1 if the paper says that it rises, -1 if it falls
    relative: bool  # measured as the logarithm of the ratio to the level before the change

    @property
    def claim(self) -> str:
        """Return what the paper says of it: rises or falls."""
        return "rises" if self.direction > 0 else "falls"


# Sec. III-B: a change raises e and lowers rho, also by the agreement; Sec. III-C: beta2 follows.
CHAIN = (
    Quantity("residual", "residual", +1, relative=True),
    Quantity("agreement", "agreement", -1, relative=False),
    Quantity("score", "score", -1, relative=True),
    Quantity("beta2", "β₂", -1, relative=False),
)


@dataclass(frozen=True)
class Link:
    """What one quantity did after changes of subject, against the shuffled control."""

    quantity: Quantity
    blocked: Mapping[str, Response]  # by layer group, or `ALL`
    shuffled: Mapping[str, Response]
    difference: float
    interval: tuple[float, float]
    answer: Answer
    beta2_range: tuple[float, float]

    @property
    def sentence(self) -> str:
        """Return the finding as a sentence with its numbers."""
        moved, claim = "rises" if self.difference > 0 else "falls", self.quantity.claim
        if self.answer == "not seen":
            return (
                f"{self.quantity.label}: no change that stands out from the control "
                f"({self._numbers}); the paper: it {claim}."
            )
        as_claimed = self.answer == "as claimed"
        verdict = "as the paper says" if as_claimed else f"the paper says it {claim}"
        return f"{self.quantity.label} {moved}: {self._numbers}; {verdict}."

    @property
    def _numbers(self) -> str:
        values = (self.difference, *self.interval)
        if self.quantity.relative:
            mean, low, high = (f"{100 * math.expm1(v):+.1f}" for v in values)
            return f"{mean} %, 95 % interval {low} to {high}"
        digits = "+.2e" if self.quantity.name == "beta2" else "+.4f"
        mean, low, high = (f"{v:{digits}}" for v in values)
        text = f"{mean}, 95 % interval {low} to {high}"
        if self.quantity.name != "beta2":
            return text
        least, most = self.beta2_range
        share = 100 * self.difference / (most - least)
        return f"{text}, {share:+.2f} % of its range [{least:g}, {most:g}]"


@dataclass(frozen=True)
class Shift:
    """The whole experiment: what each quantity did, and the verdict."""

    label: str  # of the run
    steps: int
    events: int
    batches_per_block: int
    statistics: str
    links: tuple[Link, ...]
    loss: tuple[float, float]  # mean over the last tenth of the steps: blocked, shuffled


def measure_shift(
    run: ChosenRun,
    *,
    batches_per_block: int = 20,
    blocks: int = 10,
    statistics: str = "",
    progress: Callable[[str], None] | None = None,
) -> Shift:
    """Train in blocks of subjects and on shuffled batches; compare what follows a change.

    Changes of subject in the warm-up do not count.

    Args:
        run: A run of AFOR.
        batches_per_block: Batches until the subject changes.
        blocks: Number of blocks of each training subject.
        statistics: "paper" or "calibrated"; empty keeps the setting of the run.
        progress: Called with a description of each training before it starts.

    Raises:
        ConfigError: The blocks do not fit the subjects, or too few changes follow the warm-up.
        TrainingError: A training diverged.
    """
    notify = progress or (lambda _: None)
    settings = run.settings
    optimizer_settings = dict(settings.optimizer_settings)
    if statistics:
        optimizer_settings["statistics"] = statistics
    schedule = blocked(
        run.side("training", pick_device(settings.device)),
        settings.batch_size,
        settings.seed("batches"),
        batches_per_block=batches_per_block,
        blocks=blocks,
    )
    notify(f"blocks: {len(schedule.batches)} steps, {len(schedule.changes)} changes of subject")
    in_blocks = train_schedule(run, schedule, optimizer_settings)
    notify("control: the same windows, shuffled")
    control_schedule = shuffled(schedule, settings.seed("batches"))
    control = train_schedule(run, control_schedule, optimizer_settings)
    before = max(1, min(BEFORE, batches_per_block // 2))
    after = min(AFTER, batches_per_block)
    events = [e for e in schedule.changes if e - before >= in_blocks.warmup_steps]
    if len(events) < 2:
        raise ConfigError(
            f"Only {len(events)} changes of subject come after the {in_blocks.warmup_steps} steps "
            f"of warm-up; an interval needs two or more. Raise --blocks."
        )
    links = tuple(_link(q, in_blocks, control, events, before, after) for q in CHAIN)
    tail = max(1, len(in_blocks) // 10)
    return Shift(
        run.label,
        len(in_blocks),
        len(links[0].blocked[ALL].by_event),
        batches_per_block,
        str(optimizer_settings.get("statistics", "paper")),
        links,
        (float(in_blocks.loss[-tail:].mean()), float(control.loss[-tail:].mean())),
    )


def train_schedule(
    run: ChosenRun, schedule: Schedule, optimizer_settings: Mapping[str, Any]
) -> Steps:
    """Train the network of a run on given batches; return every step of its controllers."""
    settings = run.settings.changed(
        optimizer_settings=optimizer_settings, contamination=None, schedule="constant"
    )
    device = pick_device(settings.device)
    log = StepLog()
    with (
        repeatable(settings.threads, settings.precision),
        isolated(settings.seed("weights"), device),
    ):
        model = run.make_model().to(device)
        fit = Fit(settings, model, Sides(settings, run.source, device))
        fit.watch_step = log.watch
        Team([fit]).take_steps(fit.sides.training, schedule.batches, settings.seed("dropout"))
        finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    if fit.error is not None:
        raise fit.error
    if not finite:
        raise TrainingError(f"{run.label}: the training diverged. Lower the learning rate.")
    return log.result()


def _link(
    quantity: Quantity, in_blocks: Steps, control: Steps, events: list[int], before: int, after: int
) -> Link:
    """Return what a quantity did after the events in blocks, against the shuffled control."""
    groups = {ALL: list(range(len(in_blocks.names))), **in_blocks.groups}
    judged = min(JUDGED, after)

    def responses(steps: Steps) -> dict[str, Response]:
        series, relative = steps[quantity.name], quantity.relative
        windows = event_windows(series, events, before, after, relative=relative)
        return {name: respond(windows[..., at], before, judged) for name, at in groups.items()}

    ours, theirs = responses(in_blocks), responses(control)
    gaps = (ours[ALL].by_event - theirs[ALL].by_event)[:, None]
    mean, low, high = (float(v[0]) for v in mean_interval(gaps))
    answer: Answer = "not seen"
    if low > 0 or high < 0:
        answer = "as claimed" if mean * quantity.direction > 0 else "the opposite"
    return Link(quantity, ours, theirs, mean, (low, high), answer, in_blocks.beta2_range)


def shift_content(shift: Shift) -> dict[str, Any]:
    """Return the numbers behind the figure, ready for JSON."""
    span = shift.links[0].beta2_range[1] - shift.links[0].beta2_range[0]
    return {
        "run": shift.label,
        "statistics": shift.statistics,
        "steps": shift.steps,
        "events": shift.events,
        "batches_per_block": shift.batches_per_block,
        "last_loss": {"blocked": shift.loss[0], "shuffled": shift.loss[1]},
        "links": [
            {
                "quantity": link.quantity.name,
                "logarithmic": link.quantity.relative,
                "claim": link.quantity.claim,
                "difference": link.difference,
                "interval": list(link.interval),
                "answer": link.answer,
                "share_of_beta2_range": link.difference / span
                if link.quantity.name == "beta2"
                else None,
                "sentence": link.sentence,
                "groups": {
                    group: {
                        "blocked": link.blocked[group].content(),
                        "shuffled": link.shuffled[group].content(),
                    }
                    for group in link.blocked
                },
            }
            for link in shift.links
        ],
    }


ROW_MM = 38
ANSWERS = {"as claimed": "so it does", "the opposite": "the opposite", "not seen": "not seen"}


@style.house_style()
def shift_figure(shift: Shift) -> Any:
    """Draw one row per link of the claimed chain: over steps, and by layer group."""
    figure = style.empty_figure(16 + ROW_MM * len(shift.links))
    axes = figure.subplots(
        len(shift.links), 2, squeeze=False, gridspec_kw={"width_ratios": [1.25, 1]}
    )
    for (curves, groups), link in zip(axes, shift.links, strict=True):
        _curves(curves, link)
        _groups(groups, link)
    axes[-1, 0].set_xlabel("batches since the change of subject")
    axes[-1, 1].set_xlabel("mean over the first 10 batches, 95 % interval")
    axes[0, 1].set_title("by layer group")
    style.legend_below(figure, axes[0, 0], 3)
    figure.align_ylabels(axes[:, 0])
    words = (
        f"{shift.label}; {shift.events} changes, every {shift.batches_per_block} batches; "
        f"score statistics: {shift.statistics}"
    )
    figure.suptitle(style.plain(words), fontsize=7, x=0.01, ha="left")
    return figure


def _curves(axis: Any, link: Link) -> None:
    show = partial(_shown, link.quantity, link.beta2_range)
    for response, color, dash, label in (
        (link.shuffled[ALL], style.GREY, "--", "shuffled batches, pseudo-events"),
        (link.blocked[ALL], style.VERMILION, "-", "blocks of subjects"),
    ):
        axis.plot(response.offsets, show(response.mean), color=color, linestyle=dash, label=label)
        axis.fill_between(
            response.offsets, show(response.low), show(response.high), color=color,
            alpha=0.18, linewidth=0,
        )  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.5)
    axis.axvline(-0.5, color=style.BLUE, linewidth=0.8, linestyle=":")
    axis.set_ylabel(_unit(link.quantity))
    axis.set_title(
        f"{link.quantity.label}: the paper says it {link.quantity.claim}; {ANSWERS[link.answer]}"
    )
    axis.margins(x=0.01)
    axis.grid(axis="y")


def _groups(axis: Any, link: Link) -> None:
    show = partial(_shown, link.quantity, link.beta2_range)
    names = list(link.blocked)
    for number, name in enumerate(names):
        for responses, color, marker, offset in (
            (link.shuffled, style.GREY, "s", 0.16),
            (link.blocked, style.VERMILION, "o", -0.16),
        ):
            response = responses[name]
            low, high = show(response.interval)
            axis.plot([low, high], [number + offset] * 2, color=color, linewidth=0.9)
            axis.plot(
                show(response.size), number + offset, color=color, marker=marker, markersize=3,
                markeredgewidth=0,
            )  # fmt: skip
    axis.axvline(0, color="black", linewidth=0.5)
    axis.set_yticks(np.arange(len(names)), [style.plain(name) for name in names])
    axis.get_yticklabels()[names.index(ALL)].set_fontweight("bold")
    axis.tick_params(axis="y", labelsize=5.5, length=0)
    axis.invert_yaxis()
    axis.grid(axis="x")
    axis.text(
        1.0, 1.02, _unit(link.quantity), transform=axis.transAxes, ha="right", va="bottom",
        fontsize=5.5, color="#444444",
    )  # fmt: skip


def _shown(quantity: Quantity, beta2_range: tuple[float, float], values: Any) -> Any:
    if quantity.name == "beta2":
        return 100 / (beta2_range[1] - beta2_range[0]) * np.asarray(values)
    return 100 * np.expm1(values) if quantity.relative else np.asarray(values)


def _unit(quantity: Quantity) -> str:
    if quantity.name == "beta2":
        return "% of its range"
    return "change (%)" if quantity.relative else "change"
