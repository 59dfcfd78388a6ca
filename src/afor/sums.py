"""The five sums of each tensor that RASS needs, added in float64 by ordinary operators."""

import functools

import torch
from torch import Tensor

from afor.torch_private import flatten, foreach_mul

CHUNK = 1 << 20  # elements reduced at once, so that the float64 copies stay small
CPU_CHUNK = 1 << 16  # the same on CPU, so that the copies stay in cache
ROW = 1 << 24  # maximum number of elements in a row of concatenated tensors
CPU_ROW = 1 << 16  # the same on CPU, where only small tensors gain from concatenation


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype in which sums are accumulated on a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def tensor_sums(grad: Tensor, exp_avg: Tensor, wide: torch.dtype) -> list[Tensor]:
    """Return mean |g - m|, sum g^2, sum m^2 and <g, m>, added in ``wide``."""
    n = max(grad.numel(), 1)
    parts = []
    for g, m in _chunks(grad, exp_avg):
        g, m = g.to(wide), m.to(wide)
        parts.append([(g - m).abs().sum() / n, g.dot(g), m.dot(m), g.dot(m)])
    if len(parts) == 1:
        return parts[0]
    return list(torch.stack([torch.stack(part) for part in parts]).sum(dim=0).unbind())


def absolute_mean(x: Tensor, wide: torch.dtype) -> Tensor:
    """Return mean |x|, added in ``wide``; zero for an empty tensor."""
    parts = [part.to(wide).abs().sum() for (part,) in _chunks(x)]
    total = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
    return total / max(x.numel(), 1)


def _chunks(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Split tensors of equal shape into flat chunks, so that wide copies of them stay small."""
    flat = [t.reshape(-1) for t in tensors]
    size = CPU_CHUNK if tensors[0].device.type == "cpu" else CHUNK
    if tensors[0].numel() <= size or torch.compiler.is_compiling():
        return [tuple(flat)]
    return list(zip(*(torch.split(t, size) for t in flat), strict=True))


def cut_rows(tensors: list[Tensor]) -> list[slice]:
    """Split a list into rows of at most ``ROW`` elements; a larger tensor is a row of its own."""
    limit = CPU_ROW if tensors[0].device.type == "cpu" else ROW
    rows, begin, elements = [], 0, 0
    for i, tensor in enumerate(tensors):
        if i > begin and elements + tensor.numel() > limit:
            rows.append(slice(begin, i))
            begin, elements = i, 0
        elements += tensor.numel()
    return [*rows, slice(begin, len(tensors))]


def singles(tensors: list[Tensor]) -> list[slice]:
    """Split a list into rows of one tensor each."""
    return [slice(i, i + 1) for i in range(len(tensors))]


def row_sums(
    grads: list[Tensor], exp_avgs: list[Tensor], beta1: float, wide: torch.dtype
) -> Tensor:
    """Return the five sums of each tensor of a row, (5, tensors)."""
    if len(grads) == 1:
        grad, before = grads[0], exp_avgs[0]
        residual, *products = tensor_sums(grad, before, wide)
        moved = torch.lerp(before, grad, 1.0 - beta1)
        return torch.stack([residual, absolute_mean(moved, wide), *products])[:, None]
    both = flatten([*grads, *exp_avgs]).view(2, -1)
    grad, before = both.unbind()
    moved = torch.lerp(before, grad, 1.0 - beta1)
    if grad.device.type == "cpu":  # products of float32 numbers overflow beyond 1e19
        both = both.to(wide)
    return segment_sums(both, moved, tuple(g.numel() for g in grads), wide)


def segment_sums(both: Tensor, moved: Tensor, sizes: tuple[int, ...], wide: torch.dtype) -> Tensor:
    """Return the five sums of each tensor of a row, (5, tensors).

    Args:
        both: Concatenated gradients, and concatenated first moments before the step, (2, elements).
        moved: Concatenated first moments after the step.
        sizes: Number of elements of each tensor.
        wide: Dtype in which the sums are accumulated.
    """
    grad, before = both.unbind()
    terms = torch.cat((grad - before, moved, (both * both).view(-1), grad * before))
    terms[: 2 * len(moved)].abs_()
    return reduce_segments(terms.to(wide), sizes)


def reduce_segments(terms: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the sums of the terms of each tensor of a row, (5, tensors), the first two as means.

    Args:
        terms: Terms of the first sum of all tensors, then those of the second and so on, flat.
        sizes: Number of elements of each tensor.
    """
    lengths, divisors = sizes_of(sizes, terms.device)
    sums = torch.segment_reduce(terms, "sum", lengths=lengths, unsafe=True)
    return sums.div_(divisors).view(5, -1)


def sizes_of(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the number of terms and the divisor of each of the five sums of all tensors."""
    if device.type == "cpu" and not torch.compiler.is_compiling():
        return _host_sizes(sizes)
    return _with_divisors(on_device(list(sizes), device))


@functools.lru_cache(maxsize=64)
def _host_sizes(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    lengths, divisors = _with_divisors(torch.tensor(sizes))
    return lengths, divisors.double()


def _with_divisors(lengths: Tensor) -> tuple[Tensor, Tensor]:
    counts, ones = lengths.clamp_min(1), torch.ones_like(lengths)
    return lengths.repeat(5), torch.cat((counts, counts, ones, ones, ones))


@functools.lru_cache(maxsize=32)
def positions(sizes: tuple[int, ...]) -> Tensor:
    """Return, for each element of a row on CPU, the position of its tensor in the row."""
    return torch.arange(len(sizes), dtype=torch.int32).repeat_interleave(torch.tensor(sizes))


def on_device(sizes: list[int], device: torch.device) -> Tensor:
    """Return the numbers as a vector on the device, without a host sync."""
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(sizes, device=device)
    ones = torch.ones(len(sizes), dtype=torch.int64, device=device).unbind()
    return torch.stack(foreach_mul(ones, sizes))  # scalars are kernel arguments
