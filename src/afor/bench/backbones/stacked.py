"""Encoders of equal shape in one call, while each keeps its own parameters."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def stacked_encoder(encoders: Sequence[nn.Module], members: Tensor) -> Tensor:
    """Apply encoder r to ``members[r]`` for all r at once.

    ``members`` is (encoders, batch, electrodes, features), the result (encoders, batch, outputs).
    The parameters are stacked for the call, so every encoder's own tensors receive their gradient.
    """
    stack = _Stack(encoders)
    tokens = stack.linear("embed", members)
    class_token = stack("class_token").unsqueeze(1).expand(-1, tokens.shape[1], -1, -1)
    tokens = torch.cat([class_token, tokens], dim=2) + stack("position").unsqueeze(1)
    blocks: nn.ModuleList = encoders[0].blocks  # type: ignore[assignment]
    for layer in range(len(blocks)):
        tokens = _block(_Stack([e.blocks[layer] for e in encoders]), tokens)  # type: ignore[index]
    if encoders[0].shrink is not None:
        tokens = stack.linear("shrink", tokens.transpose(2, 3)).transpose(2, 3)
    return tokens.flatten(2)


class _Stack:
    """Read the parameters of like modules as one tensor with a leading axis."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        self.first = modules[0]

    def __call__(self, name: str) -> Tensor:
        return torch.stack([module.get_parameter(name) for module in self.modules])

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        """Apply the linear layers ``name``, one per leading index of ``inputs``."""
        return self.affine(f"{name}.weight", f"{name}.bias", inputs)

    def affine(self, weight: str, bias: str, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1, -2)
        out = torch.baddbmm(self(bias).unsqueeze(1), flat, self(weight).transpose(1, 2))
        return out.unflatten(1, inputs.shape[1:-1])

    def norm(self, name: str, inputs: Tensor) -> Tensor:
        """Apply the layer norms ``name``."""
        layer: nn.LayerNorm = self.first.get_submodule(name)  # type: ignore[assignment]
        scale, shift = self(f"{name}.weight"), self(f"{name}.bias")
        normed = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
        return torch.addcmul(shift[:, None, None], normed, scale[:, None, None])


def _block(stack: _Stack, tokens: Tensor) -> Tensor:
    """Run one transformer block per encoder; the same steps as ``hslt.Block.forward``."""
    hidden = stack.linear("widen", stack.norm("attention_norm", tokens)).relu()
    tokens = tokens + stack.linear("narrow", _attention(stack, hidden)).relu()
    hidden = F.gelu(stack.linear("mlp_in", stack.norm("mlp_norm", tokens)))
    dropout: nn.Dropout = stack.first.dropout  # type: ignore[assignment]
    return tokens + dropout(stack.linear("mlp_out", dropout(hidden)))


def _attention(stack: _Stack, hidden: Tensor) -> Tensor:
    attention: nn.MultiheadAttention = stack.first.attention  # type: ignore[assignment]
    projected = stack.affine("attention.in_proj_weight", "attention.in_proj_bias", hidden)
    # (encoders, batch, tokens, 3·width) → three of (encoders, batch, heads, tokens, head width)
    split = projected.unflatten(-1, (3, attention.num_heads, -1)).permute(3, 0, 1, 4, 2, 5)
    query, key, value = split.unbind()
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    weights = F.dropout(scores.softmax(dim=-1), attention.dropout, stack.first.training)
    mixed = (weights @ value).transpose(2, 3).flatten(3)
    return stack.linear("attention.out_proj", mixed)
