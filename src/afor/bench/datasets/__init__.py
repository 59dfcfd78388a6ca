"""Readers of EEG data sets: files of many kinds in, one ``Recording`` per subject out."""

from afor.bench.datasets.recording import Recording
from afor.bench.datasets.registry import NAMES, Dataset, DatasetInfo, get_dataset

__all__ = ["NAMES", "Dataset", "DatasetInfo", "Recording", "get_dataset"]
