"""Check the values of settings against the type annotations of a function."""

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from afor.bench.common.errors import ConfigError

SHOWN_LENGTH = 60


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
