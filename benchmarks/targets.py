"""What the project has set itself to reach, and whether a run did."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from contenders import CONTENDERS, YARDSTICK
from results import Results, Spread, ratio


class Target(NamedTuple):
    """At most so many times the time of another contender."""

    workload: str
    title: str
    threads: tuple[int, ...]
    contender: str
    against: str
    at_most: float


TARGETS = (
    Target("eegnet", "EEGNet", (1, 2), "afor-fused", "adam", 0.15),
    Target("eegnet", "EEGNet", (1, 2), "afor-fused", "adamw-fused", 0.45),
    Target("eegnet", "EEGNet", (1, 2), "afor-fused", "released", 1 / 30),
    Target("hslt", "HSLT", (1, 2), "afor-fused", "adamw-fused", 0.6),
    Target("eegnet", "EEGNet", (1, 2), "afor-foreach", "adam", 1.1),
    # Ordinary uses take about the time of a step on the same tensors, all trained.
    Target("eegnet", "EEGNet", (1, 2), "afor-frozen", "afor-fused", 1.1),
    Target("hslt", "HSLT", (1, 2), "afor-frozen", "afor-fused", 1.1),
    Target("eegnet", "EEGNet", (1, 2), "afor-bfloat16", "afor-fused", 1.2),
    Target("hslt", "HSLT", (1, 2), "afor-bfloat16", "afor-fused", 1.2),
    Target("eegnet", "EEGNet", (1, 2), "afor-checkpoint", "afor-fused", 1.1),
    Target("eegnet", "EEGNet", (1, 2), "afor-profiled", "afor-fused", 2.0),
    Target("hslt", "HSLT", (1, 2), "afor-profiled", "afor-fused", 2.0),
    Target("eegnet", "EEGNet", (1, 2), "afor-sharded", "adamw-sharded", 1.25),
    Target("hslt", "HSLT", (1, 2), "afor-sharded", "adamw-sharded", 1.25),
    Target("eegnet", "EEGNet", (1, 2), "afor-constant", "adamw-fused", 0.4),
    Target("hslt", "HSLT", (1, 2), "afor-constant", "adamw-fused", 0.4),
    Target("resnet50", "ResNet-50", (1, 2), "afor-constant", "adamw-fused", 1.1),
)


def in_training(at_most: float) -> tuple[Target, ...]:
    """Return the targets of a step after a backward pass, which finds nothing in the caches."""
    return (
        Target("train-deap", "in a training step, 32×128", (1, 2), "afor-fused", "adam", at_most),
        Target("train-bci2a", "in a training step, 22×250", (1, 2), "afor-fused", "adam", at_most),
    )


# What waits for memory depends on the processor. On AMD's with AVX-512 (EPYC, family 26) one core
# reads 36 GB/s, and torch's AdamW takes 0.55 ns for a parameter of a large tensor. AFOR reads 8
# bytes more, 0.22 ns, so that 1.4 is the least that one thread can reach there on what no cache
# holds. Adam's training step, too, loses less to cold caches than on Intel's: AFOR's is 0.3 of it
# in wall time.
BY_PROCESSOR = {
    "avx512": (
        *in_training(0.2),
        Target("resnet50", "ResNet-50", (1,), "afor-fused", "adamw-fused", 1.2),
        Target("resnet50", "ResNet-50", (2,), "afor-fused", "adamw-fused", 1.1),
        Target("gpt2", "GPT-2", (1,), "afor-fused", "adamw-fused", 1.4),
        Target("gpt2", "GPT-2", (2,), "afor-fused", "adamw-fused", 1.25),
        Target("single", "one tensor of 100 M", (1, 2), "afor-fused", "adamw-fused", 1.4),
    ),
    "avx512, AMD": (
        *in_training(0.3),
        Target("resnet50", "ResNet-50", (1,), "afor-fused", "adamw-fused", 1.45),
        Target("resnet50", "ResNet-50", (2,), "afor-fused", "adamw-fused", 1.2),
        Target("gpt2", "GPT-2", (1,), "afor-fused", "adamw-fused", 1.6),
        Target("gpt2", "GPT-2", (2,), "afor-fused", "adamw-fused", 1.4),
        Target("single", "one tensor of 100 M", (1,), "afor-fused", "adamw-fused", 1.6),
        Target("single", "one tensor of 100 M", (2,), "afor-fused", "adamw-fused", 1.5),
    ),
    "avx2": (
        *in_training(0.2),
        Target("resnet50", "ResNet-50", (1,), "afor-fused", "adamw-fused", 1.5),
        Target("resnet50", "ResNet-50", (2,), "afor-fused", "adamw-fused", 1.4),
        Target("gpt2", "GPT-2", (1,), "afor-fused", "adamw-fused", 1.5),
        Target("gpt2", "GPT-2", (2,), "afor-fused", "adamw-fused", 1.4),
        Target("single", "one tensor of 100 M", (1,), "afor-fused", "adamw-fused", 1.5),
        Target("single", "one tensor of 100 M", (2,), "afor-fused", "adamw-fused", 1.4),
    ),
}


def targets(machine: Mapping[str, Any]) -> tuple[Target, ...]:
    """Return the targets on a machine; runs without an instruction set are of avx512."""
    isa = machine.get("kernel_isa") or "avx512"
    maker = ", AMD" if isa == "avx512" and "AMD" in machine.get("cpu", "") else ""
    return (*TARGETS, *BY_PROCESSOR.get(isa + maker, in_training(0.2)))


def needed_contenders(workload: str) -> set[str]:
    """Return who must be timed on a workload to judge all its targets; empty if it has none."""
    every = (*TARGETS, *chain.from_iterable(BY_PROCESSOR.values()))
    pairs = [(t.contender, t.against) for t in every if t.workload == workload]
    return {name for pair in pairs for name in (*pair, YARDSTICK)}


class Verdict(NamedTuple):
    """One target at one thread count."""

    target: Target
    threads: int
    reached: Spread | None  # None: not measured

    @property
    def word(self) -> str:
        """Return the verdict in words."""
        if self.reached is None:
            return "not measured"
        return "reached" if self.reached.median <= self.target.at_most else "NOT REACHED"


def judge(results: Results) -> list[Verdict]:
    """Hold the results against all targets."""
    verdicts = []
    for target in targets(results.machine):
        gradients = "backward" if target.workload.startswith("train-") else "kept"
        for threads in target.threads:
            ours = results.find(target.workload, threads, target.contender, gradients)
            theirs = results.find(target.workload, threads, target.against, gradients)
            reached = ratio(ours, theirs) if ours and theirs else None
            verdicts.append(Verdict(target, threads, reached))
    return verdicts


def label(name: str) -> str:
    """Return a contender's name as tables print it."""
    return CONTENDERS[name].label
