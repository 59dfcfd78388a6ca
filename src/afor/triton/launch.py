"""The CUDA path: address tables, and two launches of the Triton kernels for a whole group.

Not yet run on a GPU: see `kernels.py`, which is imported at the first step.

There is no host sync. The kernels find the tensors through small tables that are uploaded from
pinned memory, and only if an address, a size or a setting has changed.
"""

import contextlib
import functools
import importlib.util
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from afor.control import ControlSettings, Sums
from afor.tensors import STATE, Implementation, StepOptions, StepTensors, find_problem
from afor.triton.self_check import check_once

MIN_PIECE = 8192  # minimum number of elements of one program
MAX_PIECES = 512  # maximum number of programs of a tensor: each reads the partial sums of all
_TINY = 1e-300  # as in `control.py`
_ALIGNMENT = 16  # bytes of the widest load
_TABLES = 64  # cached tables: one per group and set of gradient addresses in use


def triton_unavailable_reason() -> str | None:
    """Return the reason why the Triton kernels cannot be used, or None if they can."""
    if importlib.util.find_spec("triton") is None:
        return (
            "Triton is not installed; it comes with torch's CUDA wheels for Linux, "
            "or by `pip install triton`"
        )
    if os.environ.get("TRITON_INTERPRET") != "1" and not torch.cuda.is_available():
        return "torch sees no CUDA device"
    return None


class TritonStep(Implementation):
    """A step on CUDA tensors: two launches per device and set of dtypes.

    ``grad_scale`` and ``found_inf`` are read on the device: gradients are divided by the first, and
    nothing changes (not even the step count) if the second is not zero. Tensors that are not dense,
    or whose strides differ, are copied. Nothing is modified before the second launch. The first
    step on a device checks the kernels, unless ``check_fused`` is False; see `self_check`.
    """

    def __init__(self, tensors: StepTensors, options: StepOptions) -> None:
        self.tensors = tensors
        self._copies: list[tuple[Tensor, Tensor]] = []  # to copy back after the step
        for device in {p.device for p in tensors.params} if options.check_fused else ():
            if _can_check(device):
                check_kernels(device)
        buckets: dict[tuple[Any, ...], dict[int, _Entry]] = {}
        for position, row in enumerate(zip(*tensors, strict=True)):
            entry = _checked_entry(_Entry(*row), self._copies)
            key = (entry.param.device, *(t.dtype for t in entry))
            buckets.setdefault(key, {})[position] = entry
        self._launches = [
            (list(entries), _Launch(list(entries.values()), options))
            for entries in buckets.values()
        ]

    def step(self) -> None:
        """Take the step: the second kernel adds up the partial sums by itself."""
        for _, launch in self._launches:
            launch.sum_pieces()
            launch.update()
        self._copy_back()

    def sums(self) -> Sums:
        """Return the five sums of each tensor."""
        sums: dict[int, Tensor] = {}
        for positions, launch in self._launches:
            launch.sum_pieces()
            sums.update(zip(positions, launch.sums().unbind(dim=1), strict=True))
        return Sums(*torch.stack([sums[i] for i in range(len(sums))], dim=1).unbind())

    def finish(self, sums: Sums) -> None:
        """Take the step with the sums of whole tensors."""
        by_tensor = torch.stack(sums, dim=1).unbind()
        for _, launch in self._launches:
            launch.check_addresses()
        for positions, launch in self._launches:
            launch.update(torch.stack([by_tensor[i] for i in positions]))
        self._copy_back()

    def _copy_back(self) -> None:
        """Copy back what was updated elsewhere, and let autograd know of the writes."""
        for stored, used in self._copies:
            stored.copy_(used)
        # Autograd does not see the kernels' writes; a graph that saved a parameter must raise.
        torch.autograd.graph.increment_version(self.tensors.params)


class _Entry(NamedTuple):
    """One tensor of the group, in the order of the address table."""

    param: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    control: Tensor
    step: Tensor


