"""The numbers that training gives are part of a run's key: they may not change in silence.

Two processors add in different orders, so their float32 trainings differ, by more than the last
digits: the bias of EEGNet's first batch norm has a gradient of exactly zero (the next batch norm
takes every constant away); what float32 computes in its place is rounding, which Adam scales
to steps of full size. So nothing here compares float32 with numbers of another machine.

1. Training in float64 is compared with the record. There the same effect is below 1e-6 on every
   processor, while another seed, batch order, default or formula is far above `TOLERANCE`.
2. Training in float32 is compared with float64 on the same machine. What rounding may do is
   computed first: see `rounding_spread`.
3. Bits are compared where bits are promised: two trainings on one machine.
"""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES, build_backbone
from afor.bench.optimizers.build import full_settings
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.study.plan import NUMERICS
from afor.bench.training.loop import train
from afor.bench.training.run_spec import RunSettings

RECORD = Path(__file__).with_name("numerics.json")
RENEW = "AFOR_RENEW_NUMERICS"
# Of float64, relative. Between ATen's, oneDNN's and MKL's kernels with and without AVX2 the largest
# difference of a number was 2.1e-7; moving the initial weights by 2**-24 changed none by over 6e-7.
TOLERANCE = 3e-6
# Of float32: what gradients with NOISE times the rounding errors of the first step do in REPEATS
# trainings in float64, times MARGIN. Measured with the same kernels, float32 is away from float64
# by at most 2.4 times that, so 10 leaves a factor of four for processors that were not seen.
NOISE, REPEATS, MARGIN = 4.0, 2, 10.0
FLOAT32 = 1e-6  # a sum of 48 losses in float32
CHANNELS = ("Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2")
SHAPE = InputShape(CHANNELS, samples=128, rate_hz=128.0, classes=3)
# The AFOR authors' HSLT and NSAL-DGAT do not take ten channels.
MANY = InputShape.unnamed(22, samples=128, rate_hz=128.0, classes=3)
# Every backbone with AdamW, and every optimizer with EEGNet. Muon makes its step orthogonal in
# bfloat16, which turns the last bit of a float64 into one of bfloat16.
NOT_RECORDED = ("adamw", "muon")
TRAININGS = [
    *((backbone, "adamw") for backbone in BACKBONES),
    *(("eegnet", optimizer) for optimizer in OPTIMIZERS if optimizer not in NOT_RECORDED),
]

CHANGED = f"""
The same settings now train to other numbers, so runs in stores of users no longer repeat. If that
was not meant, undo it. If it was: raise NUMERICS in src/afor/bench/study/plan.py, so that old and
new runs never share a key, say so in CHANGELOG.md, and write the record anew with
    {RENEW}=1 python -m pytest tests/bench/test_numerics.py
"""
RAISED = f"""
NUMERICS in src/afor/bench/study/plan.py is another than the one the record was made with. Write the
record anew with
    {RENEW}=1 python -m pytest tests/bench/test_numerics.py
and look at what has changed in tests/bench/numerics.json.
"""
IN_FLOAT32_ALONE = """
Training in float32, which is what users run, no longer follows the same training in float64: some
number is further away than rounding explains.
"""


class Windows(ArrayWindows):
    """Windows that are read in any precision; the values are those of float32."""

    dtype = np.float32

    def gather(self, indices):
        return super().gather(indices).astype(self.dtype)


def windows(dtype, channels: int) -> Windows:
    """Make windows of four subjects; three classes with a rhythm each."""
    rng = np.random.default_rng(2)
    subject = np.repeat(np.arange(4), 24)
    labels = np.tile(np.arange(3), 32)
    time_s = np.arange(128) / 128.0
    rhythm = np.sin(2 * np.pi * (6.0 + 5.0 * labels[:, None]) * time_s)
    data = rng.normal(size=(96, channels, 128)) + 0.7 * rhythm[:, None]
    source = Windows(data, labels, [f"s{i}" for i in subject])
    source.dtype = dtype
    return source


def settings_of(optimizer: str) -> RunSettings:
    # The gate of AFOR opens after a hundred steps; here it must open within nine.
    opens_late = full_settings(optimizer, {}).get("warmup_steps", 0) > 2
    return RunSettings(
        dataset="numerics",
        split=make_splits("numerics", ["s0", "s1", "s2", "s3"]).split(0, 0),
        optimizer=optimizer,
        lr=3e-3,
        optimizer_settings={"warmup_steps": 2} if opens_late else {},
        weight_decay=1e-2,
        batch_size=16,
        max_epochs=3,
    )


