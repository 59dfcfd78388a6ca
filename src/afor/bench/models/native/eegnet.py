"""The native EEGNet as a differentiable function."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F

from afor.bench.models.layers.cancelled_norm import held_affine, next_scale
from afor.bench.models.layers.spatial_first import filtered_moments
from afor.bench.models.layers.toeplitz import same_filter
from afor.bench.models.native.binding import PARAMETERS, Sizes, Task, run


class Blocks(NamedTuple):
    """Sizes and settings of the two blocks of EEGNet."""

    sizes: Sizes
    eps: tuple[float, float, float]  # of the three batch norms
    keep_factor: float  # what dropout multiplies the kept elements with


def native_features(
    blocks: Blocks, signal: Tensor, parameters: Sequence[Tensor], masks: Sequence[Tensor | None]
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the inputs of the classifier in training, and the statistics of the batch.

    No gradient flows to the signal. The parameters are those of ``PARAMETERS``, in that order and
    of any shape; a mask has the elements that a dropout keeps, (batch, maps, time), or is None.

    Returns:
        The features (batch, outputs · time), and for each of the three batch norms the mean and
        the unbiased variance of its input, which move its running statistics.
    """
    features, statistics = _Features.apply(blocks, signal, *masks, *parameters)  # type: ignore[no-untyped-call]
    sizes = blocks.sizes
    counts = [c for c in (sizes.filters, sizes.maps, sizes.outputs) for _ in range(2)]
    *pieces, _ = statistics.to(sizes.dtype).split([*counts, statistics.numel() - sum(counts)])
    return features, pieces


def evaluated_features(
    blocks: Blocks, signal: Tensor, parameters: Sequence[Tensor], statistics: Sequence[Tensor]
) -> Tensor:
    """Return what `native_features` does, without dropout and with the given statistics.

    They are mean and variance of the first norm, of the second and of the third.
    """
    sizes = blocks.sizes
    features = sizes.empty(Task.EVALUATION, "features")
    arrays = _named(signal, parameters)
    arrays["statistics"] = torch.cat([value.double() for value in statistics])
    arrays["features"] = features
    arrays["scratch"] = sizes.empty(Task.EVALUATION, "scratch")
    run(Task.EVALUATION, sizes, arrays, blocks.eps)
    return features.view(sizes.batch, -1)


def has_tangent(tensor: Tensor) -> bool:
    """Return True if a tensor carries a derivative of forward mode, which detaching drops."""
    return unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _named(signal: Tensor, parameters: Sequence[Tensor]) -> dict[str, Tensor | None]:
    arrays: dict[str, Tensor | None] = {"signal": _contiguous(signal)}
    for name, value in zip(PARAMETERS, parameters, strict=True):
        arrays[name] = _contiguous(value)
    return arrays


