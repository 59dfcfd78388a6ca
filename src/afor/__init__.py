"""AFOR: AdamW whose second-moment memory adapts per tensor and per step.

>>> import torch
>>> from afor import AFOR
>>> model = torch.nn.Linear(4, 2)
>>> optimizer = AFOR(model.parameters(), lr=1e-3, weight_decay=1e-4)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["AFOR", "__version__"]

if TYPE_CHECKING:
    from afor.optimizer import AFOR


def __getattr__(name: str) -> Any:
    # Importing torch takes over a second; `afor --help` must not wait for it.
    if name == "AFOR":
        from afor.optimizer import AFOR

        globals()["AFOR"] = AFOR  # so that this function runs once
        return AFOR
    raise AttributeError(f"module 'afor' has no attribute {name!r}")
