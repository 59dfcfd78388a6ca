"""A training step with Adam where a process keeps freed memory, as a study's workers do.

    python benchmarks/kept_memory.py

Each measurement is a process of its own, both kinds in turn; medians of the processor time on one
thread, on windows of 22 channels and 320 samples in batches of 64.
"""

import statistics
import subprocess
import sys

import torch
from interleave import medians_ms, table, training_step

from afor.bench.common.devices import keep_freed_memory
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone

NETWORKS = ("eegnet_authors", "acrnn_authors", "nsal_dgat_authors", "hslt_authors")
KINDS = ("kept", "returned")
ROUNDS = 3


def step_ms(kind: str, name: str) -> float:
    """Return the milliseconds of a step of a network in this process."""
    if kind == "kept":
        keep_freed_memory()
    torch.set_num_threads(1)
    shape = InputShape.unnamed(22, samples=320, rate_hz=160, classes=4)
    network = build_backbone(name, shape)
    optimizer = torch.optim.Adam(network.parameters(), weight_decay=1e-4)
    gradients = training_step(network, shape, 64)
    return medians_ms({name: lambda: (gradients(), optimizer.step())}, 31)[name]


def main() -> None:
    rows = []
    for name in NETWORKS:
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for kind in KINDS * ROUNDS:
            child = [sys.executable, __file__, kind, name]
            printed = subprocess.run(child, capture_output=True, check=True).stdout
            found[kind].append(float(printed))
        kept, returned = (statistics.median(found[kind]) for kind in KINDS)
        times = {"returned ms": f"{returned:.1f}", "kept ms": f"{kept:.1f}"}
        rows.append({"network": name, **times, "kept / returned": f"{kept / returned:.2f}"})
    print(table(rows))


if __name__ == "__main__":
    if sys.argv[1:]:
        print(step_ms(*sys.argv[1:]))
    else:
        main()
