"""Look up a data set by its name."""

from importlib import import_module
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.dataset import Dataset
from afor.bench.data.datasets.moabb_adapter import MoabbDataset
from afor.bench.data.datasets.own_code import OwnDataset

NAMES = (
    "synthetic", "deap", "bci2a", "isruc", "physionet_mi", "sleep_edf", "eegmat",
    "folder", "recordings", "bids",
)  # fmt: skip
ALIASES = {"eegmmidb": "physionet_mi"}  # the name of its publisher
OWN = ("folder", "recordings", "bids")  # of these the files are the user's own


def is_own_code(name: str) -> bool:
    """Return True if a data set is read by code that is not part of this package."""
    return ":" in name and not name.startswith("moabb:")


def get_dataset(name: str) -> Dataset[Any]:
    """Return a data set by its name: one of `NAMES`, ``moabb:<Name>`` or ``module:function``.

    The module of a function is imported. Raises ConfigError if there is no such data set.
    """
    if name.startswith("moabb:"):
        return MoabbDataset(name.removeprefix("moabb:"))
    if is_own_code(name):
        return OwnDataset(name)
    name = ALIASES.get(name, name)
    if name not in NAMES:
        raise ConfigError(
            f"Unknown data set {name!r}.{did_you_mean(name, NAMES)} "
            f"Accepted: {', '.join(NAMES)}, moabb:<Name>, module:function."
        )
    dataset: Dataset[Any] = import_module(f"afor.bench.data.datasets.{name}").DATASET
    return dataset
