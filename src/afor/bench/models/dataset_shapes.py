"""The windows of the public data sets, for tables of networks that need no files."""

from afor.bench.data.datasets import bci2a, deap, isruc, physionet_mi
from afor.bench.models.input_shape import InputShape

# Rates, windows and classes: paper, Sec. IV-A.
DEAP = InputShape(deap.CHANNELS, samples=128, rate_hz=128, classes=2)
BCI2A = InputShape(bci2a.CHANNELS, samples=250, rate_hz=250, classes=4)
ISRUC = InputShape(isruc.CHANNELS, samples=600, rate_hz=200, classes=5)
PHYSIONET_MI = InputShape(physionet_mi.CHANNELS, samples=160, rate_hz=160, classes=4)
DATASET_SHAPES: dict[str, InputShape] = {
    "DEAP": DEAP,
    "BCI IV 2a": BCI2A,
    "ISRUC": ISRUC,
    "PhysioNet MI": PHYSIONET_MI,
}
