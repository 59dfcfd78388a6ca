"""The paper's four networks, and any other that takes a window and returns logits."""

from afor.bench.backbones.registry import BACKBONES, build_backbone, check_backbone
from afor.bench.backbones.shape import DATASET_SHAPES, InputShape

__all__ = ["BACKBONES", "DATASET_SHAPES", "InputShape", "build_backbone", "check_backbone"]
