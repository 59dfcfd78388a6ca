"""The benchmark: train optimizers on EEG across subjects and compare them (extra ``afor[bench]``).

This module exports the names a notebook needs; every other module is private by convention. Data
flow through the packages in this order: `data` → `models`, `optimizers` → `training` → `study` →
`store` → `execution`, and from `store` → `stats` → `report` → `analyses` → `cli`; `notebook` runs
and reads studies as `cli` does. Importing `afor.bench` is cheap: a name is loaded when it is first
used.

Example:
    >>> from afor import bench
    >>> bench.load_study("demo").name
    'demo'

"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afor.bench.common.errors import AforError as AforError
    from afor.bench.data.loading import open_windows as open_windows
    from afor.bench.data.recording import Recording as Recording
    from afor.bench.data.splits import make_splits as make_splits
    from afor.bench.data.window_source import ArrayWindows as ArrayWindows
    from afor.bench.execution.engines.local import LocalEngine as LocalEngine
    from afor.bench.execution.runner import run_study as run_study
    from afor.bench.models.input_shape import InputShape as InputShape
    from afor.bench.models.registry import build_backbone as build_backbone
    from afor.bench.notebook.compare import compare as compare
    from afor.bench.notebook.judge import judge as judge
    from afor.bench.notebook.results import StudyResults as StudyResults
    from afor.bench.notebook.results import open_results as open_results
    from afor.bench.optimizers.build import build_optimizer as build_optimizer
    from afor.bench.report.page import render_report as render_report
    from afor.bench.stats.groups import collect_conditions as collect_conditions
    from afor.bench.stats.results import Results as Results
    from afor.bench.store.database import open_store as open_store
    from afor.bench.store.files import load_results as load_results
    from afor.bench.study.plan import make_plan as make_plan
    from afor.bench.study.schema import load_study as load_study
    from afor.bench.study.schema import parse_study as parse_study

_MODULES = {
    "AforError": "common.errors",
    "ArrayWindows": "data.window_source",
    "InputShape": "models.input_shape",
    "LocalEngine": "execution.engines.local",
    "Recording": "data.recording",
    "Results": "stats.results",
    "StudyResults": "notebook.results",
    "build_backbone": "models.registry",
    "build_optimizer": "optimizers.build",
    "collect_conditions": "stats.groups",
    "compare": "notebook.compare",
    "judge": "notebook.judge",
    "load_results": "store.files",
    "load_study": "study.schema",
    "make_plan": "study.plan",
    "make_splits": "data.splits",
    "open_results": "notebook.results",
    "open_store": "store.database",
    "open_windows": "data.loading",
    "parse_study": "study.schema",
    "render_report": "report.page",
    "run_study": "execution.runner",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'afor.bench' has no attribute {name!r}")
    value = getattr(import_module(f"afor.bench.{_MODULES[name]}"), name)
    globals()[name] = value  # so that this function runs once per name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