def _checked_entry(entry: _Entry, copies: list[tuple[Tensor, Tensor]]) -> _Entry:
    """Return checked tensors in one dense memory order; append those to copy back to ``copies``."""
    param, grad, *state = entry
    problem = find_problem(param, dict(zip(STATE, state, strict=True)), grad)
    if problem is not None:
        raise RuntimeError(f"fused AFOR: {problem}; restore parameter, gradient and state")
    if not entry.control.is_contiguous():
        raise RuntimeError("fused AFOR: control is not contiguous; use control.contiguous()")
    shaped = [t.detach() for t in (param, grad.resolve_conj(), entry.exp_avg, entry.exp_avg_sq)]
    shaped = [torch.view_as_real(t) if t.is_complex() else t for t in shaped]
    if not _is_one_order(shaped):
        flat = [t.resolve_neg().contiguous() for t in shaped]
        written = (0, 2, 3)  # all but the gradient
        copies.extend((shaped[i], flat[i]) for i in written if shaped[i] is not flat[i])
        shaped = flat
    param, grad, exp_avg, exp_avg_sq = shaped
    return _Entry(param, grad, exp_avg, exp_avg_sq, entry.control, entry.step)


def _is_one_order(tensors: Sequence[Tensor]) -> bool:
    """Return True if all tensors are dense and have the same memory order."""
    if any(t.is_neg() for t in tensors):  # the memory holds the negated values
        return False
    if all(t.is_contiguous() for t in tensors):
        return True
    if any(t.stride() != tensors[0].stride() for t in tensors):
        return False
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensors[0]))


class _Launch:
    """The tables and the two launches of one step, on tensors of one device and set of dtypes."""

    def __init__(self, entries: list[_Entry], options: StepOptions) -> None:
        from afor.triton import kernels

        self.kernels, self.entries = kernels, entries
        s, lr = options.settings, options.lr
        self.device = entries[0].param.device
        with _device_context(self.device):
            on_host = not isinstance(lr, Tensor) or lr.device.type == "cpu"
            rate = lr if on_host else cast("Tensor", lr).to(self.device, non_blocking=True)
            grad_scale = _to(options.grad_scale, self.device)
            found_inf = _to(options.found_inf, self.device)
        lr_on_device = isinstance(rate, Tensor) and rate.device == self.device
        rate_on_host = 0.0 if lr_on_device else float(rate)
        values = setting_values(s, rate_on_host, options.weight_decay)
        self.addresses = addresses = _addresses(entries)
        aligned = all(
            address % _ALIGNMENT == 0
            for column in range(4)
            for address in addresses[column :: kernels.COLUMNS]
        )
        with _device_context(self.device):
            target = (self.device, _stream(self.device))
            table = _upload(addresses, torch.int64, target)
            numbers = _upload(values, torch.float64, target)
            sizes = tuple(entry.param.numel() for entry in entries)
            self.layout, self.owners = _layout(sizes, target)
        self.programs = self.owners.numel()
        empty = functools.partial(torch.empty, dtype=torch.float64, device=self.device)
        self.partials = empty(kernels.SUMS * self.programs)
        self.snapshot = empty(len(entries) * kernels.SNAPSHOT)

        names = zip(_Entry._fields, entries[0], strict=True)
        dtypes = {name: _triton_dtype(t.dtype) for name, t in names}
        double = entries[0].exp_avg.dtype == torch.float64
        self.shared = {
            "GRAD": dtypes["grad"],
            "MOMENT": dtypes["exp_avg"],
            "CONTROL": dtypes["control"],
            "STEP": dtypes["step"],
            "WORK": dtypes["exp_avg"] if double else _triton_dtype(torch.float32),
            "ALIGNED": aligned,
            "SCALED": grad_scale is not None,
            "MAXIMIZE": options.maximize,
            "enable_fp_fusion": True,
        }
        self.update_only = {
            "PARAM": dtypes["param"],
            "CHECKED": found_inf is not None,
            "LR_TENSOR": lr_on_device,
            "FAST_CHANNEL": s.fast_channel,
            "SELF_NORMALIZED": s.normalization == "self",
            "CUMULATIVE": s.correction == "cumulative",
            "CALIBRATED": s.statistics == "calibrated",
        }
        self.tables = (table, self.layout, self.owners, numbers)
        # An unused pointer still needs a value.
        self.scale = numbers if grad_scale is None else grad_scale
        flag = numbers if found_inf is None else found_inf
        self.scalars = (flag, rate if lr_on_device else numbers)

    def check_addresses(self) -> None:
        """Raise RuntimeError if a tensor has other memory than when its sums were computed."""
        if _addresses(self.entries) != self.addresses:
            raise RuntimeError(
                "fused AFOR: the storage of a tensor was resized while the sums were completed; "
                "nothing was changed on this device. Leave parameters, gradients and state alone "
                "until the step has ended"
            )

    def sum_pieces(self) -> None:
        """Launch the first kernel: partial sums, and a copy of the old control state."""
        memory = (*self.tables, self.partials, self.snapshot, self.scale)
        with _device_context(self.device):
            self.kernels.sums_kernel[(self.programs,)](*memory, **self.shared)

    def sums(self) -> Tensor:
        """Return the five sums of each tensor, (5, tensors), added in a fixed order."""
        pieces_of = self.layout.view(-1, self.kernels.LAYOUT)[:, 3]
        sums = torch.segment_reduce(
            self.partials, "sum", lengths=pieces_of.repeat(self.kernels.SUMS), unsafe=True
        ).view(self.kernels.SUMS, -1)
        sums[:2] /= self.layout.view(-1, self.kernels.LAYOUT)[:, 0].clamp_min(1)
        return sums

    def update(self, completed: Tensor | None = None) -> None:
        """Launch the second kernel, with the partial sums or with completed ones, (tensors, 5)."""
        sums = self.partials
        if completed is not None:
            sums = completed.to(self.device, torch.float64).contiguous()
        memory = (*self.tables, sums, self.snapshot, self.scale, *self.scalars)
        with _device_context(self.device):
            self.kernels.update_kernel[(self.programs,)](
                *memory, **self.shared, **self.update_only, COMPLETED=completed is not None
            )


