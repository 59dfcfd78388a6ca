"""Several runs as one network give the numbers of runs alone, to the bit or to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from afor.bench.common.errors import CannotBundleError, ConfigError, TrainingError
from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.authors.eegnet import EEGNetAuthors
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape
from afor.bench.models.native.binding import unavailable_reason
from afor.bench.models.nsal_dgat import NSALDGAT
from afor.bench.models.stacked_eegnet import StackedEEGNet
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.training.loop import train, train_bundle
from afor.bench.training.record import RunRecord
from afor.bench.training.run_spec import (
    BY_TORCH_FUNC,
    Adaptation,
    Contamination,
    RunSettings,
)

SHAPE = InputShape.unnamed(4, samples=36, rate_hz=32, classes=2)
PAPER = ["adam", "adamw", "radam", "adamp", "sophia", "mars", "afor"]
# All optimizers of this package but those that need batches of one subject.
SHUFFLED = [name for name in OPTIMIZERS if "subject" not in name]
BY_SUBJECT = ["adam", "adamw_per_subject", "afor"]


compiled = pytest.mark.skipif(
    unavailable_reason() is not None, reason="the native EEGNet was not built"
)


class InDouble:
    """A network in float64 that takes float32 windows."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.double()

    def forward(self, signal):
        return super().forward(signal.double())


class StillBias(InDouble):
    """An EEGNet whose first batch norm has no bias.

    The batch norm behind it cancels that bias, whose gradient is rounding noise: Sophia steps by
    the sign of it, to either side.
    """

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.temporal_norm.bias.requires_grad_(False)


class Double(StillBias, EEGNet):
    pass


class DoubleAuthors(StillBias, EEGNetAuthors):
    pass


class DoubleGraph(InDouble, NSALDGAT):
    pass


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
        bundled=True,
    )


def together(runs, source, make_model) -> list[RunRecord | Exception]:
    """Train runs in one bundle and return how each ended."""
    ended = {}
    train_bundle(runs, source, make_model, lambda number, end, _: ended.update({number: end}))
    return [ended[number] for number in range(len(runs))]


def alone(run, source, make_model) -> RunRecord:
    """Train a run as it is without bundles."""
    return train(replace(run, bundled=False), source, make_model)


def numbers(value) -> list[float]:
    """Return all numbers of a record's part, in order."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list | tuple):
        return [number for part in value for number in numbers(part)]
    if hasattr(value, "__dataclass_fields__"):
        return numbers(list(vars(value).values()))
    return [float(value)] if isinstance(value, int | float) else []


def assert_equal(together: RunRecord, alone: RunRecord, tolerance: float = 1e-10) -> None:
    """Compare all numbers of two records, and what is said in words."""
    ours, theirs = together.numbers(), alone.numbers()
    assert (ours["status"], ours["steps"]) == (theirs["status"], theirs["steps"])
    for record in (ours, theirs):
        for trace in record["traces"].values():
            # The root of a difference: zero but for rounding before the controller wakes up.
            assert len(trace.pop("beta2_sd")) == len(trace["beta2"])
    for name, value in theirs.items():
        assert numbers(ours[name]) == pytest.approx(
            numbers(value), rel=tolerance, abs=tolerance, nan_ok=True
        ), name


NETWORKS = {
    "compiled": (True, lambda: DoubleAuthors(SHAPE)),
    "torch's operators": (True, lambda: DoubleAuthors(SHAPE, form="fast")),
    "torch.func": (BY_TORCH_FUNC, lambda: DoubleGraph(SHAPE, bands_hz=((2, 6), (6, 14)))),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("steps", [16, pytest.param(200, marks=pytest.mark.slow)])
def test_all_optimizers_of_the_paper_train_as_they_do_alone(
    steps, network, source, settings
) -> None:
    bundled, make_model = NETWORKS[network]
    settings = replace(settings, bundled=bundled, max_epochs=steps // 8)
    runs = [replace(settings, optimizer=name) for name in PAPER]
    records = together(runs, source, make_model)
    assert records[0].steps == steps
    for run, record in zip(runs, records, strict=True):
        assert_equal(record, alone(run, source, make_model))


def test_torch_func_keeps_early_stopping_diverging_and_failing_runs_apart(source, settings) -> None:
    settings = replace(settings, bundled=BY_TORCH_FUNC, weights="best", patience=1, max_epochs=4)
    runs = [
        replace(settings, optimizer="torch.optim:SGD", lr=1e200),
        replace(settings, lr=1e-6),
        replace(settings, optimizer=f"{__name__}:FailsLater"),
        replace(settings, optimizer="afor", clip_norm=0.5),
    ]
    make_model = lambda: DoubleGraph(SHAPE, bands_hz=((2, 6), (6, 14)))  # noqa: E731
    diverged, adam, failed, afor = together(runs, source, make_model)
    assert diverged.status == "diverged"
    assert isinstance(failed, ArithmeticError)
    assert adam.steps != afor.steps
    assert_equal(adam, alone(runs[1], source, make_model))
    assert_equal(afor, alone(runs[3], source, make_model))


def authors() -> DoubleAuthors:
    return DoubleAuthors(SHAPE, form="fast")


def original() -> Double:
    return Double(SHAPE, form="fast")


PROTOCOLS = {
    "early stopping": {"weights": "best", "patience": 2, "max_epochs": 8},
    "blocks": {"order": "blocks"},
    "stream": {"order": "stream", "normalization": "window", "passes": 2},
    "label bursts": {"contamination": Contamination("label_burst", share=0.3, length=2)},
    "amplitude": {"contamination": Contamination("amplitude", share=0.1, gain=5.0)},
    "adaptation": {"adaptation": Adaptation(passes=2)},
    "no constraints": {"constraints": False},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_that_of_the_run_alone(protocol, source, settings) -> None:
    settings = replace(settings, **PROTOCOLS[protocol])
    runs = [settings, replace(settings, optimizer="afor", lr=3e-2, clip_norm=0.5)]
    if protocol == "adaptation":
        runs.append(replace(settings, adaptation=Adaptation("reset", passes=2)))
    make_model = authors if protocol == "no constraints" else original
    for run, record in zip(runs, together(runs, source, make_model), strict=True):
        assert_equal(record, alone(run, source, make_model))


def test_a_run_that_diverges_or_fails_leaves_the_others_as_they_are(source, settings) -> None:
    runs = [
        replace(settings, optimizer="torch.optim:SGD", lr=1e200),
        settings,
        replace(settings, optimizer=f"{__name__}:FailsLater"),
        replace(settings, optimizer="mars"),
    ]
    diverged, adam, failed, mars = together(runs, source, original)
    assert diverged.status == "diverged"
    assert diverged.reason == alone(runs[0], source, original).reason
    assert isinstance(failed, ArithmeticError)
    assert_equal(adam, alone(runs[1], source, original))
    assert_equal(mars, alone(runs[3], source, original))


def test_a_run_that_draws_from_the_shared_generator_has_to_leave(source, settings) -> None:
    runs = [replace(settings, optimizer=f"{__name__}:Draws"), settings]
    drawing, adam = together(runs, source, original)
    assert isinstance(drawing, CannotBundleError)
    assert_equal(adam, alone(settings, source, original))
    (by_itself,) = together(runs[:1], source, original)
    assert_equal(by_itself, alone(runs[0], source, original))


class Draws(torch.optim.SGD):
    """Draws from the generator from which dropout draws."""

    def step(self, closure=None):
        torch.rand(3)
        return super().step(closure)


class FailsLater(torch.optim.SGD):
    """Raises in its fourth step."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == 4:
            raise ArithmeticError("no fourth step")
        return super().step(closure)


