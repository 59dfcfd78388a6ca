"""EEGNet with the settings of the AFOR authors' released code."""

import torch
from torch import Tensor, nn

from afor.bench.models.eegnet import EEGNet, EEGNetForm
from afor.bench.models.input_shape import InputShape
from afor.bench.models.settings import Dropout, Epsilon, Momentum


class EEGNetAuthors(EEGNet):
    """Classify windows with the EEGNet that the AFOR authors released.

    The layers are those of :class:`EEGNet`. These differ: temporal filters of half the *window*
    (not half the sampling rate), dropout 0.5, batch norm with torch's defaults, Kaiming-normal
    convolutions, and a Xavier-normal classifier without a constraint. Spatial weights above 1 are
    set to 1 at the start of every forward pass; there is no lower bound and no norm.

    >>> model = EEGNetAuthors(InputShape.unnamed(6, samples=600, rate_hz=200, classes=5))
    >>> model.temporal.weight.shape
    torch.Size([8, 1, 1, 300])

    Args:
        shape: Shape of a window.
        dropout: Probability of dropping an element after each of the two pools.
        norm_momentum: Share of a batch in the running statistics of the three batch norms.
        norm_eps: Added to the variance in the three batch norms.
        form: How the forward pass is computed, as for :class:`EEGNet`.
    """

    largest_spatial_weight = 1.0

    def __init__(
        self,
        shape: InputShape,
        *,
        dropout: Dropout = 0.5,
        norm_momentum: Momentum = 0.1,
        norm_eps: Epsilon = 1e-5,
        form: EEGNetForm = "auto",
    ) -> None:
        super().__init__(
            shape,
            kernel_samples=shape.samples // 2,
            dropout=dropout,
            max_norm=False,
            form=form,
            norm_momentum=norm_momentum,
            norm_eps=norm_eps,
        )
        for layer in (self.temporal, self.spatial, self.depthwise, self.pointwise):
            nn.init.kaiming_normal_(layer.weight)
        nn.init.xavier_normal_(self.classifier.weight)
        self.apply_constraints()  # so that a forward pass in evaluation mode changes nothing

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        self.apply_constraints()
        return super().forward(signal)

    @torch.no_grad()
    def apply_constraints(self) -> None:
        """Set spatial weights above 1 to 1."""
        # Through .data: a second forward pass before the backward pass changes no value, and
        # must not invalidate what the first one saved.
        self.spatial.weight.data.clamp_(max=self.largest_spatial_weight)
