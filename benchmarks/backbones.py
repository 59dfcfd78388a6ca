"""A training step of every backbone, layer by layer as printed (plain) and as shipped (fast).

    python benchmarks/backbones.py                  ratios at the three data sets of the paper
    python benchmarks/backbones.py --profile hslt   the operators where a step's time goes
    python benchmarks/backbones.py --json out.json  the same numbers for a program

One thread; medians of the processor time of interleaved runs in one process, so the ratios hold
on a busy machine.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from interleave import medians_ms, table, training_step
from torch.profiler import ProfilerActivity, profile

from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES, build_backbone

BATCHES = {"DEAP": 256, "BCI IV 2a": 64, "ISRUC": 64}


WITH_FORMS = [name for name in BACKBONES if name.startswith(("eegnet", "hslt"))]


def build(name: str, shape: InputShape, form: str) -> torch.nn.Module:
    """Build a network as the presets have it: NSAL-DGAT of the AFOR authors repaired."""
    settings: dict[str, object] = {"repair": True} if name == "nsal_dgat_authors" else {}
    if name in WITH_FORMS:
        settings["form"] = form
    return build_backbone(name, shape, **settings)


def ratios(names: Sequence[str], rounds: int) -> list[dict[str, object]]:
    """Time both forms of these backbones on every data set."""
    results: list[dict[str, object]] = []
    for name in names:
        for dataset, batch in BATCHES.items():
            shape = DATASET_SHAPES[dataset]
            steps = {
                form: training_step(build(name, shape, form), shape, batch)
                for form in ("plain", "fast")
            }
            measured = medians_ms(steps, rounds)
            results.append(
                {
                    "backbone": name,
                    "data set": dataset,
                    "batch": batch,
                    "plain ms": round(measured["plain"], 2),
                    "fast ms": round(measured["fast"], 2),
                    "plain / fast": round(measured["plain"] / measured["fast"], 2),
                }
            )
    return results


def print_profile(name: str, form: str) -> None:
    """Print the twelve operators that take most of a step, per data set."""
    for dataset, batch in BATCHES.items():
        shape = DATASET_SHAPES[dataset]
        step = training_step(build(name, shape, form), shape, batch)
        step()
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            step()
        print(f"\n{name} ({form}) on {dataset}, batch {batch}")
        events = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)[:12]
        total = sum(e.self_cpu_time_total for e in recorded.key_averages())
        rows = [
            {
                "operator": e.key[:50],
                "calls": str(e.count),
                "ms": f"{e.self_cpu_time_total / 1e3:.2f}",
                "share": f"{e.self_cpu_time_total / total:.0%}",
            }
            for e in events
        ]
        print(table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds per shape")
    parser.add_argument(
        "--backbone", choices=WITH_FORMS, action="append", help="only this; repeatable"
    )
    parser.add_argument("--profile", choices=list(BACKBONES), help="profile this backbone instead")
    parser.add_argument("--form", choices=["plain", "fast"], default="fast")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.profile:
        print_profile(options.profile, options.form)
        return
    results = ratios(options.backbone or WITH_FORMS, options.rounds)
    print("One training step, one thread")
    print(table([{key: str(value) for key, value in row.items()} for row in results]))
    if options.json:
        record = {"steps": results, "torch": torch.__version__}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
