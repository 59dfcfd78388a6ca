"""What is stepped: the shapes of five sets of parameters, and a network to train.

The sets have the shapes of real networks without the networks: an optimizer sees nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shapes = tuple[tuple[int, ...], ...]

COMPILING = "compiling that many tensors takes minutes"
TWIN = "does the same work as its AdamW twin; left out to save time"
SMALL_SETS = "costs a fixed time, which shows on small sets"
FOREACH_COPIES = "on CPU its float64 copies need several times the memory of the parameters"


@dataclass(frozen=True)
class Workload:
    """A set of parameters."""

    name: str
    title: str
    shapes: Shapes
    left_out: Mapping[str, str] = field(default_factory=dict)  # contender: reason

    @property
    def parameters(self) -> int:
        """Return the number of elements."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    @property
    def is_large(self) -> bool:
        """Tell whether the contenders' states do not fit into memory side by side."""
        return self.parameters > 1_000_000

    def make(self, seed: int) -> list[Tensor]:
        """Return new tensors of these shapes, uniform in ±0.05."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.empty(s).uniform_(-0.05, 0.05, generator=generator) for s in self.shapes]


def eegnet_shapes(channels: int, samples: int, kernel: int, classes: int) -> Shapes:
    """Return the tensors of EEGNet-8,2 (Lawhern 2018)."""
    norm_8, norm_16 = ((8,), (8,)), ((16,), (16,))
    return (
        (8, 1, 1, kernel), *norm_8,
        (16, 1, channels, 1), *norm_16,
        (16, 1, 1, 16), (16, 16, 1, 1), *norm_16,
        (classes, 16 * (samples // 32)), (classes,),
    )  # fmt: skip


def hslt_shapes() -> Shapes:
    """Return the tensors of HSLT (Wang 2022) at DEAP's 32 electrodes: most are tiny."""

    def linear(inputs: int, outputs: int) -> Shapes:
        return ((outputs, inputs), (outputs,))

    def block(width: int) -> Shapes:
        inner, norm = 64, ((width,), (width,))  # 16 heads of 4
        attention = ((3 * inner, inner), (3 * inner,), *linear(inner, inner))
        widened = (*linear(width, inner), *attention, *linear(inner, width))
        return (*norm, *widened, *norm, *linear(width, 4 * width), *linear(4 * width, width))

    regions = (4, 5, 3, 5, 3, 3, 3, 3, 3)  # electrodes of each brain region
    tokens = min(regions) + 1
    shapes: list[tuple[int, ...]] = []
    for electrodes in regions:
        shapes += (*linear(5, 8), (1, 1, 8), (1, electrodes + 1, 8), *block(8), *block(8))
        if electrodes + 1 != tokens:
            shapes += linear(electrodes + 1, tokens)
    shapes += (*linear(8 * tokens, 16), (1, 1, 16), (1, len(regions) + 1, 16))
    shapes += (*block(16), *block(16), *linear(16, 2))
    return tuple(shapes)


def resnet50_shapes() -> Shapes:
    """Return the tensors of ResNet-50 (He 2016)."""
    shapes: list[tuple[int, ...]] = []

    def conv(inputs: int, outputs: int, size: int) -> None:
        shapes.extend(((outputs, inputs, size, size), (outputs,), (outputs,)))  # with its norm

    conv(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(blocks):
            conv(inputs, width, 1)
            conv(width, width, 3)
            conv(width, 4 * width, 1)
            if index == 0:
                conv(inputs, 4 * width, 1)
            inputs = 4 * width
    return (*shapes, (1000, 2048), (1000,))


def gpt2_shapes() -> Shapes:
    """Return the tensors of GPT-2 small (Radford 2019), the output tied to the embedding."""
    width, norm = 768, ((768,), (768,))
    layer = (
        *norm, (width, 3 * width), (3 * width,), (width, width), (width,),
        *norm, (width, 4 * width), (4 * width,), (4 * width, width), (width,),
    )  # fmt: skip
    return ((50257, width), (1024, width), *(layer * 12), *norm)


SHARDED = ("adamw-sharded", "afor-sharded")
_TWINS = {"adam-foreach": TWIN, "adam-fused": TWIN}
_USES = dict.fromkeys(
    ("afor-frozen", "afor-bfloat16", "afor-checkpoint", "afor-profiled", *SHARDED), SMALL_SETS
)
WORKLOADS = {
    w.name: w
    for w in (
        Workload("eegnet", "EEGNet, 12 tensors", eegnet_shapes(32, 128, 64, 2)),
        Workload("hslt", "HSLT, 368 tensors", hslt_shapes(), {"afor-compiled": COMPILING}),
        Workload(
            "resnet50",
            "ResNet-50, 161 tensors, 25 M",
            resnet50_shapes(),
            {"afor-compiled": COMPILING, **_USES},
        ),
        Workload(
            "gpt2",
            "GPT-2, 148 tensors, 124 M",
            gpt2_shapes(),
            {"afor-compiled": COMPILING, "afor-foreach": FOREACH_COPIES, **_TWINS, **_USES},
        ),
        Workload(
            "single",
            "one tensor of 100 M",
            ((100_000_000,),),
            {"afor-compiled": TWIN, "afor-foreach": FOREACH_COPIES, **_TWINS, **_USES},
        ),
    )
}


@dataclass(frozen=True)
class Training:
    """A training step of EEGNet on one batch."""

    name: str
    title: str
    batch: int
    channels: int
    samples: int
    kernel: int
    classes: int


TRAININGS = {
    t.name: t
    for t in (
        Training("train-deap", "training step, batch 256 at 32×128", 256, 32, 128, 64, 2),
        Training("train-bci2a", "training step, batch 64 at 22×250", 64, 22, 250, 125, 4),
    )
}


class EEGNet(nn.Module):
    """EEGNet-8,2 layer by layer, for training steps."""

    def __init__(self, channels: int, samples: int, kernel: int, classes: int) -> None:
        super().__init__()
        self.temporal = nn.Conv2d(1, 8, (1, kernel), bias=False)
        self.temporal_norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.01)
        self.spatial = nn.Conv2d(8, 16, (channels, 1), groups=8, bias=False)
        self.spatial_norm = nn.BatchNorm2d(16, eps=1e-3, momentum=0.01)
        self.depthwise = nn.Conv2d(16, 16, (1, 16), groups=16, bias=False)
        self.pointwise = nn.Conv2d(16, 16, 1, bias=False)
        self.separable_norm = nn.BatchNorm2d(16, eps=1e-3, momentum=0.01)
        self.dropout = nn.Dropout(0.25)
        self.classifier = nn.Linear(16 * (samples // 32), classes)

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        maps = self.temporal_norm(self.temporal(_padded(signal.unsqueeze(1), self.temporal)))
        maps = F.elu(self.spatial_norm(self.spatial(maps)))
        maps = self.dropout(F.avg_pool2d(maps, (1, 4)))
        maps = self.pointwise(self.depthwise(_padded(maps, self.depthwise)))
        maps = F.elu(self.separable_norm(maps))
        maps = self.dropout(F.avg_pool2d(maps, (1, 8)))
        logits: Tensor = self.classifier(maps.flatten(1))
        return logits


def _padded(maps: Tensor, layer: nn.Conv2d) -> Tensor:
    """Pad in time so that the layer keeps the number of samples."""
    kernel = layer.kernel_size[1]
    return F.pad(maps, ((kernel - 1) // 2, kernel // 2))
