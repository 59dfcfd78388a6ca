"""Test the paper's claim about changes of subject (Sec. III-B) in an experiment.

    shift = measure_shift(find_run(load_study("demo")), rounds=30)
    for link in shift.links:
        print(link.sentence)

The paper: "a change of sampled subject raises e_t and lowers rho_t", and a lower score shortens
the memory. One training takes its batches from one subject at a time and changes the subject every
so many batches; its control sees the same windows, shuffled, with pseudo-events at the same steps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from afor.bench.analyses.adaptation.blocks import Schedule, blocked, shuffled
from afor.bench.analyses.adaptation.events import Response, locked, mean_interval, respond
from afor.bench.analyses.replay import ChosenRun
from afor.bench.analyses.step_log import StepLog, Steps
from afor.bench.common.devices import pick_device, repeatable
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated, seed_torch
from afor.bench.optimizers.build import build_optimizer
from afor.bench.training.batches import Side, make_normalize

BEFORE, AFTER = 10, 20  # steps around a change; shorter when the blocks are
JUDGED = 10  # steps: the memory of the momentum, 1 / (1 - beta1), the residual is taken against
ALL = "all tensors"

Answer = Literal["as claimed", "the opposite", "not seen"]


@dataclass(frozen=True)
class Quantity:
    """One link of the claimed chain."""

    name: str  # as in `Steps`
    label: str
    direction: int  # +1: the paper says it rises
    relative: bool  # the logarithm of its ratio to the level before the change


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
    blocked: Response
    shuffled: Response
    difference: float
    interval: tuple[float, float]
    answer: Answer
    beta2_range: tuple[float, float]

    @property
    def sentence(self) -> str:
        """Return the finding as a sentence with its numbers."""
        rises = self.difference > 0
        claim = "rises" if self.quantity.direction > 0 else "falls"
        if self.answer == "not seen":
            return (
                f"{self.quantity.label}: no change that stands out from the control "
                f"({self._numbers}); the paper: it {claim}."
            )
        verdict = (
            "as the paper says"
            if self.answer == "as claimed"
            else "the paper says it " + ("falls" if rises else "rises")
        )
        moved = "rises" if rises else "falls"
        return f"{self.quantity.label} {moved}: {self._numbers}; {verdict}."

    @property
    def _numbers(self) -> str:
        values = (self.difference, *self.interval)
        if self.quantity.relative:
            mean, low, high = (f"{100 * math.expm1(v):+.1f}" for v in values)
            return f"{mean} %, 95 % interval {low} to {high}"
        if self.quantity.name != "beta2":
            mean, low, high = (f"{v:+.4f}" for v in values)
            return f"{mean}, 95 % interval {low} to {high}"
        span = self.beta2_range[1] - self.beta2_range[0]
        mean, low, high = (f"{v:+.2e}" for v in values)
        share = f"{100 * self.difference / span:+.2f} % of its range"
        bounds = f"[{self.beta2_range[0]:g}, {self.beta2_range[1]:g}]"
        return f"{mean}, 95 % interval {low} to {high}, {share} {bounds}"


@dataclass(frozen=True)
class Shift:
    """The whole experiment: responses by quantity and layer group, and the verdict."""

    place: str
    steps: int
    events: int
    subjects_per_block: int
    batches_per_block: int
    statistics: str
    blocked: Mapping[str, Mapping[str, Response]]  # quantity: layer group or "all tensors"
    shuffled: Mapping[str, Mapping[str, Response]]
    links: tuple[Link, ...]
    loss: tuple[float, float]  # mean over the last tenth of the steps: blocked, shuffled


def measure_shift(
    chosen: ChosenRun,
    *,
    subjects_per_block: int = 1,
    batches_per_block: int = 20,
    rounds: int = 10,
    statistics: str = "",
    progress: Callable[[str], None] | None = None,
) -> Shift:
    """Train in blocks and shuffled, and compare what follows a change of subject.

    `rounds` counts how often every training subject has a block. `statistics` replaces that of the
    run ("paper" or "calibrated"). Events in the warm-up do not count. Raises ConfigError and
    TrainingError.
    """
    say = progress or (lambda _: None)
    settings = chosen.settings
    own = dict(settings.optimizer_settings)
    if statistics:
        own["statistics"] = statistics
    schedule = blocked(
        _training_side(chosen),
        settings.batch_size,
        settings.seed("batches"),
        subjects_per_block=subjects_per_block,
        batches_per_block=batches_per_block,
        rounds=rounds,
    )
    say(f"blocks: {len(schedule.batches)} steps, {len(schedule.changes)} changes of subject")
    in_blocks = train_schedule(chosen, schedule, own)
    say("control: the same windows, shuffled")
    control = train_schedule(chosen, shuffled(schedule, settings.seed("batches")), own)
    before = max(1, min(BEFORE, batches_per_block // 2))
    after = min(AFTER, batches_per_block)
    events = [e for e in schedule.changes if e - before >= in_blocks.warmup_steps]
    if len(events) < 2:
        raise ConfigError(
            f"Only {len(events)} changes of subject come after the {in_blocks.warmup_steps} steps "
            f"of warm-up; an interval needs two or more. Raise --epochs."
        )
    judged = min(JUDGED, after)
    found = {
        name: _responses(steps, events, before, after, judged)
        for name, steps in (("blocked", in_blocks), ("shuffled", control))
    }
    links = tuple(
        _link(q, found["blocked"][q.name][ALL], found["shuffled"][q.name][ALL], in_blocks)
        for q in CHAIN
    )
    tail = max(1, len(in_blocks) // 10)
    return Shift(
        chosen.place,
        len(in_blocks),
        len(links[0].blocked.by_event),
        subjects_per_block,
        batches_per_block,
        str(own.get("statistics", "paper")),
        found["blocked"],
        found["shuffled"],
        links,
        (float(in_blocks.loss[-tail:].mean()), float(control.loss[-tail:].mean())),
    )


def train_schedule(
    chosen: ChosenRun, schedule: Schedule, optimizer_settings: Mapping[str, Any]
) -> Steps:
    """Train the run's network on given batches and return every step of its controllers."""
    import torch
    from torch.nn.functional import cross_entropy

    settings = chosen.settings
    device = pick_device(settings.device)
    log = StepLog()
    with repeatable(settings.threads), isolated(settings.seed("weights"), device):
        model = chosen.make_model().to(device)
        optimizer = build_optimizer(
            settings.optimizer, model, settings.lr, settings.weight_decay, **optimizer_settings
        )
        side = _training_side(chosen)
        constrain = getattr(model, "apply_constraints", None) if settings.constraints else None
        seed_torch(settings.seed("dropout"))
        model.train()
        for number, indices in enumerate(schedule.batches):
            batch = side.load(indices)
            optimizer.zero_grad()
            loss = cross_entropy(model(batch.inputs), batch.labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if constrain is not None:
                constrain()
            epoch = int(np.searchsorted(schedule.rounds, number, side="right")) - 1
            log.record(optimizer, model.named_parameters(), loss.detach(), epoch)
        finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    if not finite:
        raise TrainingError(f"{chosen.place}: the training diverged. Lower the learning rate.")
    return log.result()


def _training_side(chosen: ChosenRun) -> Any:
    settings = chosen.settings
    device = pick_device(settings.device)
    names = settings.split.train
    normalize = make_normalize(settings.normalization, chosen.source, names, device)
    return Side("training", chosen.source, names, normalize, device)


def _responses(
    steps: Steps, events: list[int], before: int, after: int, judged: int
) -> dict[str, dict[str, Response]]:
    groups = {ALL: list(range(len(steps.names))), **steps.groups}
    found: dict[str, dict[str, Response]] = {}
    for q in CHAIN:
        windows = locked(steps[q.name], events, before, after, relative=q.relative)
        found[q.name] = {
            group: respond(windows[..., members], before, judged)
            for group, members in groups.items()
        }
    return found


def _link(quantity: Quantity, inside: Response, control: Response, steps: Steps) -> Link:
    gaps = (inside.by_event - control.by_event)[:, None]
    mean, low, high = (float(v[0]) for v in mean_interval(gaps))
    answer: Answer = "not seen"
    if low > 0 or high < 0:
        answer = "as claimed" if mean * quantity.direction > 0 else "the opposite"
    return Link(quantity, inside, control, mean, (low, high), answer, steps.beta2_range)


def describe_shift(shift: Shift) -> dict[str, Any]:
    """Return the numbers behind the figure, ready for JSON."""
    span = shift.links[0].beta2_range[1] - shift.links[0].beta2_range[0]
    return {
        "run": shift.place,
        "statistics": shift.statistics,
        "steps": shift.steps,
        "events": shift.events,
        "subjects_per_block": shift.subjects_per_block,
        "batches_per_block": shift.batches_per_block,
        "last_loss": {"blocked": shift.loss[0], "shuffled": shift.loss[1]},
        "links": [
            {
                "quantity": link.quantity.name,
                "logarithmic": link.quantity.relative,
                "claim": "rises" if link.quantity.direction > 0 else "falls",
                "difference": link.difference,
                "interval": list(link.interval),
                "answer": link.answer,
                "share_of_beta2_range": link.difference / span
                if link.quantity.name == "beta2"
                else None,
                "sentence": link.sentence,
                "groups": {
                    group: {
                        form: {
                            "size": response.size,
                            "interval": list(response.interval),
                            "curve": response.mean.tolist(),
                        }
                        for form, response in (
                            ("blocked", shift.blocked[link.quantity.name][group]),
                            ("shuffled", shift.shuffled[link.quantity.name][group]),
                        )
                    }
                    for group in shift.blocked[link.quantity.name]
                },
            }
            for link in shift.links
        ],
    }