@pytest.mark.parametrize("form", ["auto", "fast"])
def test_the_bits_of_a_run_do_not_depend_on_its_companions(form, source, settings) -> None:
    runs = [replace(settings, optimizer=name) for name in ("adamw", "afor", "sophia")]
    make_model = lambda: EEGNetAuthors(SHAPE, form=form)  # noqa: E731
    for run, record in zip(runs, together(runs, source, make_model), strict=True):
        assert record.numbers() == train(run, source, make_model).numbers()


@compiled
@pytest.mark.parametrize(
    ("network", "channels", "samples", "names", "changes"),
    [
        (EEGNet, 4, 36, PAPER, {"adaptation": Adaptation(passes=1), "bundled": True}),
        (EEGNetAuthors, 3, 33, PAPER, {"batch_size": 23, "clip_norm": 0.5}),
        (EEGNet, 1, 35, BY_SUBJECT, {"threads": 2, "batch_size": 31, "order": "blocks"}),
        pytest.param(EEGNetAuthors, 3, 33, SHUFFLED, {"batch_size": 7}, marks=pytest.mark.slow),
    ],
)
def test_compiled_runs_have_the_bits_of_runs_by_themselves(
    network, channels, samples, names, changes, source, settings
) -> None:
    settings = replace(settings, **{"max_epochs": 1, "bundled": False, **changes})
    runs = [replace(settings, optimizer=name, lr=1e-3 * 2**i) for i, name in enumerate(names)]
    part = ArrayWindows(
        source.gather(np.arange(200))[:, :channels, :samples],
        source.labels,
        [source.subjects[code] for code in source.subject_codes],
        source.trial_ids,
    )
    shape = InputShape.unnamed(channels, samples=samples, rate_hz=32, classes=2)
    make_model = lambda: network(shape)  # noqa: E731
    for run, record in zip(runs, together(runs, part, make_model), strict=True):
        assert repr(record.numbers()) == repr(alone(run, part, make_model).numbers())


@pytest.mark.parametrize(("form", "width"), [("fast", 2), ("native", 1)])
def test_only_torch_operators_need_a_copy_of_a_run_by_itself(form, width) -> None:
    if form == "native" and unavailable_reason() is not None:
        pytest.skip("the native EEGNet was not built")
    stack = StackedEEGNet([EEGNet(SHAPE, form=form)])
    assert (stack.is_native, stack.width) == (form == "native", width)


def test_every_run_has_its_share_of_the_time(source, settings) -> None:
    records = together([settings, replace(settings, optimizer="afor")], source, original)
    for record in records:
        assert record.processor_s > 0
        assert sum(e.train_s + e.validation_s for e in record.history) < record.elapsed_s


def test_runs_that_do_not_belong_together_are_refused(source, settings) -> None:
    with pytest.raises(ConfigError, match="differ in more than the optimizer"):
        together([settings, replace(settings, batch_size=8)], source, original)
    with pytest.raises(ConfigError, match="bfloat16"):
        together([replace(settings, precision="bfloat16")], source, original)


def test_a_network_without_a_stacked_form_is_refused(source, settings) -> None:
    plain = lambda: EEGNet(SHAPE, form="plain")  # noqa: E731
    with pytest.raises(TrainingError, match="only EEGNets"):
        train(settings, source, plain)
    for outcome in together([replace(settings, bundled=False)] * 2, source, plain):
        assert isinstance(outcome, CannotBundleError)
