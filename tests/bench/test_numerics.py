"""The numbers that training gives are part of a run's key: they may not change in silence."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from afor.bench.array_windows import ArrayWindows
from afor.bench.backbones import BACKBONES, InputShape, build_backbone
from afor.bench.optimizers import OPTIMIZERS, full_settings
from afor.bench.plan import NUMERICS
from afor.bench.runs import RunSettings
from afor.bench.splits import make_splits
from afor.bench.train import train

RECORD = Path(__file__).with_name("numerics.json")
RENEW = "AFOR_RENEW_NUMERICS"
# Another processor adds in another order; a few steps later that is far below this, while another
# seed, batch order, default or formula is far above.
TOLERANCE = 1e-4
CHANNELS = ("Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2")
SHAPE = InputShape(CHANNELS, samples=128, rate_hz=128.0, classes=3)
# The AFOR authors' HSLT and NSAL-DGAT do not take ten channels.
MANY = InputShape.unnamed(22, samples=128, rate_hz=128.0, classes=3)
# Every backbone with AdamW, and every optimizer with EEGNet.
TRAININGS = [
    *((backbone, "adamw") for backbone in BACKBONES),
    *(("eegnet", optimizer) for optimizer in OPTIMIZERS if optimizer != "adamw"),
]

CHANGED = f"""
The same settings now train to other numbers, so runs in stores of users no longer repeat. If that
was not meant, undo it. If it was: raise NUMERICS in src/afor/bench/plan.py, so that old and new
runs never share a key, say so in CHANGELOG.md, and write the record anew with
    {RENEW}=1 python -m pytest tests/bench/test_numerics.py
"""
RAISED = f"""
NUMERICS in src/afor/bench/plan.py is another than the one the record was made with. Write the
record anew with
    {RENEW}=1 python -m pytest tests/bench/test_numerics.py
and look at what has changed in tests/bench/numerics.json.
"""


def windows(channels: int) -> ArrayWindows:
    """Make windows of four subjects; three classes with a rhythm each."""
    rng = np.random.default_rng(2)
    subject = np.repeat(np.arange(4), 24)
    labels = np.tile(np.arange(3), 32)
    time_s = np.arange(128) / 128.0
    rhythm = np.sin(2 * np.pi * (6.0 + 5.0 * labels[:, None]) * time_s)
    data = rng.normal(size=(96, channels, 128)) + 0.7 * rhythm[:, None]
    return ArrayWindows(data, labels, [f"s{i}" for i in subject])


def numbers(backbone: str, optimizer: str) -> list[float]:
    """Train three epochs; return losses and the size of the weights after each."""
    shape = MANY if backbone.endswith("_authors") else SHAPE
    source = windows(shape.channels)
    # The gate of AFOR opens after a hundred steps; here it must open within nine.
    opens_late = full_settings(optimizer, {}).get("warmup_steps", 0) > 2
    soon = {"warmup_steps": 2} if opens_late else {}
    settings = RunSettings(
        "numerics",
        make_splits("numerics", source.subjects).split(0, 0),
        optimizer,
        lr=3e-3,
        optimizer_settings=soon,
        weight_decay=1e-2,
        batch_size=16,
        max_epochs=3,
    )
    found: list[float] = []

    def watch(epoch, model):
        norm = sum(p.detach().double().square().sum().item() for p in model.parameters()) ** 0.5
        found.extend([epoch.train_loss, epoch.validation_loss, norm])

    train(settings, source, lambda: build_backbone(backbone, shape), watch)
    return found


@pytest.fixture(scope="module")
def record():
    if os.environ.get(RENEW):
        content = {
            "numerics": NUMERICS,
            "torch": torch.__version__.split("+")[0],
            "numbers": {f"{b} {o}": numbers(b, o) for b, o in TRAININGS},
        }
        RECORD.write_text(json.dumps(content, indent=1) + "\n")
    return json.loads(RECORD.read_text())


def test_the_record_belongs_to_the_present_version_of_the_numbers(record):
    assert record["numerics"] == NUMERICS, RAISED
    assert set(record["numbers"]) == {f"{b} {o}" for b, o in TRAININGS}, RAISED


@pytest.mark.parametrize(("backbone", "optimizer"), TRAININGS)
def test_training_gives_the_numbers_of_the_record(record, backbone, optimizer):
    if torch.__version__.split("+")[0] != record["torch"]:
        pytest.skip(f"the record was made with torch {record['torch']}, which has its own numbers")
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch draws dropout without MKL, which gives other masks")
    expected = record["numbers"][f"{backbone} {optimizer}"]
    found = numbers(backbone, optimizer)
    assert found == pytest.approx(expected, rel=TOLERANCE), CHANGED
