"""Build an optimizer from its name and settings; check both before anything runs.

A name is one of the table in `registry`, or `module:Class` of any optimizer that can be imported
(`pytorch_optimizer:Lion`, `mylab.optim:Mine`).
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from afor.bench.common.errors import ConfigError
from afor.bench.common.module_search import import_named
from afor.bench.common.parameter_checks import check_names, check_values
from afor.bench.common.suggest import did_you_mean
from afor.bench.optimizers.registry import OPTIMIZERS, RegisteredOptimizer

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

# Arguments that come from the study; they cannot be settings of an optimizer.
RESERVED = ("lr", "weight_decay", "seed")
QUOTE = '"'  # around names in messages


@runtime_checkable
class AfterStep(Protocol):
    """An optimizer that needs the batch again after its step, such as Sophia.

    The training loop calls this after every `step()`. It must leave the gradients, the buffers of
    the model and the global random generators as they were, so that runs stay paired.
    """

    def after_step(self, model: "torch.nn.Module", inputs: "torch.Tensor") -> None:
        """Process the inputs of the step just taken."""


@runtime_checkable
class BeforeStep(Protocol):
    """An optimizer that needs a batch before its forward pass, such as Sophia in its own script.

    The training loop calls this before every forward pass, under the same conditions as
    `AfterStep`.
    """

    def before_step(self, model: "torch.nn.Module", inputs: "torch.Tensor") -> None:
        """Process the inputs of the next step."""


@runtime_checkable
class ForSubject(Protocol):
    """An optimizer that must know whose windows a batch holds; every batch has one subject.

    The training loop calls this before every `step()`.
    """

    def for_subject(self, subject: int) -> None:
        """Take the next step on windows of this subject, a number."""


@runtime_checkable
class TwoModes(Protocol):
    """An optimizer with different weights for training and evaluation (schedule-free)."""

    def train(self) -> None:
        """Set the parameters to the weights for training."""

    def eval(self) -> None:
        """Set the parameters to the weights for evaluation."""


def build_optimizer(
    name: str,
    model: "torch.nn.Module",
    lr: float,
    weight_decay: float,
    *,
    seed: int = 0,
    decay_exempt: bool = False,
    **settings: object,
) -> "Optimizer":
    """Build an optimizer over all parameters of a model.

    Args:
        name: A name of the table in `registry` (see `afor optimizers`), or ``module:Class``.
        model: The model.
        lr: Learning rate.
        weight_decay: Weight decay.
        seed: Seed, passed to optimizers that take one.
        decay_exempt: Leave parameters of one dimension, biases and the scales and shifts of norms,
            without weight decay.
        **settings: Further arguments of the optimizer; they override those of the table.

    Returns:
        The optimizer.

    Raises:
        ConfigError: The name, a setting or a value is not valid.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 2)
        >>> type(build_optimizer("mars", model, lr=1e-3, weight_decay=1e-4, gamma=0.05)).__name__
        'MARS'
    """
    tensors = list(model.named_parameters())
    return _construct(name, tensors, lr, weight_decay, seed, settings, decay_exempt=decay_exempt)


def check_optimizer(name: str, settings: Mapping[str, object], weight_decay: float = 0.0) -> None:
    """Check that an optimizer can be built, by building it on a small tensor.

    Of an entry of the table without settings of the study only the arguments are checked: building
    the first optimizer of a process imports torch's compiler, which takes seconds. The arguments
    are those of `build_optimizer`, and so are the errors.
    """
    if name in OPTIMIZERS and not settings:
        _arguments(name, 1e-3, weight_decay, 0, settings)
        return
    import torch

    by_tensor = settings.get("beta2_by_tensor")
    names = list(by_tensor) if isinstance(by_tensor, Mapping) and by_tensor else ["weight"]
    tensors = [(str(tensor), torch.nn.Parameter(torch.zeros(2, 2))) for tensor in names]
    _construct(name, tensors, 1e-3, weight_decay, 0, settings)


def full_settings(name: str, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the table, overridden by those of the study; lists become tuples."""
    entry = find_entry(name)
    merged = {**(entry.settings if entry else {}), **settings}
    return {key: tuple(v) if isinstance(v, list) else v for key, v in merged.items()}


def find_entry(name: str) -> RegisteredOptimizer | None:
    """Return an entry of the table, or None for a `module:Class`; raise ConfigError otherwise."""
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    if ":" in name:
        return None
    raise ConfigError(
        f'optimizer "{name}" is not known.{did_you_mean(name, OPTIMIZERS, QUOTE)} '
        f"Accepted: a name that `afor optimizers` lists, or module:Class."
    )


