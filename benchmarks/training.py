"""Time an epoch of training against the bare steps, and against skorch, on one core.

    python benchmarks/training.py [--rounds 5] [--case ISRUC]

Prints ratios, which hold on any machine. The bare time is forward, backward and step on batches
that already lie in memory as tensors, plus the forward passes of validation; what the product adds
is reading, normalising, checking subjects, recording and choosing the best epoch. All contenders
take turns in one process; times are processor time, and the median ratio of the rounds is printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from afor.bench.common.seeding import derive_substep, seed_torch
from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.optimizers.build import build_optimizer
from afor.bench.training.batches import Sides, epoch_batches
from afor.bench.training.fit import EVALUATION_BATCH, Fit, Team
from afor.bench.training.loop import score
from afor.bench.training.run_spec import RunSettings

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """One shape of data, as in the paper's datasets."""

    name: str
    channels: int
    samples: int
    rate_hz: int
    classes: int
    batch_size: int
    windows_per_subject: int


CASES = [
    Case("DEAP, 32 x 128, batch 256", 32, 128, 128, 2, 256, 600),
    Case("BCI IV 2a, 22 x 250, batch 64", 22, 250, 250, 4, 64, 300),
    Case("ISRUC, 6 x 600, batch 64", 6, 600, 200, 5, 64, 300),
]


def network(case: Case, form: str) -> nn.Module:
    shape = InputShape.unnamed(
        case.channels, samples=case.samples, rate_hz=case.rate_hz, classes=case.classes
    )
    return build_backbone("eegnet", shape, form=form)


def windows(case: Case) -> ArrayWindows:
    rng = np.random.default_rng(0)
    subjects = np.repeat([f"s{i}" for i in range(6)], case.windows_per_subject)
    data = rng.standard_normal((len(subjects), case.channels, case.samples), dtype=np.float32)
    return ArrayWindows(data, rng.integers(case.classes, size=len(subjects)), list(subjects))


def our_epoch(settings: RunSettings, source: ArrayWindows, case: Case) -> float:
    sides = Sides(settings, source, CPU)
    training, validation = sides.training, sides.validation
    fit = Fit(settings, network(case, "auto"), sides)
    team = Team([fit])
    started = time.process_time()
    seed = derive_substep(settings.seed("batches"), 0)
    team.take_steps(training, epoch_batches(training, settings.batch_size, seed), dropout_seed=0)
    fit.mean_loss()
    fit.traces.end_epoch()
    score(team.predict(validation)[0], validation.labels)
    fit.keep_state(0)
    return time.process_time() - started


def bare_epoch(settings: RunSettings, source: ArrayWindows, case: Case) -> float:
    sides = Sides(settings, source, CPU)
    training, validation = sides.training, sides.validation
    seed = derive_substep(settings.seed("batches"), 0)
    batches = [training.load(i) for i in epoch_batches(training, settings.batch_size, seed)]
    held_out = list(validation.in_order(EVALUATION_BATCH))
    model = network(case, "auto")
    optimizer = build_optimizer(settings.optimizer, model, settings.lr, settings.weight_decay)
    started = time.process_time()
    model.train()
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        for batch in held_out:
            model(batch.inputs)
    return time.process_time() - started


def skorch_epoch(settings: RunSettings, source: ArrayWindows, case: Case) -> float:
    from skorch import NeuralNetClassifier
    from skorch.dataset import Dataset
    from skorch.helper import predefined_split

    data = []
    for names in (settings.split.train, settings.split.validation):
        index = np.flatnonzero(np.isin(np.array(source.subjects)[source.subject_codes], names))
        data.append((source.gather(index), source.labels[index]))
    net = NeuralNetClassifier(
        network(case, "plain"),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        optimizer__weight_decay=1e-4,
        lr=settings.lr,
        batch_size=settings.batch_size,
        iterator_train__shuffle=True,
        train_split=predefined_split(Dataset(*data[1])),
        max_epochs=1,
        verbose=0,
    )
    net.initialize()
    started = time.process_time()
    net.partial_fit(*data[0])
    return time.process_time() - started


def measure(case: Case, rounds: int) -> None:
    source = windows(case)
    split = make_splits("benchmark", source.subjects).split(0, 0)
    adam = RunSettings(
        dataset="benchmark",
        split=split,
        optimizer="adam",
        batch_size=case.batch_size,
        max_epochs=1,
    )
    afor = adam.changed(optimizer="afor")
    contenders: dict[str, tuple[Callable[..., float], RunSettings]] = {
        "ours": (our_epoch, adam),
        "bare": (bare_epoch, adam),
        "ours, AFOR": (our_epoch, afor),
        "bare, AFOR": (bare_epoch, afor),
        "skorch": (skorch_epoch, adam),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):  # the first turn warms up
        for name, (epoch, settings) in contenders.items():
            seed_torch(turn)
            taken = epoch(settings, source, case)
            if turn:
                times[name].append(taken)

    def ratio(above: str, below: str) -> float:
        pairs = zip(times[above], times[below], strict=True)
        return statistics.median(a / b for a, b in pairs)

    print(
        f"{case.name:30s} epoch / bare steps: Adam {ratio('ours', 'bare'):.2f}, "
        f"AFOR with traces {ratio('ours, AFOR', 'bare, AFOR'):.2f}   "
        f"skorch and plain EEGNet / ours: {ratio('skorch', 'ours'):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", default="", help="beginning of the name of a data set")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if case.name.startswith(options.case):
            measure(case, options.rounds)


if __name__ == "__main__":
    main()
