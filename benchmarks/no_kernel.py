"""Time AFOR's step without the native kernel, in a training step of EEGNet on one core.

    python benchmarks/no_kernel.py [--rounds 60]

Prints the time of the step over that of torch's Adam, and the share of the whole training step.
All take turns in one process, in an order drawn anew each round; medians of ratios within rounds.
"""

import argparse
import random
import statistics
import time

import torch
from contenders import CONTENDERS
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone

NAMES = ("adam", "afor-fused", "afor-loop", "afor-foreach")
STEPS = 5  # a turn
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    shape = InputShape.unnamed(32, samples=128, rate_hz=128, classes=2)
    signal = torch.randn(BATCH, shape.channels, shape.samples)
    labels = torch.randint(shape.classes, (BATCH,))
    members = {}
    for name in NAMES:
        model = build_backbone("eegnet", shape)
        members[name] = model, CONTENDERS[name].build(model, None).step
    steps: dict[str, list[float]] = {name: [] for name in NAMES}
    whole: dict[str, list[float]] = {name: [] for name in NAMES}
    for turn in range(rounds + 1):  # the first turn warms up
        for name in random.sample(NAMES, len(NAMES)):
            model, step = members[name]
            times = []
            for _ in range(STEPS):
                start = time.thread_time()
                model.zero_grad()
                F.cross_entropy(model(signal), labels).backward()
                middle = time.thread_time()
                step()
                end = time.thread_time()
                times.append((end - middle, end - start))
            if turn:
                steps[name].append(statistics.median(t for t, _ in times))
                whole[name].append(statistics.median(t for _, t in times))
    for name in NAMES:
        ratio = statistics.median(map(float.__truediv__, steps[name], steps["adam"]))
        share = statistics.median(map(float.__truediv__, steps[name], whole[name]))
        label = CONTENDERS[name].label
        print(f"{label:16s} {ratio:5.2f} of torch Adam, {100 * share:4.1f}% of the training step")


if __name__ == "__main__":
    main()
