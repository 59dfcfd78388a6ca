"""Run small transformer encoders of equal shape in one call; each keeps its own parameters.

All tensors are laid out as (encoders, width, tokens, batch): linear layers are one batched
matrix product, and attention among a handful of tokens becomes plain arithmetic on whole batches
instead of thousands of 4 × 4 matrix products.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def stacked_encoder(encoders: Sequence[nn.Module], members: Tensor) -> Tensor:
    """Apply encoder r to ``members[r]`` for all r at once.

    The encoders are ``hslt.RegionEncoder`` of one shape. ``members`` is (encoders, batch,
    electrodes, features), the result (encoders, batch, outputs). The parameters are stacked for
    the call, so every encoder's own tensors receive their gradient.
    """
    stack = _Stack(encoders)
    tokens = stack.linear("embed", members.permute(0, 3, 2, 1))
    class_token = stack("class_token").transpose(1, 2).unsqueeze(3)
    class_token = class_token.expand(-1, -1, -1, tokens.shape[3])
    position = stack("position").transpose(1, 2).unsqueeze(3)
    tokens = torch.cat([class_token, tokens], dim=2) + position
    layers = zip(*(encoder.get_submodule("blocks").children() for encoder in encoders), strict=True)
    for blocks in layers:
        tokens = stacked_block(blocks, tokens)
    if any(name == "shrink" for name, _ in encoders[0].named_children()):
        tokens = stack.linear("shrink", tokens.transpose(1, 2)).transpose(1, 2)
    return tokens.permute(0, 3, 2, 1).flatten(2)


def stacked_block(blocks: Sequence[nn.Module], tokens: Tensor) -> Tensor:
    """Run one ``hslt.Block`` per leading index of ``tokens``, with the steps of its forward."""
    stack = _Stack(blocks)
    hidden = stack.linear("widen", stack.norm("attention_norm", tokens)).relu()
    tokens = tokens + stack.linear("narrow", _attention(stack, hidden)).relu()
    hidden = F.gelu(stack.linear("mlp_in", stack.norm("mlp_norm", tokens)))
    dropout = stack.first.get_submodule("dropout")
    outputs = stack.linear("mlp_out", dropout(hidden))
    if stack.first.second_gelu:
        outputs = F.gelu(outputs)
    return tokens + dropout(outputs)  # type: ignore[no-any-return]


class _Stack:
    """Stack the parameters of equal modules along a leading axis."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        self.first = modules[0]

    def __call__(self, name: str) -> Tensor:
        return torch.stack([module.get_parameter(name) for module in self.modules])

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        """Apply the linear layers ``name`` along axis 1."""
        return self.affine(f"{name}.weight", f"{name}.bias", inputs)

    def affine(self, weight: str, bias: str, inputs: Tensor) -> Tensor:
        """Multiply with the parameters ``weight`` along axis 1 and add ``bias``."""
        outputs = torch.baddbmm(self(bias).unsqueeze(2), self(weight), inputs.flatten(2))
        return outputs.view(*outputs.shape[:2], *inputs.shape[2:])

    def norm(self, name: str, inputs: Tensor) -> Tensor:
        """Apply the layer norms ``name`` along axis 1."""
        layer = self.first.get_submodule(name)
        assert isinstance(layer, nn.LayerNorm)
        scale, shift = self(f"{name}.weight"), self(f"{name}.bias")
        centred = inputs - inputs.mean(dim=1, keepdim=True)
        variance = centred.square().mean(dim=1, keepdim=True)
        normed = centred * torch.rsqrt(variance + layer.eps)
        return torch.addcmul(shift[:, :, None, None], normed, scale[:, :, None, None])


def _attention(stack: _Stack, hidden: Tensor) -> Tensor:
    attention = stack.first.get_submodule("attention")
    assert isinstance(attention, nn.MultiheadAttention)
    count, width, tokens, batch = hidden.shape
    heads = attention.num_heads
    projected = stack.affine("attention.in_proj_weight", "attention.in_proj_bias", hidden)
    query, key, value = projected.view(count, 3, heads, width // heads, tokens, batch).unbind(1)
    scores = _scores(query / math.sqrt(width // heads), key)
    weights = F.dropout(scores.softmax(dim=3), attention.dropout, attention.training)
    mixed = _mix(weights, value).reshape(count, width, tokens, batch)
    return stack.linear("attention.out_proj", mixed)


# Two bilinear maps that are each other's derivatives. q, k, v, x: (encoder, head, d, token, batch);
# weights: (encoder, head, to, from, batch).


class _Scores(torch.autograd.Function):
    """Σ_d q[d, i]·k[d, j]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor) -> Tensor:
        ctx.save_for_backward(query, key)
        scores = query[:, :, 0, :, None] * key[:, :, 0, None, :]
        for d in range(1, query.shape[2]):
            scores.addcmul_(query[:, :, d, :, None], key[:, :, d, None, :])
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        query, key = ctx.saved_tensors
        (grad,) = grads
        return _mix(grad, key), _mix(grad.transpose(2, 3), query)


class _Mix(torch.autograd.Function):
    """Σ_j weights[i, j]·x[d, j]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(weights, values)
        mixed = weights[:, :, None, :, 0] * values[:, :, :, None, 0]
        for j in range(1, weights.shape[3]):
            mixed.addcmul_(weights[:, :, None, :, j], values[:, :, :, None, j])
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        weights, values = ctx.saved_tensors
        (grad,) = grads
        return _scores(grad, values), _mix(weights.transpose(2, 3), grad)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return _Scores.apply(query, key)  # type: ignore[no-any-return, no-untyped-call]


def _mix(weights: Tensor, values: Tensor) -> Tensor:
    return _Mix.apply(weights, values)  # type: ignore[no-any-return, no-untyped-call]
