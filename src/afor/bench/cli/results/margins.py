"""The option ``--margin``: up to which difference two methods count as equivalent."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from afor.bench.common.errors import ConfigError
from afor.bench.store.files import load_margins

Margins = Annotated[
    list[str] | None,
    typer.Option(
        "--margin",
        help="METRIC=POINTS: differences up to this size count as equivalent; repeatable.",
        show_default="as the study states, or 1 point (0.02 for kappa)",
    ),
]


def read_margins(
    pairs: Sequence[str] | None, paths: Sequence[Path], studies: Sequence[str] | None
) -> dict[str, float]:
    """Return the margins by metric: those of the command line, and those of the studies."""
    given = dict(map(_read_pair, pairs or ()))
    return {**load_margins(paths, studies or (), except_for=given), **given}


def _read_pair(pair: str) -> tuple[str, float]:
    metric, _, text = pair.partition("=")
    try:
        margin = float(text)
    except ValueError:
        margin = math.nan
    if not metric or not 0 < margin < math.inf:
        raise ConfigError(
            f"--margin {pair}: expected METRIC=POINTS, more than 0, such as accuracy=1.5."
        )
    return metric, margin
