"""Show that ISRUC at full size trains inside 4 GB: prepare, read and train on a stand-in.

    python benchmarks/memory.py --cache FOLDER            # 100 nights, 13 GB on disk
    python benchmarks/memory.py --cache FOLDER --nights 5 # a quick look

The stand-in are synthetic sleep subjects of the real size (six channels, 200 Hz, 902 epochs of 30 s
a night, windows of 600 samples every 300). Each phase runs in a process of its own and prints its
peak of resident memory, mapped file pages included.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

LIMIT_MB = 4096
EPOCHS_A_NIGHT = 902  # 90 187 epochs in 100 nights
BATCH = 256
TRAIN_STEPS = 200


def options(nights: int) -> dict[str, object]:
    return {
        "kind": "sleep", "n_subjects": nights, "trials": EPOCHS_A_NIGHT, "rate_hz": 200,
        "trial_s": 30, "window_samples": 600, "stride_samples": 300,
    }  # fmt: skip


def peak_mb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    raise SystemExit("this benchmark reads /proc and needs Linux")


def open_source(cache: str, nights: int):
    from afor.bench.data.loading import open_windows

    def progress(done: int, total: int, _subject: str) -> None:
        if done % 20 == 0:
            print(f"    {done} of {total} nights", file=sys.stderr, flush=True)

    return open_windows("synthetic", options=options(nights), cache_dir=cache, progress=progress)


def prepare(cache: str, nights: int) -> str:
    source = open_source(cache, nights)
    size = sum(4 * s.shape[0] * s.shape[1] * s.shape[2] for s in source.prepared)
    return f"{nights} nights, {len(source):,} windows, {size / 1e9:.1f} GB on disk"


def read(cache: str, nights: int) -> str:
    import numpy as np

    source = open_source(cache, nights)
    order = np.random.default_rng(0).permutation(len(source))
    started = time.perf_counter()
    for at in range(0, len(order), BATCH):
        source.gather(order[at : at + BATCH])
    rate = len(order) / (time.perf_counter() - started)
    return f"every window once in random order, {rate:,.0f} windows a second"


def train(cache: str, nights: int) -> str:
    import numpy as np
    import torch
    from torch import nn

    source = open_source(cache, nights)
    torch.manual_seed(0)
    model = nn.Sequential(  # the shape of EEGNet: time, space, time
        nn.Conv2d(1, 8, (1, 63), padding="same", bias=False), nn.BatchNorm2d(8),
        nn.Conv2d(8, 16, (6, 1), groups=8, bias=False), nn.BatchNorm2d(16), nn.ELU(),
        nn.AvgPool2d((1, 4)), nn.Conv2d(16, 16, (1, 15), padding="same", bias=False), nn.ELU(),
        nn.AvgPool2d((1, 8)), nn.Flatten(), nn.Linear(16 * 18, source.n_classes),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    training = source.subjects[: max(1, round(0.7 * nights))]
    index = source.indices_of(training)
    mean, sd = (torch.from_numpy(v).float()[:, None] for v in source.channel_statistics(training))
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(TRAIN_STEPS):
        batch = rng.choice(index, BATCH)
        x = (torch.from_numpy(source.gather(batch)) - mean) / sd
        loss = nn.functional.cross_entropy(
            model(x[:, None]), torch.from_numpy(source.labels[batch])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return f"{TRAIN_STEPS} steps of {BATCH}, loss {losses[0]:.2f} to {np.mean(losses[-20:]):.2f}"


PHASES = {"prepare": prepare, "read": read, "train": train}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", required=True, help="folder for the stand-in; keep it to reuse")
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.phase:
        said = PHASES[given.phase](given.cache, given.nights)
        print(f"{given.phase:<8} peak {peak_mb():>5} MB   {said}", flush=True)
        raise SystemExit(0 if peak_mb() < LIMIT_MB else 1)
    codes = [
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--phase", phase]).returncode
        for phase in PHASES
    ]
    print(f"limit    peak {LIMIT_MB:>5} MB   {'kept' if not any(codes) else 'BROKEN'}")
    raise SystemExit(max(codes))


if __name__ == "__main__":
    main()
