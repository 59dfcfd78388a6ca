"""Record the sizes of all backbones, which `afor models` prints.

python tools/model_sizes.py
"""

import json
from pathlib import Path
from typing import Any

import torch

from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES, build_backbone

TARGET = Path(__file__).parents[1] / "src" / "afor" / "bench" / "models" / "sizes.json"


def measure_sizes() -> dict[str, dict[str, dict[str, Any] | None]]:
    """Build every backbone for every data set and count parameters and tensors.

    If a network refuses a data set, its size names the `settings` with which it accepts it, or is
    None.
    """
    # On the meta device no weights are allocated and no random numbers are drawn.
    with torch.device("meta"):
        return {
            name: {dataset: _size(name, shape) for dataset, shape in DATASET_SHAPES.items()}
            for name in BACKBONES
        }


def _size(name: str, shape: InputShape) -> dict[str, Any] | None:
    for settings in ({}, {"repair": True}):
        try:
            parameters = list(build_backbone(name, shape, **settings).parameters())
        except ConfigError:
            continue
        size = {"parameters": sum(p.numel() for p in parameters), "tensors": len(parameters)}
        return {**size, "settings": settings} if settings else size
    return None


if __name__ == "__main__":
    TARGET.write_text(json.dumps(measure_sizes(), indent=1) + "\n", "utf-8")
    print(TARGET)