class Training:
    """Three epochs: losses and the size of the weights after each, and the first gradients."""

    def __init__(
        self,
        backbone: str,
        settings: RunSettings,
        dtype=np.float64,
        noise: Mapping[str, torch.Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        self.numbers: list[float] = []
        self.first_gradients: dict[str, torch.Tensor] = {}
        repetition = torch.Generator().manual_seed(seed)

        shape = MANY if backbone.endswith("_authors") else SHAPE

        def make_model():
            model = build_backbone(backbone, shape)  # drawn in float32, whatever follows
            if dtype == np.float64:
                model = model.double()
            for name, param in model.named_parameters() if noise else ():
                param.register_hook(
                    lambda grad, size=noise[name]: grad.addcmul(
                        size, torch.randn(grad.shape, generator=repetition, dtype=grad.dtype)
                    )
                )
            return model

        train(settings, windows(dtype, shape.channels), make_model, self.watch, self.watch_step)

    def watch(self, epoch, model):
        norm = sum(p.detach().double().square().sum().item() for p in model.parameters()) ** 0.5
        self.numbers.extend([epoch.train_loss, epoch.validation_loss, norm])

    def watch_step(self, fit, _batch, _loss):
        if not self.first_gradients:
            self.first_gradients = {
                name: param.grad.double() for name, param in fit.model.named_parameters()
            }


@functools.cache
def trained(backbone: str, optimizer: str, dtype) -> Training:
    """Train once for all tests that look at it."""
    return Training(backbone, settings_of(optimizer), dtype)


def difference(numbers, expected) -> float:
    """Return the largest relative difference."""
    return float(np.max(np.abs(np.divide(numbers, expected) - 1.0)))


def rounding_spread(
    backbone: str, settings: RunSettings, single: Training, double: Training
) -> float:
    """Return how far errors in the gradients, of the size that float32 makes, move the numbers.

    The errors of the first step are known element by element: the weights are still the same, so
    they are the gradients in float32 less those in float64. Errors of that size, at random and in
    every step, are added to trainings in float64.
    """
    exact = double.first_gradients
    errors = {name: (single.first_gradients[name] - exact[name]).abs() for name in exact}
    largest = max(grad.abs().max() for grad in exact.values())
    for name, error in errors.items():
        assert error.max() < 1e-5 * largest, f"{name}: more than rounding in the first gradient"
    noise = {name: NOISE * error for name, error in errors.items()}
    return max(
        difference(Training(backbone, settings, noise=noise, seed=seed).numbers, double.numbers)
        for seed in range(REPEATS)
    )


@pytest.fixture(scope="module")
def record():
    if os.environ.get(RENEW):
        numbers = {f"{b} {o}": Training(b, settings_of(o)).numbers for b, o in TRAININGS}
        content = {
            "numerics": NUMERICS,
            "torch": torch.__version__.split("+")[0],
            "float64": numbers,
        }
        RECORD.write_text(json.dumps(content, indent=1) + "\n")
    return json.loads(RECORD.read_text())


def needs_the_same_draws(record) -> None:
    if torch.__version__.split("+")[0] != record["torch"]:
        pytest.skip(f"the record was made with torch {record['torch']}, which has its own numbers")
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch repetitions dropout without MKL, which gives other masks")


def test_the_record_belongs_to_the_present_version_of_the_numbers(record):
    assert record["numerics"] == NUMERICS, RAISED
    assert set(record["float64"]) == {f"{b} {o}" for b, o in TRAININGS}, RAISED


@pytest.mark.parametrize(("backbone", "optimizer"), TRAININGS)
def test_training_gives_the_numbers_of_the_record_and_float32_follows(record, backbone, optimizer):
    settings = settings_of(optimizer)
    double, single = (trained(backbone, optimizer, dtype) for dtype in (np.float64, np.float32))
    allowed = MARGIN * rounding_spread(backbone, settings, single, double) + FLOAT32
    # A loss near zero is a difference of numbers near one: its error is absolute.
    close = pytest.approx(double.numbers, rel=allowed, abs=FLOAT32)
    assert single.numbers == close, IN_FLOAT32_ALONE
    needs_the_same_draws(record)
    expected = record["float64"][f"{backbone} {optimizer}"]
    assert double.numbers == pytest.approx(expected, rel=TOLERANCE, abs=1e-9), CHANGED


@pytest.mark.parametrize(
    ("backbone", "optimizer"), [*((name, "adamw") for name in BACKBONES), ("eegnet", "afor")]
)
def test_a_training_in_float32_repeats_bit_by_bit(backbone, optimizer):
    again = Training(backbone, settings_of(optimizer), np.float32)
    assert again.numbers == trained(backbone, optimizer, np.float32).numbers


CHANGES = {
    "another study seed": {"study_seed": 1},
    "another batch size": {"batch_size": 12},
    "a learning rate 0.1 % higher": {"lr": 3.003e-3},
    "a weight decay 10 % higher": {"weight_decay": 1.1e-2},
    "no constraints": {"constraints": False},
    "another normalization": {"normalization": "window"},
    "another beta1": {"optimizer_settings": {"betas": (0.89, 0.999)}},
    "another beta2": {"optimizer_settings": {"betas": (0.9, 0.998)}},
    "another eps": {"optimizer_settings": {"eps": 1e-5}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_training_is_larger_than_the_tolerance(record, change):
    needs_the_same_draws(record)
    changed = Training("eegnet", settings_of("adamw").changed(**CHANGES[change]))
    assert difference(changed.numbers, record["float64"]["eegnet adamw"]) > 2 * TOLERANCE


def test_a_change_in_float32_alone_is_larger_than_rounding():
    settings = settings_of("afor")
    single, double = (trained("eegnet", "afor", dtype) for dtype in (np.float32, np.float64))
    allowed = MARGIN * rounding_spread("eegnet", settings, single, double) + FLOAT32
    changed = Training("eegnet", settings.changed(lr=1.01 * settings.lr), np.float32)
    assert difference(changed.numbers, double.numbers) > 2 * allowed
