"""Build a network from its name and settings; check both before anything is built."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from afor.bench.common.errors import ConfigError
from afor.bench.common.module_search import ADVICE, import_named, returns_instance
from afor.bench.common.parameter_checks import check_names, check_values
from afor.bench.common.suggest import did_you_mean
from afor.bench.models.acrnn import ACRNN
from afor.bench.models.authors import ACRNNAuthors, EEGNetAuthors, HSLTAuthors, NSALDGATAuthors
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.hslt import HSLT
from afor.bench.models.input_shape import InputShape
from afor.bench.models.nsal_dgat import NSALDGAT
from afor.bench.models.regions import standard_montage

BACKBONES: dict[str, type[nn.Module]] = {
    "eegnet": EEGNet,
    "acrnn": ACRNN,
    "nsal_dgat": NSALDGAT,
    "hslt": HSLT,
    # The same four networks as the AFOR authors released them.
    "eegnet_authors": EEGNetAuthors,
    "acrnn_authors": ACRNNAuthors,
    "nsal_dgat_authors": NSALDGATAuthors,
    "hslt_authors": HSLTAuthors,
}

# Accepted return annotations of a function that imports torch for type checkers only.
MODULE_NAMES = ("Module", "nn.Module", "torch.nn.Module")
BRAINDECODE_ADVICE = (
    "Install braindecode in this environment (pip install braindecode) and check that "
    "`import braindecode.models` works."
)
# Networks whose own code gives other bits than it once did, with the version of their numbers. It
# is part of a run's key, so that old and new runs never share one; the runs of other networks keep
# theirs. EEGNet 2: the native form, which adds in another order; 3: exact gradients of the first
# norm. NSAL-DGAT 2: contiguous maps, and a maximum whose gradient goes to one place.
NETWORK_NUMERICS: dict[str, int] = {
    "eegnet": 3,
    "eegnet_authors": 3,
    "nsal_dgat": 2,
    "nsal_dgat_authors": 2,
}


def build_backbone(name: str, shape: InputShape, **settings: Any) -> nn.Module:
    """Build a network that maps (batch, channels, samples) to logits (batch, classes).

    Weights are drawn from torch's global generator: seed it first.

    Args:
        name: A key of ``BACKBONES``, ``braindecode:Name``, or ``module:name`` of a subclass of
            ``nn.Module`` or of a Python function annotated to return one, which is called as
            ``name(shape, **settings)``. Nothing else is called.
        shape: Shape of a window.
        **settings: Settings of the network.

    Returns:
        The network.

    Raises:
        ConfigError: The name, a setting or the shape cannot be used.

    Example:
        >>> shape = InputShape.unnamed(22, samples=250, rate_hz=250, classes=4)
        >>> sum(p.numel() for p in build_backbone("eegnet", shape, dropout=0.5).parameters())
        2396
    """
    factory, inputs = _resolve(name, shape)
    _check_settings(name, factory, inputs, settings)
    try:
        model = factory(shape, **settings) if inputs is None else factory(**inputs, **settings)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        if name in BACKBONES:
            raise
        if inputs is None or "chs_info" not in str(error) or "chs_info" in settings:
            raise ConfigError(
                f"Backbone {name!r} cannot be built for {shape.channels} channels, {shape.samples} "
                f"samples at {shape.rate_hz:g} Hz and {shape.classes} classes: "
                f"{type(error).__name__}: {error}"
            ) from error
        # It wants the electrodes, or cannot do without.
        model = factory(**inputs, **settings, chs_info=electrodes(name, shape))
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"Backbone {name!r} built a {type(model).__name__}, expected a torch.nn.Module."
        )
    return model


def electrodes(name: str, shape: InputShape) -> list[Any]:
    """Return the channels with their positions as MNE describes them, for networks that want them.

    Raises ConfigError if a channel has no name of the 10-05 system.

    Example:
        >>> shape = InputShape(("C3", "Cz", "C4"), samples=250, rate_hz=250, classes=4)
        >>> [channel["ch_name"] for channel in electrodes("braindecode:Labram", shape)]
        ['C3', 'Cz', 'C4']
    """
    import mne

    positions = standard_montage()
    unknown = [n for n in shape.channel_names if n not in positions.ch_names]
    if unknown:
        raise ConfigError(
            f"Backbone {name!r} wants the positions of the electrodes, and "
            f"{', '.join(unknown[:5])} is no name of the 10-05 system."
            f"{did_you_mean(unknown[0], positions.ch_names)} Rename the channels of the data."
        )
    info = mne.create_info(list(shape.channel_names), shape.rate_hz, "eeg", verbose="error")
    channels: list[Any] = info.set_montage(positions, verbose="error")["chs"]
    return channels


def import_braindecode() -> list[str]:
    """Return the names of the networks of braindecode; raise ConfigError if it is not there."""
    models = import_named("braindecode.models:EEGNet", "backbone", BRAINDECODE_ADVICE)
    return sorted(
        key
        for key, value in vars(models).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and not key.startswith("_")
    )


def check_backbone(name: str, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if the name or a setting is not valid, without building the network."""
    factory, inputs = _resolve(name, InputShape.unnamed(1, samples=1, rate_hz=1, classes=2))
    _check_settings(name, factory, inputs, settings)


