"""EEGNet's native and fast form against its plain form, and against braindecode's EEGNet.

    python benchmarks/eegnet.py                  a training step at the four data sets' shapes
    python benchmarks/eegnet.py --native         the native form against the fast one alone
    python benchmarks/eegnet.py --shapes 60      and whether `auto` ever loses, at random shapes
    python benchmarks/eegnet.py --json out.json  the same numbers for a program

One thread; medians of the processor time of interleaved runs in one process, so the ratios hold
on a busy machine.
"""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

import torch
from interleave import evaluation, medians_ms, table, training_step
from torch import nn

from afor import AFOR
from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone

# Channels, samples, rate, classes, batch; the share of the fast form's step that the native one may
# take.
NATIVE_SHAPES = [
    (32, 128, 128, 2, 256, 0.6),
    (19, 160, 160, 2, 64, 0.6),
    (22, 250, 250, 4, 64, 0.7),
    (6, 600, 200, 5, 64, 0.7),
    (64, 160, 160, 4, 64, None),
    (8, 80, 80, 2, 32, None),
]
BATCHES = {"DEAP": 256, "BCI IV 2a": 64, "ISRUC": 64, "PhysioNet MI": 64}


def dataset_ratios(rounds: int) -> list[dict[str, object]]:
    """Time a training step at every data set's shape."""
    results = []
    for dataset, shape in DATASET_SHAPES.items():
        batch = BATCHES[dataset]
        forms = ("plain", "fast", "native")
        models = {form: build_backbone("eegnet", shape, form=form) for form in forms}
        if braindecode_reason() is None:
            models["braindecode"] = build_backbone("braindecode:EEGNet", shape)
        steps = {name: training_step(model, shape, batch) for name, model in models.items()}
        measured = medians_ms(steps, rounds)
        results.append(
            {
                "data set": dataset,
                "channels": shape.channels,
                "samples": shape.samples,
                "batch": batch,
                **{f"{name} ms": value for name, value in measured.items()},
                **{
                    f"{name} / fast": value / measured["fast"]
                    for name, value in measured.items()
                    if name != "fast"
                },
            }
        )
    return results


def native_ratios(rounds: int) -> list[dict[str, object]]:
    """Time forward, backward and AFOR's step, and evaluation, of the native and the fast form."""
    results: list[dict[str, object]] = []
    for name in ("eegnet", "eegnet_authors"):
        for channels, samples, rate_hz, classes, batch, target in NATIVE_SHAPES:
            shape = InputShape.unnamed(channels, samples, rate_hz, classes)
            models = {form: build_backbone(name, shape, form=form) for form in ("native", "fast")}
            steps = {form: optimizer_step(m, shape, batch) for form, m in models.items()}
            training = medians_ms(steps, rounds)
            passes = {form: evaluation(m, shape, batch) for form, m in models.items()}
            evaluated = medians_ms(passes, rounds)
            results.append(
                {
                    "network": name,
                    "channels": channels,
                    "samples": samples,
                    "batch": batch,
                    "native ms": training["native"],
                    "fast ms": training["fast"],
                    "native / fast": training["native"] / training["fast"],
                    "target": "" if target is None else f"{target:g}",
                    "in evaluation": evaluated["native"] / evaluated["fast"],
                }
            )
    return results


def optimizer_step(model: nn.Module, shape: InputShape, batch: int) -> Callable[[], None]:
    """Return a whole training step: forward, backward and the optimizer."""
    optimizer = AFOR(model.parameters())
    passes = training_step(model, shape, batch)

    def step() -> None:
        passes()
        optimizer.step()

    return step


def automatic_choices(count: int, rounds: int) -> list[dict[str, object]]:
    """Time ``auto`` against ``plain`` at random shapes, in training and in evaluation."""
    draw = random.Random(0)
    results: list[dict[str, object]] = []
    while len(results) < count:
        channels = draw.choice([1, 2, 3, 4, 6, 8, 12, 16, 22, 32, 64])
        samples = draw.choice([32, 64, 128, 250, 600, 1000, 3000])
        batch = draw.choice([1, 2, 4, 8, 16, 32, 64, 128])
        kernel = draw.choice([4, 16, 64, 100, 128, 250])
        if kernel > samples or batch * channels * samples > 400_000:
            continue
        shape = InputShape.unnamed(channels, samples, rate_hz=128, classes=4)
        settings = {"kernel_samples": kernel}
        models = {
            form: build_backbone("eegnet", shape, form=form, **settings)
            for form in ("plain", "auto")
        }
        for mode, runner in (("training", training_step), ("evaluation", evaluation)):
            runs = {form: runner(model, shape, batch) for form, model in models.items()}
            measured = medians_ms(runs, rounds)
            with torch.set_grad_enabled(mode == "training"):
                form = form_taken(models["auto"], torch.empty(batch, channels, samples))
            results.append(
                {
                    "mode": mode,
                    "channels": channels,
                    "samples": samples,
                    "kernel": kernel,
                    "batch": batch,
                    "auto takes": form,
                    "plain ms": measured["plain"],
                    "plain / auto": measured["plain"] / measured["auto"],
                }
            )
    return results


def form_taken(model: nn.Module, signal: torch.Tensor) -> str:
    """Return the form that ``auto`` takes for a signal."""
    if not model.why_not_native(signal):
        return "native"
    return "fast" if model.uses_fast_form(signal) else "plain"


def braindecode_reason() -> str | None:
    """Say why braindecode's EEGNet cannot be built here, or None."""
    try:
        build_backbone("braindecode:EEGNet", DATASET_SHAPES["DEAP"])
    except ConfigError as error:
        return str(error)
    return None


def formatted(results: list[dict[str, object]]) -> str:
    """Return the results as a table, durations and ratios with two digits."""
    return table(
        [
            {k: f"{v:.2f}" if isinstance(v, float) else str(v) for k, v in row.items()}
            for row in results
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds per shape")
    parser.add_argument("--native", action="store_true", help="the native form alone")
    parser.add_argument("--shapes", type=int, default=0, help="random shapes for `auto`")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    print("Forward, backward and AFOR's step; one thread, processor time")
    natives = native_ratios(options.rounds)
    print(formatted(natives))
    if options.native:
        return
    print("\nForward and backward of EEGNet, one thread")
    datasets = dataset_ratios(options.rounds)
    print(formatted(datasets))
    if reason := braindecode_reason():
        print(f"Without braindecode: {reason}")
    choices = automatic_choices(options.shapes, options.rounds) if options.shapes else []
    if choices:
        print(f"\nThe ten random shapes of {len(choices)} at which auto does worst")
        slowest = sorted(choices, key=lambda row: float(str(row["plain / auto"])))
        print(formatted(slowest[:10]))
        others = [row for row in choices if row["auto takes"] != "plain"]
        worst = min((float(str(row["plain / auto"])) for row in others), default=float("nan"))
        print(f"auto takes another than the plain form at {len(others)}, at worst {worst:.2f}")
    if options.json:
        record = {
            "native": natives,
            "datasets": datasets,
            "choices": choices,
            "torch": torch.__version__,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
