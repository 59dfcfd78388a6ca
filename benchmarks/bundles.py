"""Time runs that are trained by themselves against the same runs as one bundle, on one core.

    python benchmarks/bundles.py [--runs 8] [--rounds 3] [--batches 16 64 256] [--optimizer adamw]
        [--network eegnet eegnet_authors]

Both take the same training steps: reading the batch, forward and backward pass, and the step of
every run's own optimizer; then both evaluate the validation windows. They take turns in one
process; times are processor time, and medians over the rounds are printed, in milliseconds for one
step of one run, and as shares for the evaluation.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from interleave import medians_ms, table
from torch import nn

from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.training.batches import Sides, epoch_batches
from afor.bench.training.fit import Fit, Team
from afor.bench.training.run_spec import RunSettings

CPU = torch.device("cpu")
STEPS = 4
BATCHES = (16, 64, 256)


@dataclass(frozen=True)
class Case:
    """A network and the shape of its windows."""

    network: str
    channels: int
    samples: int
    rate_hz: int

    def build(self) -> nn.Module:
        """Return the network."""
        shape = InputShape.unnamed(
            self.channels, samples=self.samples, rate_hz=self.rate_hz, classes=2
        )
        return build_backbone(self.network, shape)


CASES = (
    Case("eegnet_authors", 8, 80, 160),
    Case("eegnet", 32, 128, 128),
    Case("eegnet", 22, 250, 250),
    Case("eegnet_authors", 6, 600, 200),
)
NETWORKS = tuple(dict.fromkeys(case.network for case in CASES))


def make_fits(case: Case, batch: int, runs: int, optimizer: str) -> list[Fit]:
    """Return runs of one optimizer with different learning rates."""
    rng = np.random.default_rng(0)
    names = np.repeat(["a", "b", "c"], STEPS * batch)
    data = rng.standard_normal((len(names), case.channels, case.samples), dtype=np.float32)
    source = ArrayWindows(data, rng.integers(2, size=len(names)), list(names))
    split = make_splits("benchmark", source.subjects).split(0, 0)
    settings = RunSettings(dataset="benchmark", split=split, optimizer=optimizer, batch_size=batch)
    rates = [1e-4 * 2**number for number in range(runs)]
    sides = Sides(settings, source, CPU)
    return [Fit(settings.changed(lr=lr), case.build(), sides) for lr in rates]


def measure(case: Case, batch: int, runs: int, rounds: int, optimizer: str) -> dict[str, str]:
    """Return a row of the table."""

    by_one = [Team([fit]) for fit in make_fits(case, batch, runs, optimizer)]
    in_bundle = Team(make_fits(case, batch, runs, optimizer))
    first = by_one[0].active[0]
    order = epoch_batches(first.sides.training, batch, seed=0)[:STEPS]

    def contenders(do: Callable[[Team], object]) -> dict[str, Callable[[], object]]:
        return {"alone": lambda: [do(team) for team in by_one], "bundled": lambda: do(in_bundle)}

    trained = medians_ms(
        contenders(lambda team: team.take_steps(first.sides.training, order, 0)), rounds
    )
    evaluated = medians_ms(contenders(lambda team: team.predict(first.sides.validation)), rounds)
    alone, together = (trained[name] / STEPS / runs for name in ("alone", "bundled"))
    return {
        "network": case.network,
        "window": f"{case.channels} x {case.samples}",
        "batch": str(batch),
        "alone": f"{alone:.2f}",
        "bundled": f"{together:.2f}",
        "alone / bundled": f"{alone / together:.2f}",
        "in evaluation": f"{evaluated['alone'] / evaluated['bundled']:.2f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--network", nargs="+", default=NETWORKS, choices=NETWORKS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{given.runs} runs of {given.optimizer}, milliseconds of one step of one run")
    rows = [
        measure(case, batch, given.runs, given.rounds, given.optimizer)
        for case in CASES
        if case.network in given.network
        for batch in given.batches
    ]
    print(table(rows))


if __name__ == "__main__":
    main()
