"""Types of the settings that several networks share."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

# How a forward pass is computed: layer by layer as published, or an equivalent fast form.
Form = Literal["fast", "plain"]

# The annotation of a parameter defines the values that a study may set: `build_backbone` checks it.
Dropout = Annotated[float, Field(ge=0, lt=1)]
Momentum = Annotated[float, Field(gt=0, le=1)]
Epsilon = Annotated[float, Field(gt=0, le=1)]
Filters = Annotated[int, Field(ge=1, le=1024)]
FilterSamples = Annotated[int, Field(ge=1, le=65_536)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
BandHz = Annotated[tuple[float, float], Field(strict=False)]
Bands = Annotated[Sequence[BandHz], Field(min_length=1, max_length=100)]
