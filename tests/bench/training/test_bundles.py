"""Several EEGNets as one network: each run has the bits that it has by itself."""

import numpy as np
import pytest
import torch

from afor.bench.common.errors import CannotBundleError, ConfigError
from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.authors import EEGNetAuthors
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape
from afor.bench.models.native.binding import unavailable_reason
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.training.loop import train, train_bundle
from afor.bench.training.record import RunRecord
from afor.bench.training.run_spec import Adaptation, Contamination, RunSettings

SHAPE = InputShape.unnamed(4, samples=36, rate_hz=32, classes=2)
PAPER = ["adam", "adamw", "radam", "adamp", "sophia", "mars", "afor"]
ALL = list(OPTIMIZERS)
BY_SUBJECT = ["adam", f"{__name__}:KnowsSubject", "afor"]

pytestmark = pytest.mark.skipif(
    unavailable_reason() is not None, reason="the native EEGNet was not built"
)


class Double(EEGNet):
    """An EEGNet in float64 that takes float32 windows."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.double()

    def forward(self, signal):
        return super().forward(signal.double())


@pytest.fixture(scope="module")
def source() -> ArrayWindows:
    rng = np.random.default_rng(3)
    subject = np.repeat(np.arange(5), 40)
    trial = np.arange(200) // 4
    labels = trial % 2
    windows = rng.normal(size=(200, 4, 36))
    windows[:, 0] *= 1 + labels[:, None]
    return ArrayWindows(windows, labels, [f"s{i}" for i in subject], trial)


@pytest.fixture
def settings(source) -> RunSettings:
    return RunSettings(
        dataset="toy",
        split=make_splits("toy", source.subjects).split(0, 0),
        optimizer="adam",
        lr=1e-3,
        batch_size=16,
        max_epochs=3,
        weights="last",
    )


def together(runs, source, make_model) -> list[RunRecord | Exception]:
    """Train runs in one bundle and return how each ended."""
    ended = {}
    train_bundle(runs, source, make_model, lambda number, end, _: ended.update({number: end}))
    return [ended[number] for number in range(len(runs))]


def assert_bits(records, runs, source, make_model) -> None:
    """Compare the numbers of runs of a bundle with those of each by itself."""
    for run, record in zip(runs, records, strict=True):
        assert repr(record.numbers()) == repr(train(run, source, make_model).numbers())


def original() -> EEGNet:
    return EEGNet(SHAPE)


def authors() -> EEGNetAuthors:
    return EEGNetAuthors(SHAPE)


def double() -> Double:
    return Double(SHAPE)


PROTOCOLS = {
    "early stopping": {"weights": "best", "patience": 2, "max_epochs": 8},
    "blocks": {"order": "blocks"},
    "stream": {"order": "stream", "normalization": "window", "passes": 2},
    "label bursts": {"contamination": Contamination(kind="label_burst", share=0.3, length=2)},
    "amplitude": {"contamination": Contamination(kind="amplitude", share=0.1, gain=5.0)},
    "adaptation": {"adaptation": Adaptation(passes=2)},
    "no constraints": {"constraints": False},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("make_model", [original, authors, double])
def test_every_protocol_is_that_of_the_run_alone(protocol, make_model, source, settings) -> None:
    settings = settings.changed(**PROTOCOLS[protocol])
    runs = [
        settings,
        settings.changed(optimizer="afor", lr=3e-2, clip_norm=0.5),
        settings.changed(schedule="one_cycle", decay_exempt=True),
    ]
    if protocol == "adaptation":
        runs.append(settings.changed(adaptation=Adaptation(state="reset", passes=2)))
    assert_bits(together(runs, source, make_model), runs, source, make_model)


def test_a_run_that_diverges_or_fails_leaves_the_others_as_they_are(source, settings) -> None:
    runs = [
        settings.changed(optimizer="torch.optim:SGD", lr=1e30),
        settings,
        settings.changed(optimizer=f"{__name__}:FailsLater"),
        settings.changed(optimizer="mars"),
    ]
    diverged, adam, failed, mars = together(runs, source, original)
    assert diverged.status == "diverged"
    assert diverged.reason == train(runs[0], source, original).reason
    assert isinstance(failed, ArithmeticError)
    assert_bits([adam, mars], [runs[1], runs[3]], source, original)


def test_a_run_that_draws_from_the_shared_generator_has_to_leave(source, settings) -> None:
    runs = [settings.changed(optimizer=f"{__name__}:Draws"), settings]
    drawing, adam = together(runs, source, original)
    assert isinstance(drawing, CannotBundleError)
    assert_bits([adam], [settings], source, original)
    assert_bits(together(runs[:1], source, original), runs[:1], source, original)


class Draws(torch.optim.SGD):
    """Draws from the generator from which dropout draws."""

    def step(self, closure=None):
        torch.rand(3)
        return super().step(closure)


class KnowsSubject(torch.optim.SGD):
    """Steps by another rate for each subject."""

    def for_subject(self, subject):
        self.param_groups[0]["lr"] = 1e-3 * (1 + subject)


class FailsLater(torch.optim.SGD):
    """Raises in its fourth step."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == 4:
            raise ArithmeticError("no fourth step")
        return super().step(closure)


@pytest.mark.parametrize(
    ("network", "channels", "samples", "names", "changes"),
    [
        (EEGNet, 4, 36, PAPER, {"adaptation": Adaptation(passes=1)}),
        (EEGNetAuthors, 3, 33, PAPER, {"batch_size": 23, "clip_norm": 0.5}),
        (EEGNet, 1, 35, BY_SUBJECT, {"threads": 2, "batch_size": 31, "order": "blocks"}),
        pytest.param(
            EEGNetAuthors, 3, 33, list(OPTIMIZERS), {"batch_size": 7}, marks=pytest.mark.slow
        ),
    ],
)
def test_every_optimizer_steps_as_it_does_alone(
    network, channels, samples, names, changes, source, settings
) -> None:
    settings = settings.changed(**{"max_epochs": 1, **changes})
    runs = [settings.changed(optimizer=name, lr=1e-3 * 2**i) for i, name in enumerate(names)]
    part = ArrayWindows(
        source.gather(np.arange(200))[:, :channels, :samples],
        source.labels,
        [source.subjects[code] for code in source.subject_codes],
        source.trial_ids,
    )
    shape = InputShape.unnamed(channels, samples=samples, rate_hz=32, classes=2)
    make_model = lambda: network(shape)  # noqa: E731
    assert_bits(together(runs, part, make_model), runs, part, make_model)


def test_every_run_has_its_share_of_the_time(source, settings) -> None:
    records = together([settings, settings.changed(optimizer="afor")], source, original)
    for record in records:
        assert record.processor_s > 0
        assert sum(e.train_s + e.validation_s for e in record.history) < record.elapsed_s


def test_runs_that_do_not_belong_together_are_refused(source, settings) -> None:
    with pytest.raises(ConfigError, match="differ in more than the optimizer"):
        together([settings, settings.changed(batch_size=8)], source, original)
    with pytest.raises(ConfigError, match="bfloat16"):
        together([settings.changed(precision="bfloat16")] * 2, source, original)


@pytest.mark.parametrize("form", ["plain", "fast"])
def test_a_network_that_is_not_compiled_has_to_be_trained_by_itself(form, source, settings) -> None:
    for outcome in together([settings] * 2, source, lambda: EEGNet(SHAPE, form=form)):
        assert isinstance(outcome, CannotBundleError)
