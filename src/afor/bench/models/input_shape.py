"""`InputShape`, the description of a window that every network is built from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowLayout


@dataclass(frozen=True)
class InputShape:
    """The shape of one window, (channels, samples), and the number of classes.

    Args:
        channel_names: Names of the electrodes, in the order of the data.
        samples: Number of samples of a window.
        rate_hz: Sampling rate.
        classes: Number of classes.

    Raises:
        ConfigError: A value is out of range, or a channel name is repeated.

    Example:
        >>> shape = InputShape(("C3", "Cz", "C4"), samples=250, rate_hz=250, classes=4)
        >>> shape.channels
        3
    """

    channel_names: tuple[str, ...]
    samples: int
    rate_hz: float
    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "channel_names", tuple(self.channel_names))
        if not self.channel_names:
            raise ConfigError("An input needs at least one channel, the list of names is empty.")
        repeated = sorted({n for n in self.channel_names if self.channel_names.count(n) > 1})
        if repeated:
            raise ConfigError(f"Channel names must differ, repeated: {', '.join(repeated)}.")
        for name, value, minimum in (("samples", self.samples, 1), ("classes", self.classes, 2)):
            if value < minimum:
                raise ConfigError(f"{name} must be at least {minimum}, found {value}.")
        if not self.rate_hz > 0:
            raise ConfigError(f"rate_hz must be positive, found {self.rate_hz}.")

    @property
    def channels(self) -> int:
        """Return the number of channels."""
        return len(self.channel_names)

    @classmethod
    def unnamed(cls, channels: int, samples: int, rate_hz: float, classes: int) -> "InputShape":
        """Return the shape of an input whose channels have no electrode names.

        Args:
            channels: Number of channels.
            samples: Number of samples of a window.
            rate_hz: Sampling rate.
            classes: Number of classes.
        """
        names = tuple(f"channel {index}" for index in range(channels))
        return cls(names, samples, rate_hz, classes)

    @classmethod
    def of(cls, windows: "WindowLayout") -> "InputShape":
        """Return the shape of the windows of a data set, for building a network.

        Args:
            windows: The windows, as `open_windows` returns them.
        """
        return cls(
            windows.channel_names,
            samples=windows.window_samples,
            rate_hz=windows.rate_hz,
            classes=windows.n_classes,
        )

    def require(self, backbone: str, *, samples: int = 1, channels: int = 1) -> None:
        """Check that the window is large enough for a backbone.

        Args:
            backbone: Name of the backbone, for the message.
            samples: Number of samples that it needs.
            channels: Number of channels that it needs.

        Raises:
            ConfigError: The window has fewer.
        """
        if self.channels < channels:
            raise ConfigError(
                f"{backbone} needs at least {channels} channels, found {self.channels}."
            )
        if self.samples < samples:
            raise ConfigError(
                f"{backbone} needs windows of at least {samples} samples, found {self.samples} "
                f"({self.samples / self.rate_hz:g} s at {self.rate_hz:g} Hz). "
                f"Use windows of {samples / self.rate_hz:.3g} s or longer."
            )
