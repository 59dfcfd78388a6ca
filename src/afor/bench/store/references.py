"""Read and write the results of the linear model, which stand in a file beside a store.

They belong to the data and the split of a run, not to a study: a store that runs other data under
the same name keeps both.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from afor.bench.common.files import write_atomically
from afor.bench.store.results import RunResult
from afor.bench.study.protocol import RunProtocol

Fits = dict[str, dict[str, float]]  # metrics by `fit_key`


def fit_key(protocol: RunProtocol) -> str:
    """Return what a linear fit depends on: the data and the split of a run; empty if not known."""
    parts = [protocol.get("data.fingerprint", ""), protocol.get("split", "")]
    return "/".join(parts) if all(parts) else ""


def reference_file(store: Path, dataset: str) -> Path:
    """Return the file of a data set beside a store."""
    return store.with_name(f"{store.name}.splits") / f"{dataset.replace(':', '-')}.linear.json"


def read_fits(store: Path, dataset: str) -> Fits:
    """Return the linear fits of a data set; none if there is no file, or it cannot be read."""
    try:
        content = json.loads(reference_file(store, dataset).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {
        str(key): {str(name): value for name, value in fit.items() if isinstance(value, float)}
        for key, fit in (content.items() if isinstance(content, dict) else ())
        if isinstance(fit, dict)
    }


def write_fits(store: Path, dataset: str, fits: Fits) -> None:
    """Write the linear fits of a data set."""
    write_atomically(reference_file(store, dataset), json.dumps(fits, indent=1).encode())


def linear_values(
    fits: Mapping[str, Mapping[str, float]], runs: Mapping[tuple[int, int], RunResult], metric: str
) -> dict[tuple[int, int], float]:
    """Return the linear model's metric for those runs whose data and split it was fitted on."""
    found = {at: fits.get(fit_key(run.protocol), {}).get(metric) for at, run in runs.items()}
    return {at: value for at, value in found.items() if value is not None}