def accepted_settings(name: str) -> list[inspect.Parameter]:
    """Return the arguments that a study may set for this optimizer."""
    _, *others = inspect.signature(load_class(name)).parameters.values()  # the first takes params
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p for p in others if p.name not in RESERVED and p.kind not in variadic]


def load_class(name: str) -> "type[Optimizer]":
    """Import the class of an optimizer, without calling it; raise ConfigError if it is none."""
    from torch.optim import Optimizer

    entry = find_entry(name)
    target = entry.target if entry else name
    module_name, _, class_name = target.partition(":")
    module = import_named(target, "optimizer")
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, Optimizer)):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
        ]
        raise ConfigError(
            f'optimizer "{name}": "{module_name}" has no optimizer class "{class_name}".'
            f"{did_you_mean(class_name, classes, QUOTE)} "
            f"Accepted: a subclass of torch.optim.Optimizer."
        )
    return cls


def _construct(
    name: str,
    tensors: "list[tuple[str, torch.nn.Parameter]]",
    lr: float,
    weight_decay: float,
    seed: int,
    settings: Mapping[str, object],
    *,
    decay_exempt: bool = False,
) -> "Optimizer":
    cls = load_class(name)
    arguments = _arguments(name, lr, weight_decay, seed, settings)
    # Other optimizers expect plain tensors, without names.
    takes_names = "beta2_by_tensor" in inspect.signature(cls).parameters
    params: list[Any] = [*tensors] if takes_names else [tensor for _, tensor in tensors]
    if decay_exempt and weight_decay:
        is_exempt = [tensor.ndim <= 1 for _, tensor in tensors]
        decayed = [given for given, exempt in zip(params, is_exempt, strict=True) if not exempt]
        exempted = [given for given, exempt in zip(params, is_exempt, strict=True) if exempt]
        groups = [(decayed, {}), (exempted, {"weight_decay": 0.0})]
        params = [{"params": members, **changes} for members, changes in groups if members]
    try:
        return cls(params, **arguments)
    except Exception as error:
        raise ConfigError(f'optimizer "{name}" refuses its settings: {error}') from error


def _arguments(
    name: str, lr: float, weight_decay: float, seed: int, settings: Mapping[str, object]
) -> dict[str, Any]:
    """Return the arguments of an optimizer besides the parameters, checked."""
    cls = load_class(name)
    merged = full_settings(name, settings)
    _check_keys(name, cls, merged)
    if name in OPTIMIZERS:  # annotations of other code need not be exact
        check_values(f'optimizer "{name}"', cls.__init__, merged)
    accepted = inspect.signature(cls).parameters
    arguments: dict[str, Any] = {**merged, "lr": lr}
    if "seed" in accepted:
        arguments["seed"] = seed
    if "weight_decay" in accepted:
        arguments["weight_decay"] = weight_decay
    elif weight_decay:
        raise ConfigError(
            f'optimizer "{name}" takes no weight_decay, but the study asks for {weight_decay:g}. '
            f"Set weight_decay = 0 for it; it would be ignored otherwise."
        )
    return arguments


def _check_keys(name: str, cls: "type[Optimizer]", settings: Mapping[str, object]) -> None:
    parameters = inspect.signature(cls).parameters
    allowed = {p.name: p for p in accepted_settings(name)}
    for key in settings:
        if key in RESERVED:
            raise ConfigError(
                f'optimizer "{name}": {key} is set by the study itself and cannot be a setting. '
                f"Remove it from the settings of this optimizer."
            )
    # A class with **kwargs would accept misspelled keys: only named parameters count.
    check_names(f'optimizer "{name}"', settings, sorted(allowed), QUOTE)
    missing = [p.name for p in allowed.values() if p.default is p.empty and p.name not in settings]
    if missing or "lr" not in parameters:
        request = ", ".join(missing) if missing else "no learning rate"
        raise ConfigError(
            f'optimizer "{name}" cannot be built from a list of parameters, lr and weight_decay: '
            f"it wants {request}. Give the missing settings, or wrap it in a class of your own."
        )
    closure = inspect.signature(cls.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ConfigError(
            f'optimizer "{name}" must evaluate the loss several times in a step (its step needs '
            f"a closure), which a study of one gradient per batch cannot compare. Choose another."
        )
