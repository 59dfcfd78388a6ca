"""Time AFOR's step without the native kernel, on one core: EEGNet in training, and a large tensor.

    python benchmarks/no_kernel.py [--rounds 60]

Prints the time of the step over that of torch's Adam, and its share of the whole training step.
All take turns in one process, in an order drawn anew each round; medians of ratios within rounds.
Times are processor time. `WITHOUT_KERNEL` in `afor.bench.cli.catalog.doctor` holds these figures.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from contenders import CONTENDERS
from torch import nn
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone

NAMES = ("adam", "afor-fused", "afor-loop", "afor-foreach")
STEPS = 5  # a turn
BATCH = 64
LARGE = 1_000_000  # elements

# Makes the gradients, takes the step.
Member = tuple[Callable[[], None], Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for title, members, of_rounds in (
        ("EEGNet in training", training_members(), rounds),
        (f"one tensor of {LARGE:,}", large_members(), max(rounds // 4, 1)),
    ):
        print(title)
        for name, (ratio, share) in measure(members, of_rounds).items():
            label = CONTENDERS[name].label
            text = f"  {label:16s} {ratio:5.2f} of torch Adam"
            print(text + (f", {100 * share:4.1f}% of the training step" if share < 0.99 else ""))


def training_members() -> dict[str, Member]:
    shape = InputShape.unnamed(32, samples=128, rate_hz=128, classes=2)
    signal = torch.randn(BATCH, shape.channels, shape.samples)
    labels = torch.randint(shape.classes, (BATCH,))

    def member(name: str) -> Member:
        model = build_backbone("eegnet", shape)

        def before() -> None:
            model.zero_grad()
            F.cross_entropy(model(signal), labels).backward()

        return before, CONTENDERS[name].build(model, None).step

    return {name: member(name) for name in NAMES}


def large_members() -> dict[str, Member]:
    def member(name: str) -> Member:
        model = nn.ParameterList([torch.randn(LARGE)])
        model[0].grad = torch.randn(LARGE)
        return lambda: None, CONTENDERS[name].build(model, None).step

    return {name: member(name) for name in NAMES}


def measure(members: dict[str, Member], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the ratio to Adam and the share of the whole of each member."""
    steps: dict[str, list[float]] = {name: [] for name in members}
    whole: dict[str, list[float]] = {name: [] for name in members}
    for turn in range(rounds + 1):  # the first turn warms up
        for name in random.sample(list(members), len(members)):
            before, step = members[name]
            times = []
            for _ in range(STEPS):
                start = time.thread_time()
                before()
                middle = time.thread_time()
                step()
                end = time.thread_time()
                times.append((end - middle, end - start))
            if turn:
                steps[name].append(statistics.median(t for t, _ in times))
                whole[name].append(statistics.median(t for _, t in times))
    return {
        name: (
            statistics.median(map(float.__truediv__, steps[name], steps["adam"])),
            statistics.median(map(float.__truediv__, steps[name], whole[name])),
        )
        for name in members
    }


if __name__ == "__main__":
    main()
