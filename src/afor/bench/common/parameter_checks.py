"""Check settings against a function: their names, and values against its type annotations."""

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean

SHOWN_LENGTH = 60


def check_names(
    owner: str, names: Iterable[str], accepted: Sequence[str], quote: str = "'"
) -> None:
    """Raise ConfigError, with the nearest accepted name, for a setting that does not exist.

    >>> check_names('optimizer "adam"', ["betas"], ["betas", "eps"])
    """
    for name in names:
        if name not in accepted:
            raise ConfigError(
                f"{owner} has no setting {quote}{name}{quote}."
                f"{did_you_mean(name, accepted, quote)} Accepted: {', '.join(accepted) or 'none'}."
            )


def check_values(owner: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Check that every value has the type and range of its annotation.

    Values are not converted: a run's key contains them as they are in the study.

    Args:
        owner: The beginning of messages, such as ``backbone "eegnet"``.
        function: The function, or the ``__init__`` of the class, that takes the settings.
        settings: Values by parameter name.

    Raises:
        ConfigError: A value does not fit.

    Example:
        >>> def network(width: int = 8) -> None: ...
        >>> check_values('backbone "network"', network, {"width": 8})
    """
    for name, value in settings.items():
        expected = _parameter_type(function, name)
        if expected is None:
            continue
        try:
            expected.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            message = first["msg"][0].lower() + first["msg"][1:]
            raise ConfigError(
                f"{owner}: {name} = {show_value(value)} is not valid: {message}."
            ) from None


def show_value(value: object) -> str:
    """Return a value as text for a message, shortened to 60 characters.

    >>> len(show_value([1] * 100))
    60
    """
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return f"a {type(value).__name__} with too many digits"
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


@cache
def _parameter_type(function: Callable[..., Any], name: str) -> TypeAdapter[Any] | None:
    annotation = typing.get_type_hints(function, include_extras=True).get(name)
    if annotation is None:
        return None
    # strict: "1" is not accepted for 1, nor 1 for true
    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return TypeAdapter(annotation, config=config)
