import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES, build_backbone, check_backbone


class Linear(nn.Module):
    def __init__(self, shape, *, width=3):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(shape.channels * shape.samples, shape.classes)

    def forward(self, signal):
        return self.layer(signal.flatten(1))


class Demanding(Linear):
    def __init__(self, shape, depth):
        super().__init__(shape)
        self.depth = depth


def keywords_only(*, width=1) -> nn.Module:
    return nn.Linear(width, width)


def make_linear(shape, *, width=3) -> "Linear":
    return Linear(shape, width=width)


def quoted(shape) -> "nn.Module":
    return Linear(shape)


def not_annotated(shape):
    raise AssertionError("was called")


def wrongly_annotated(shape) -> str:
    raise AssertionError("was called")


def no_module(shape) -> nn.Module:
    return "not a network"  # type: ignore[return-value]


def too_short(shape) -> nn.Module:
    raise ValueError(f"{shape.samples} samples are too few")


class Hidden(nn.Module):
    """A class whose signature cannot be read."""

    __signature__ = "unreadable"


@pytest.fixture
def user_module(monkeypatch):
    module = ModuleType("my_models")
    module.Linear, module.Demanding = Linear, Demanding  # type: ignore[attr-defined]
    module.NOT_CALLABLE = 3  # type: ignore[attr-defined]
    named = (make_linear, quoted, keywords_only, not_annotated, wrongly_annotated, no_module,
             too_short)  # fmt: skip
    for thing in named:
        setattr(module, thing.__name__, thing)
    module.opaque, module.Other = Hidden, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_models", module)


@pytest.fixture
def braindecode(monkeypatch):
    """Stand in for braindecode, whose models take these four keywords."""

    class ShallowNet(nn.Module):
        def __init__(self, n_chans=None, n_outputs=None, n_times=None, sfreq=None, drop_prob=0.5):
            super().__init__()
            self.arguments = (n_chans, n_outputs, n_times, sfreq, drop_prob)

    models = ModuleType("braindecode.models")
    models.ShallowNet = ShallowNet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "braindecode", ModuleType("braindecode"))
    monkeypatch.setitem(sys.modules, "braindecode.models", models)


REPAIR = {"nsal_dgat_authors": {"repair": True}}  # the published form refuses six channels


@pytest.mark.parametrize("name", BACKBONES)
def test_every_name_builds(name, six_channels):
    model = build_backbone(name, six_channels, **REPAIR.get(name, {}))
    assert isinstance(model, BACKBONES[name])


