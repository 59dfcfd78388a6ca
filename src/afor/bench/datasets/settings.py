"""What a user may choose about a data set: the common options, and how bad ones are refused."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from afor.bench.errors import ConfigError
from afor.bench.preprocess import Band

# A pass band in hertz, or the word "none": TOML has no null.
BandHz = tuple[float, float] | Literal["none"]


class DataSettings(BaseModel):
    """Options every data set has; each loader adds its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_samples: NonNegativeInt  # 0: the whole trial
    stride_samples: NonNegativeInt  # 0: as long as the window

    def trial_settings(self) -> dict[str, Any]:
        """Return the options that decide the stored trials, not how windows are cut from them."""
        return self.model_dump(mode="json", exclude={"window_samples", "stride_samples"})


Settings = TypeVar("Settings", bound=DataSettings)


def parse_settings(model: type[Settings], options: Mapping[str, Any], dataset: str) -> Settings:
    """Check the options of a data set; ConfigError names the nearest valid key."""
    for key in options:
        if key not in model.model_fields:
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"{dataset}: unknown option {key!r}.{hint} Known: {', '.join(model.model_fields)}."
            )
    try:
        return model(**options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "options"
        raise ConfigError(
            f"{dataset}: option {key} = {first.get('input')!r}: {first['msg']}."
        ) from None


def band_of(band_hz: BandHz) -> Band | None:
    """Return the filter's pass band, or None for no filter."""
    return None if band_hz == "none" else Band(*band_hz)