_Inputs = dict[str, Any] | None


def _resolve(name: str, shape: InputShape) -> tuple[Callable[..., Any], _Inputs]:
    """Return the factory and its keywords for the input, None if it takes an `InputShape`."""
    if name in BACKBONES:
        return BACKBONES[name], None
    module, separator, attribute = name.partition(":")
    if not (separator and module and attribute):
        raise ConfigError(
            f"Unknown backbone {name!r}.{did_you_mean(name, BACKBONES)} Accepted: "
            f"{', '.join(BACKBONES)}, module:Class, braindecode:Name."
        )
    if module == "braindecode":
        return _import_attribute(name, "braindecode.models", attribute), {
            "n_chans": shape.channels,
            "n_outputs": shape.classes,
            "n_times": shape.samples,
            "sfreq": shape.rate_hz,
        }
    return _import_attribute(name, module, attribute), None


def _import_attribute(name: str, module: str, attribute: str) -> Callable[..., Any]:
    advice = BRAINDECODE_ADVICE if module == "braindecode.models" else ADVICE
    imported = import_named(f"{module}:{attribute}", "backbone", advice)
    if not hasattr(imported, attribute):
        raise ConfigError(
            f"Backbone {name!r}: module {module!r} has no {attribute!r}."
            f"{did_you_mean(attribute, dir(imported))}"
        )
    factory: Callable[..., Any] = getattr(imported, attribute)
    is_class = isinstance(factory, type) and issubclass(factory, nn.Module)
    if not is_class and not returns_instance(factory, nn.Module, MODULE_NAMES):
        raise ConfigError(
            f"Backbone {name!r} cannot be used: it is of the type {type(factory).__name__}, and "
            f"only what is known to make a network is called. Accepted: a subclass of "
            f"torch.nn.Module, or a Python function with the return annotation "
            f"`-> torch.nn.Module`."
        )
    return factory


def _check_settings(
    name: str, factory: Callable[..., Any], inputs: _Inputs, settings: Mapping[str, Any]
) -> None:
    """Raise ConfigError for an unknown, missing or reserved setting, and for a wrong value."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"Backbone {name!r} has no readable signature, so its settings cannot be checked. "
            f"Wrap it in a Python function with named parameters."
        ) from error
    Parameter = inspect.Parameter
    open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    variadic = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    named = {key: p for key, p in parameters.items() if p.kind not in variadic}
    reserved = set(inputs or ())
    if inputs is None:
        first = next(iter(parameters.values()), None)
        if first is None or first.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
            raise ConfigError(
                f"Backbone {name!r} takes no positional argument; it must be callable with the "
                f"InputShape first and its settings as keywords."
            )
        reserved = {first.name}
    accepted = [key for key in named if key not in reserved]
    for key in settings:
        if key in reserved:
            raise ConfigError(
                f"Backbone {name!r}: {key!r} comes from the data set and cannot be set."
            )
    if not open_ended:
        check_names(f"Backbone {name!r}", settings, accepted)
    supplied = settings if inputs is None else {*settings, "chs_info"}  # see `electrodes`
    missing = [k for k in accepted if named[k].default is Parameter.empty and k not in supplied]
    if missing:
        raise ConfigError(f"Backbone {name!r} needs the setting {', '.join(missing)}.")
    if name in BACKBONES:  # annotations of other code need not be exact
        check_values(f"Backbone {name!r}", BACKBONES[name].__init__, settings)
