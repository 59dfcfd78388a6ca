"""AdamW with a constant beta2 for each tensor: the control for AFOR's adaptation.

If AFOR's gain comes from *adapting* beta2, AFOR must beat AdamW that holds each tensor at the
value AFOR had there on average. The paper lacks this control.
"""

from collections.abc import Iterable, Mapping

import torch
from torch.optim import AdamW


class PerTensorAdamW(AdamW):
    """AdamW over named tensors, one group per tensor.

    Args:
        params: Named parameters.
        lr, betas, eps, weight_decay: As for torch's AdamW.
        beta2_by_tensor: The beta2 of every tensor by its name; None uses that of `betas`.

    Raises:
        ValueError: A name is missing or unknown, or a beta2 is not in [0, 1).

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> memory = {"weight": 0.99, "bias": 0.999}
        >>> optimizer = PerTensorAdamW(layer.named_parameters(), beta2_by_tensor=memory)
        >>> [group["betas"] for group in optimizer.param_groups]
        [(0.9, 0.99), (0.9, 0.999)]
    """

    def __init__(
        self,
        params: Iterable[tuple[str, torch.Tensor]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        beta2_by_tensor: Mapping[str, float] | None = None,
    ) -> None:
        named = list(params)
        names = [name for name, _ in named]
        memory = beta2_by_tensor or dict.fromkeys(names, betas[1])
        missing = [name for name in names if name not in memory]
        unknown = [name for name in memory if name not in names]
        if missing or unknown:
            wrong = f"none for {missing[0]!r}" if missing else f"one for {unknown[0]!r}"
            raise ValueError(
                f"beta2_by_tensor must name exactly the tensors of the network: it has {wrong}. "
                f"The network has {', '.join(names)}."
            )
        for name, beta2 in memory.items():
            if not 0 <= beta2 < 1:
                raise ValueError(f"beta2_by_tensor: {name!r} has {beta2}; expected 0 <= beta2 < 1")
        groups = [
            {"params": [(name, tensor)], "betas": (betas[0], memory[name])}
            for name, tensor in named
        ]
        super().__init__(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
