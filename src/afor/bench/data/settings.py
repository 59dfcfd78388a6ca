"""Options of data sets: the common ones, and the check of all."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from afor.bench.common.errors import ConfigError
from afor.bench.common.parameter_checks import show_value
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.signal import Band

# A pass band in hertz, or the word "none": TOML has no null.
BandHz = Annotated[tuple[float, float], Field(strict=False)] | Literal["none"]
# Words, such as the names of channels or classes; TOML has lists and no tuples.
Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)]
Samples = Annotated[int, Field(ge=0, lt=2**31)]


class DataSettings(BaseModel):
    """Options of every data set; each loader adds its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    window_samples: Samples = 0  # 0: the whole trial
    stride_samples: Samples = 0  # 0: as long as the window

    # Options that choose among the trials, or cut them, without changing any.
    NOT_OF_TRIALS: ClassVar[frozenset[str]] = frozenset({"window_samples", "stride_samples"})

    def trial_settings(self) -> dict[str, Any]:
        """Return the options that determine the cached trials and are not at their defaults."""
        return self.model_dump(mode="json", exclude=set(self.NOT_OF_TRIALS), exclude_defaults=True)


Settings = TypeVar("Settings", bound=DataSettings)


def parse_settings(model: type[Settings], options: Mapping[str, Any], dataset: str) -> Settings:
    """Return checked options of a data set; raise ConfigError with the nearest valid key."""
    for key in options:
        if key not in model.model_fields:
            hint = did_you_mean(key, model.model_fields)
            raise ConfigError(
                f"{dataset}: unknown option {key!r}.{hint} "
                f"Accepted: {', '.join(model.model_fields)}."
            )
    try:
        return model(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if not first["loc"]:  # about several options together
            reason = str(first.get("ctx", {}).get("error", first["msg"]))
            raise ConfigError(f"{dataset}: {reason}") from None
        key = str(first["loc"][0])
        value = show_value(options.get(key))
        raise ConfigError(f"{dataset}: option {key} = {value}: {first['msg']}.") from None


def band_of(band_hz: BandHz) -> Band | None:
    """Return the filter's pass band, or None for no filter."""
    return None if band_hz == "none" else Band(*band_hz)
