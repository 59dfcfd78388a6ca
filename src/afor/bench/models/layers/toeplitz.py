"""Temporal filters as products with banded Toeplitz matrices."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from afor.bench.models.layers.precision import autocast_dtype, without_autocast


def same_padding(kernel: int) -> tuple[int, int]:
    """Return the padding, left and right, that keeps the length; the right side may be longer."""
    return (kernel - 1) // 2, kernel // 2


def same_filter(maps: Tensor, filters: Tensor) -> Tensor:
    """Correlate ``maps`` (maps, batch, time) with ``filters`` (filters, kernel), zero-padded.

    Filter f serves maps f·D … f·D + D − 1, D = maps / filters. The padding is that of
    :func:`same_padding`, so the length stays. This is a grouped ``conv1d``, whose own kernels on a
    CPU are several times slower, above all backward; gradients of any order flow to both.

    >>> same_filter(torch.ones(1, 1, 4), torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[5.0, 6.0, 6.0, 3.0]]]
    """
    dtype = autocast_dtype(maps)
    count, batch, samples = maps.shape
    # Maps of one filter side by side: fewer and larger matrix products.
    rows = maps.to(dtype).reshape(filters.shape[0], -1, samples)
    filtered: Tensor
    with without_autocast(maps):
        filtered, _ = _SameFilter.apply(rows, filters.to(dtype))  # type: ignore[no-untyped-call]
    return filtered.view(count, batch, samples)


# Outputs per matrix product: short, so that the work depends on the band and not on the window;
# long enough for a product to run at full speed.
_BLOCK = 96


def _block_length(samples: int) -> int:
    return -(-samples // max(1, round(samples / _BLOCK)))


class _SameFilter(torch.autograd.Function):
    """The bilinear map of :func:`same_filter`, block by block, on views of its operands."""

    @staticmethod
    def forward(maps: Tensor, filters: Tensor) -> tuple[Tensor, Tensor]:
        rows = _toeplitz_rows(filters, _block_length(maps.shape[-1]))
        out = torch.empty_like(maps, memory_format=torch.contiguous_format)
        for outputs, inputs, band in _blocks(maps.shape, filters.shape):
            matrix = rows[:, : _length(outputs[2]), band].transpose(1, 2)
            out[outputs].baddbmm_(maps[inputs], matrix, beta=0)
        return out, rows

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]
    ) -> None:
        maps, filters = inputs
        _, rows = output
        ctx.mark_non_differentiable(rows)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(maps, filters, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        maps, filters, rows = ctx.saved_tensors
        grad = grads[0]
        if grad is None:
            return None, None
        if torch.is_grad_enabled():  # a second derivative needs the graph of the rows
            rows = _toeplitz_rows(filters, rows.shape[1])
        count, block, width = rows.shape
        grad_maps = torch.zeros_like(maps, memory_format=torch.contiguous_format)
        grad_flat = rows.new_zeros(count, block * (width + 1))
        grad_rows = grad_flat[:, : block * width].view(count, block, width)
        for outputs, inputs, band in _blocks(maps.shape, filters.shape):
            height = _length(outputs[2])
            piece = grad[outputs]
            grad_maps[inputs].baddbmm_(piece, rows[:, :height, band])
            grad_rows[:, :height, band].baddbmm_(piece.transpose(1, 2), maps[inputs])
        # Rows one element longer line the shifted filters up again.
        grad_filters = grad_flat.view(count, block, width + 1).sum(dim=1)
        return grad_maps, grad_filters[:, : filters.shape[1]]


def _toeplitz_rows(filters: Tensor, block: int) -> Tensor:
    """Repeat every filter in ``block`` rows, each shifted right by one more sample."""
    count, kernel = filters.shape
    width = block + kernel
    # Copies one element longer than the rows they are read back as: reading shifts each by one.
    copies = F.pad(filters, (0, block))[:, None, :].expand(count, block, width)
    rows = copies.reshape(count, block * width)[:, : block * (width - 1)]
    return rows.view(count, block, width - 1)


_Index = tuple[slice, slice, slice]


def _blocks(maps: torch.Size, filters: torch.Size) -> Iterator[tuple[_Index, _Index, slice]]:
    """Yield (outputs, the inputs they need, columns of the Toeplitz rows) for every block."""
    samples, kernel = maps[-1], filters[-1]
    everything = slice(None)
    left, right = same_padding(kernel)
    block = _block_length(samples)
    for start in range(0, samples, block):
        stop = min(start + block, samples)
        first, last = max(start - left, 0), min(stop + right, samples)
        band = slice(first - start + left, last - start + left)
        outputs = (everything, everything, slice(start, stop))
        yield outputs, (everything, everything, slice(first, last)), band


def _length(piece: slice) -> int:
    return int(piece.stop - piece.start)