def _contiguous(tensor: Tensor) -> Tensor:
    """Return a detached, contiguous tensor without a pending negation; copy only if needed."""
    return tensor.detach().resolve_neg().contiguous()


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        blocks: Blocks,
        signal: Tensor,
        mask: Tensor | None,
        second_mask: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        sizes = blocks.sizes
        arrays = _named(signal, parameters)
        names = ("moments", "saved", "statistics", "features", "scratch")
        written = {name: sizes.empty(Task.FORWARD, name) for name in names}
        moments, saved, statistics, features, _ = written.values()
        arrays |= {"keep": mask, "second_keep": second_mask, **written}
        run(Task.FORWARD, sizes, arrays, blocks.eps, blocks.keep_factor)
        ctx.blocks = blocks
        ctx.save_for_backward(signal, mask, second_mask, moments, saved, statistics, *parameters)
        ctx.mark_non_differentiable(statistics)
        ctx.set_materialize_grads(False)
        return features.view(sizes.batch, -1), statistics

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        blocks: Blocks = ctx.blocks
        signal, mask, second_mask, moments, saved, statistics, *parameters = ctx.saved_tensors
        grad = grads[0]
        if grad is None:
            return (None,) * (4 + len(parameters))
        needed = ctx.needs_input_grad[4:]
        try:
            grad.untyped_storage()
        except NotImplementedError as error:
            raise RuntimeError(
                "The native EEGNet computes one gradient at a time, found a batch of them "
                '(is_grads_batched, vectorize); use the model with form="plain".'
            ) from error
        if torch.is_grad_enabled() or has_tangent(grad):  # needs a graph of this derivative
            with torch.enable_grad():
                # Views: a parameter that is used twice has a gradient for each use.
                views = [p.view_as(p) for p in parameters]
                features = plain_features(blocks, signal, views, (mask, second_mask))
            inputs = [view for view, needs in zip(views, needed, strict=True) if needs]
            keep = torch.is_grad_enabled()
            computed = iter(torch.autograd.grad(features, inputs, grad, create_graph=keep))
            return *(4 * (None,)), *(next(computed) if needs else None for needs in needed)
        sizes = blocks.sizes
        results = [torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters]
        arrays = _named(signal, parameters)
        arrays |= {"keep": mask, "second_keep": second_mask, "moments": moments, "saved": saved}
        arrays |= {"statistics": statistics, "grad_features": _contiguous(grad)}
        arrays |= {f"grad_{name}": value for name, value in zip(PARAMETERS, results, strict=True)}
        arrays["scratch"] = sizes.empty(Task.BACKWARD, "scratch")
        run(Task.BACKWARD, sizes, arrays, blocks.eps, blocks.keep_factor)
        wanted = [g if needs else None for g, needs in zip(results, needed, strict=True)]
        return *(4 * (None,)), *wanted


def plain_features(
    blocks: Blocks, signal: Tensor, parameters: Sequence[Tensor], masks: Sequence[Tensor | None]
) -> Tensor:
    """Return what `native_features` does, computed by torch: for derivatives of any order."""
    sizes = blocks.sizes
    (scale, shift), second, third = parameters[1:3], parameters[4:6], parameters[8:10]
    temporal, spatial, depthwise, pointwise = (parameters[i].flatten(1) for i in (0, 3, 6, 7))
    mean, variance = filtered_moments(signal, temporal)
    held_scale, held_shift = held_affine(scale, shift)
    factor = held_scale * torch.rsqrt(variance + blocks.eps[0])
    constant = (held_shift - factor * mean).repeat_interleave(sizes.depth) * spatial.sum(dim=1)
    mixed = torch.einsum("mc,bct->mbt", spatial, signal)
    maps = same_filter(mixed, temporal * factor[:, None]) + constant[:, None, None]
    second_scale = next_scale(second[0], scale, shift, maps.unsqueeze(0), blocks.eps[1])
    maps = _batch_norm(maps.transpose(0, 1), (second_scale, second[1]), blocks.eps[1])
    maps = mean_pool(F.elu(maps), sizes.pool)
    if masks[0] is not None:
        maps = maps * masks[0] * blocks.keep_factor
    maps = same_filter(maps.transpose(0, 1), depthwise)
    maps = _batch_norm(torch.matmul(pointwise, maps.transpose(0, 1)), third, blocks.eps[2])
    maps = mean_pool(F.elu(maps), sizes.second_pool)
    if masks[1] is not None:
        maps = maps * masks[1] * blocks.keep_factor
    return maps.flatten(1)


def _batch_norm(maps: Tensor, parameters: Sequence[Tensor], eps: float) -> Tensor:
    scale, shift = parameters
    return F.batch_norm(maps, None, None, scale, shift, training=True, eps=eps)


def mean_pool(maps: Tensor, size: int) -> Tensor:
    """Average over ``size`` samples without avg_pool's slow backward pass; drop the remainder."""
    pooled = maps.shape[-1] // size
    whole = maps[..., : pooled * size]
    return whole.reshape(*maps.shape[:-1], pooled, size).mean(dim=-1)