def _can_check(device: torch.device) -> bool:
    """Return True on a GPU, but not during graph capture, which `_upload` refuses."""
    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


def check_kernels(device: torch.device) -> None:
    """Check the kernels on a CUDA device, once per process; see `self_check.check_once`."""
    check_once(TritonStep, device)


def _addresses(entries: list[_Entry]) -> tuple[int, ...]:
    return tuple(t.data_ptr() for entry in entries for t in entry)


def setting_values(s: ControlSettings, lr: float, weight_decay: float) -> tuple[float, ...]:
    """Return the numbers of the settings vector, in the order of `kernels.py`."""
    logarithms = (math.log(beta) if beta > 0.0 else -math.inf for beta in (s.beta1, s.beta2))
    return (
        lr, weight_decay, 1.0 - s.beta1, 1.0 - s.beta2, *logarithms, s.eps, s.beta2 - s.beta2_min,
        s.direction_weight, 1.0 - s.direction_decay, float(s.warmup_steps), s.fixed_mean,
        s.fixed_scale, s.zscore_clip, _TINY, sys.float_info.max,
    )  # fmt: skip


def pieces(elements: int, block: int) -> tuple[int, int]:
    """Return the number of elements of a piece, a multiple of ``block``, and the number of pieces.

    Both depend on the size alone, so sums are the same on every device and in every group. An empty
    tensor has one piece: its step count and its control state still advance.
    """
    size = max(MIN_PIECE, -(-elements // (MAX_PIECES * block)) * block)
    return size, max(-(-elements // size), 1)


@functools.lru_cache(maxsize=_TABLES)
def _layout(sizes: tuple[int, ...], target: tuple[torch.device, int]) -> tuple[Tensor, Tensor]:
    """Return the layout table of the tensors, and the tensor that each program works on.

    A row of the table is (elements, elements per piece, first program, pieces).
    """
    from afor.triton.kernels import BLOCK

    rows: list[int] = []
    owners: list[int] = []
    for index, elements in enumerate(sizes):
        size, count = pieces(elements, BLOCK)
        rows += (elements, size, len(owners), count)
        owners += [index] * count
    return _upload(tuple(rows), torch.int64, target), _upload(tuple(owners), torch.int64, target)


@functools.lru_cache(maxsize=4 * _TABLES)
def _upload(
    values: tuple[int | float, ...], dtype: torch.dtype, target: tuple[torch.device, int]
) -> Tensor:
    """Return the values on the device, uploaded from pinned memory without a host sync.

    The values are the cache key, so a cached table is never stale. The stream of ``target``, a
    device and a stream, is part of the key: it orders the upload before the kernels.
    """
    device, _ = target
    host = torch.tensor(values, dtype=dtype)
    if device.type == "cpu":
        return host
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "fused AFOR on CUDA cannot be captured in a CUDA graph: its tables of addresses are "
            "uploaded from host memory; use foreach=True with capturable=True"
        )
    return host.pin_memory().to(device, non_blocking=True)


def _device_context(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _to(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device, non_blocking=True)


def _triton_dtype(dtype: torch.dtype) -> Any:
    import triton.language as tl

    names = ("float16", "bfloat16", "float32", "float64")
    name = str(dtype).removeprefix("torch.")
    if name not in names:
        raise TypeError(
            f"fused AFOR takes float16, bfloat16, float32 and float64 on CUDA, got {dtype}"
        )
    return getattr(tl, name)