def test_weights_come_from_the_global_generator(six_channels):
    for name in BACKBONES:
        states = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            states.append(
                list(build_backbone(name, six_channels, **REPAIR.get(name, {})).parameters())
            )
        assert all(torch.equal(a, b) for a, b in zip(states[0], states[1], strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(states[0], states[2], strict=True))


def test_an_unknown_name_is_refused_with_the_nearest(six_channels):
    with pytest.raises(ConfigError, match=r"Unknown backbone 'egnet'. Did you mean 'eegnet'"):
        build_backbone("egnet", six_channels)


def test_an_unknown_setting_is_refused_with_the_nearest(six_channels):
    with pytest.raises(ConfigError, match=r"no setting 'drop_out'. Did you mean 'dropout'"):
        build_backbone("eegnet", six_channels, drop_out=0.5)
    with pytest.raises(ConfigError, match="Did you mean 'tokenizer'"):
        check_backbone("hslt", {"tokeniser": "de"})


def test_the_shape_cannot_be_set(six_channels):
    with pytest.raises(ConfigError, match="'shape' comes from the data set"):
        check_backbone("eegnet", {"shape": six_channels})


@pytest.mark.usefixtures("user_module")
def test_any_class_can_be_named(six_channels):
    model = build_backbone("my_models:Linear", six_channels, width=5)
    assert isinstance(model, Linear)
    assert model.width == 5
    assert model(torch.zeros(2, 6, 128)).shape == (2, 2)


@pytest.mark.usefixtures("user_module")
@pytest.mark.parametrize("name", ["my_models:make_linear", "my_models:quoted"])
def test_a_function_that_says_it_returns_a_network_can_be_named(name, six_channels):
    assert isinstance(build_backbone(name, six_channels), Linear)


@pytest.mark.usefixtures("user_module")
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("my_models:Linear", {"widht": 5}, "no setting 'widht'. Did you mean 'width'"),
        ("my_models:Linaer", {}, "has no 'Linaer'. Did you mean 'Linear'"),
        ("my_models:Demanding", {}, "needs the setting depth"),
        ("my_models:NOT_CALLABLE", {}, "of the type int"),
        ("my_models:keywords_only", {}, "takes no positional argument"),
        ("my_models:opaque", {}, "no readable signature"),
        ("my_models:no_module", {}, "built a str, expected a torch.nn.Module"),
        (
            "my_models:too_short",
            {},
            "'my_models:too_short' cannot be built for 6 channels, 128 samples at 128 Hz and 2 "
            "classes: ValueError: 128 samples are too few",
        ),
        ("no_such_module:Net", {}, '"no_such_module" cannot be imported.*PYTHONPATH'),
        ("my_models:", {}, "Unknown backbone 'my_models:'"),
        ("my_models:not_annotated", {}, "return annotation `-> torch.nn.Module`"),
        ("my_models:wrongly_annotated", {}, "return annotation `-> torch.nn.Module`"),
        ("my_models:Other", {}, "of the type type"),
        ("os:system", {}, "only what is known to make a network is called"),
        (".x:y", {}, "not of the form module:name"),
        ("a..b:y", {}, "not of the form module:name"),
        ("my_models:a:b", {}, "not of the form module:name"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_with_the_reason(
    name, settings, message, six_channels
):
    with pytest.raises(ConfigError, match=message):
        build_backbone(name, six_channels, **settings)


@pytest.mark.usefixtures("braindecode")
def test_a_braindecode_model_gets_the_input_in_its_own_words(six_channels):
    model = build_backbone("braindecode:ShallowNet", six_channels, drop_prob=0.1)
    assert model.arguments == (6, 2, 128, 128, 0.1)
    with pytest.raises(ConfigError, match="'n_chans' comes from the data set"):
        check_backbone("braindecode:ShallowNet", {"n_chans": 3})


@pytest.mark.usefixtures("braindecode")
def test_a_braindecode_model_that_wants_positions_gets_them(monkeypatch):
    pytest.importorskip("mne")

    class Positions(nn.Module):
        def __init__(self, n_chans, n_outputs, n_times, sfreq, chs_info=None):  # noqa: ARG002
            super().__init__()
            if chs_info is None:
                raise ValueError("chs_info not specified.")  # braindecode's words
            self.positions = np.array([channel["loc"][:3] for channel in chs_info])

    class Demands(Positions):
        def __init__(self, n_chans, n_outputs, n_times, sfreq, chs_info):
            super().__init__(n_chans, n_outputs, n_times, sfreq, chs_info)

    monkeypatch.setattr(sys.modules["braindecode.models"], "Positions", Positions, raising=False)
    monkeypatch.setattr(sys.modules["braindecode.models"], "Demands", Demands, raising=False)
    shape = InputShape(("C3", "Cz", "C4"), samples=250, rate_hz=250, classes=4)
    positions = build_backbone("braindecode:Positions", shape).positions
    assert np.array_equal(positions, build_backbone("braindecode:Demands", shape).positions)
    assert positions[0, 0] < positions[1, 0] < positions[2, 0]  # from left to right
    with pytest.raises(ConfigError, match="channel 0, channel 1 is no name of the 10-05 system"):
        build_backbone("braindecode:Positions", InputShape.unnamed(2, 250, 250, 4))


def test_a_missing_braindecode_is_named(six_channels, monkeypatch):
    monkeypatch.setitem(sys.modules, "braindecode", None)
    monkeypatch.delitem(sys.modules, "braindecode.models", raising=False)
    with pytest.raises(ConfigError, match=r"cannot be imported.*pip install braindecode"):
        build_backbone("braindecode:EEGNet", six_channels)
