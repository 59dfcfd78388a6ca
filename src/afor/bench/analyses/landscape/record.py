"""What a landscape leaves: the losses, the paths and how they were made, as JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from afor.bench.analyses.landscape.plane import Directions
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import without_nan

# Statistics that batch norm uses: "fixed" are the given buffers, "recomputed" those of the windows
# at the weights that are evaluated.
BatchNorm = Literal["fixed", "recomputed"]


@dataclass(frozen=True)
class PathInPlane:
    """The projection of one trajectory onto a plane, and how much of it the plane keeps."""

    x: list[float]
    y: list[float]
    solution: int  # the point the run restores
    epochs: int
    projected_loss: list[float]  # of the plane's nearest point, with the center's buffers
    true_loss: list[float]  # of the weights themselves, with their own buffers
    minimum_loss: float  # lowest projected loss: the paper's measure
    minimum_true_loss: float
    path_length: float  # in the plane: the paper's measure
    path_length_full: float  # in all dimensions
    explained_share: float  # of the squared displacement from the start
    step_share: float  # of the squared steps
    # Over many other random planes; nan where the plane is not random.
    random_length_mean: float = math.nan
    random_length_sd: float = math.nan


@dataclass(frozen=True)
class Landscape:
    """A loss grid, the paths over it, and how both were made."""

    study: str
    dataset: str
    backbone: str
    fold: int
    repetition: int
    center: str  # the optimizer at whose solution the plane lies
    directions: Directions
    seed: int
    weights: int  # dimensions of the space
    span: float
    windows: int  # over which the loss is averaged
    training_windows: int  # all windows of the training subjects
    batch_norm: BatchNorm
    axis: list[float]
    loss: list[list[float]]  # a row per value of the second direction
    paths: dict[str, PathInPlane]

    @property
    def label(self) -> str:
        """Return the name of the run for titles."""
        return f"{self.dataset}, {self.backbone}, fold {self.fold}, repetition {self.repetition}"


def content_of(measured: Landscape) -> dict[str, Any]:
    """Return the JSON object that `read_landscape` reads; a loss not finite is null."""
    return {"landscape": measured.label, **without_nan(asdict(measured))}


def read_landscape(content: Mapping[str, Any], where: str) -> Landscape:
    """Return the landscape a JSON object holds. Raises ConfigError."""
    try:
        values = {key: value for key, value in content.items() if key != "landscape"}
        values = _with_nan(values)
        paths = {name: PathInPlane(**path) for name, path in values["paths"].items()}
        loss = values["loss"]
        if not paths or {len(row) for row in (loss, *loss)} != {len(values["axis"])}:
            raise ValueError("its grid is not square, or it has no paths")
        return Landscape(**{**values, "paths": paths, "loss": loss})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{where} does not hold a landscape ({error!r}). "
            "`afor analyse landscape STUDY` writes one."
        ) from error


def _with_nan(value: Any) -> Any:
    """Replace every None by nan, in nested dicts and lists."""
    if isinstance(value, dict):
        return {key: _with_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_nan(entry) for entry in value]
    return math.nan if value is None else value
