"""Settings that several backbones share."""

from typing import Any, Literal, get_args

from afor.bench.errors import ConfigError

# How a forward pass is computed, never what: layer by layer as printed, or the fast equal.
Form = Literal["fast", "plain"]


def check_choice(backbone: str, name: str, value: str, kind: Any) -> None:
    """Raise unless ``value`` is one of the words of the ``Literal`` type ``kind``.

    >>> check_choice("ACRNN", "form", "fast", Form)
    """
    accepted = get_args(kind)
    if value not in accepted:
        raise ConfigError(
            f"{backbone}: {name} must be one of {', '.join(accepted)}, found {value!r}."
        )
