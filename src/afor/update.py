"""The update of one parameter group: choose an implementation; the for-loop and the foreach one.

Every implementation reduces gradient and momentum of each tensor to five sums (RASS), lets the
controller compute a decay coefficient from them (AFC, `control.py`), and updates moments and
parameter. They differ in the number of operators they call. `choose` names one, `implementations`
makes it; `native` and `triton` hold the compiled ones.
"""

import functools
from array import array
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from afor import torch_private
from afor.control import Coefficients, ControlSettings, Sums, advance, advance_floats
from afor.native.binding import (
    KernelStep,
    PlanCache,
    is_native,
    kernel_settings,
    log_missing_kernel,
    unavailable_reason,
)
from afor.tensors import Implementation, StepOptions, StepTensors, is_plain
from afor.triton.launch import TritonStep

MAX_SCALAR_TENSORS = 64  # up to this many tensors, plain floats beat vectorised control on CPU
CHUNK = 1 << 20  # elements reduced at once, so that the float64 copies stay small
CPU_CHUNK = 1 << 16  # the same on CPU, so that the copies stay in cache
TOGETHER = 1 << 24  # maximum number of elements of tensors that are concatenated
CPU_TOGETHER = 1 << 14  # the same on CPU, where only small tensors gain from it
FOREACH_ON_CPU = 1 << 18  # up to this many elements foreach beats the for-loop there

Name = Literal["fused", "foreach", "for-loop"]


def choose(
    params: Sequence[Tensor], *, foreach: bool | None, fused: bool | None, differentiable: bool
) -> Name:
    """Return the name of the implementation that a step takes: the one set, or the fastest valid.

    That is the native kernel on CPU where it was built, and foreach on accelerators.
    """
    if fused:
        on_cuda = any(p.device.type == "cuda" for p in params)
        # inductor generates its own kernels
        return "foreach" if on_cuda and torch.compiler.is_compiling() else "fused"
    if foreach is not None or fused is not None:
        return "foreach" if foreach else "for-loop"
    if differentiable or not is_plain(params):
        return "for-loop"
    devices = {p.device.type for p in params}
    if devices == {"cpu"}:
        if unavailable_reason() is None:
            return "fused"
        log_missing_kernel()
        return "foreach" if sum(p.numel() for p in params) <= FOREACH_ON_CPU else "for-loop"
    return "foreach" if devices <= {*torch_private.foreach_devices()} else "for-loop"


def implementations(
    name: Name, tensors: StepTensors, options: StepOptions, cache: PlanCache | None = None
) -> list[Implementation]:
    """Return what takes a step on tensors, each on some of them.

    Args:
        name: What `choose` returned.
        tensors: The tensors.
        options: The options of their group.
        cache: Where the native kernel keeps its plan between steps.
    """
    if isinstance(options.lr, Tensor):
        options = options._replace(lr=options.lr.reshape(()))  # foreach takes no other shape
    if name == "fused" and tensors.params and tensors.params[0].device.type == "cuda":
        return [TritonStep(tensors, options)]
    parts: list[Implementation] = []
    if name == "fused":
        if options.is_skipped():
            return []
        rows = zip(*tensors, strict=True)
        native = [is_plain([p]) and is_native(p, grad, state) for p, grad, *state in rows]
        factor = options.gradient_factor()
        settings = kernel_settings(options.settings, options.weight_decay, factor)
        if any(native):
            parts.append(KernelStep(tensors.select(native), options.lr, settings, cache))
        # What the kernel does not support, such as complex tensors, goes through the for-loop.
        tensors = tensors.select([not supported for supported in native])
        tensors = tensors._replace(grads=[grad * factor for grad in tensors.grads])
        options = options._replace(maximize=False)
    loop = Foreach if name == "foreach" else ForLoop
    return [*parts, *(loop(part, options) for part in tensors.by_device_and_dtype())]


# --------------------------------------------------------------------------------- the five sums


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype in which sums are accumulated on a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _tensor_sums(grad: Tensor, exp_avg: Tensor, wide: torch.dtype) -> list[Tensor]:
    """Return mean |g - m|, sum g^2, sum m^2 and <g, m>, added in ``wide``."""
    n = max(grad.numel(), 1)
    parts = []
    for g, m in _chunks(grad, exp_avg):
        g, m = g.to(wide), m.to(wide)
        parts.append([(g - m).abs().sum() / n, g.dot(g), m.dot(m), g.dot(m)])
    if len(parts) == 1:
        return parts[0]
    return list(torch.stack([torch.stack(part) for part in parts]).sum(dim=0).unbind())


def _absolute_mean(x: Tensor, wide: torch.dtype) -> Tensor:
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


def gather(tensors: list[Tensor]) -> list[slice]:
    """Return runs of small tensors that are concatenated; a large tensor is a run of its own."""
    limit = CPU_TOGETHER if tensors[0].device.type == "cpu" else TOGETHER
    runs, begin, elements = [], 0, 0
    for i, tensor in enumerate(tensors):
        if i > begin and elements + tensor.numel() > limit:
            runs.append(slice(begin, i))
            begin, elements = i, 0
        elements += tensor.numel()
    return [*runs, slice(begin, len(tensors))]


def _segment_sums(both: Tensor, moved: Tensor, sizes: tuple[int, ...], wide: torch.dtype) -> Tensor:
    """Return the five sums of each of some concatenated tensors, (5, tensors).

    Args:
        both: Gradients, and first moments before the step, (2, elements).
        moved: First moments after the step.
        sizes: Number of elements of each tensor.
        wide: Dtype in which the sums are accumulated.
    """
    if both.device.type == "cpu":  # products of float32 numbers overflow beyond 1e19
        both = both.to(wide)
    grad, before = both.unbind()
    terms = torch.cat((grad - before, moved.to(both.dtype), (both * both).view(-1), grad * before))
    terms[: 2 * len(moved)].abs_()
    if both.device.type == "cpu" and not torch.compiler.is_compiling():
        lengths, divisors = _host_sizes(sizes)
    else:
        lengths, divisors = _with_divisors(on_device(list(sizes), both.device))
    sums = torch.segment_reduce(terms.to(wide), "sum", lengths=lengths, unsafe=True)
    return sums.div_(divisors).view(5, -1)


@functools.lru_cache(maxsize=64)
def _host_sizes(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    lengths, divisors = _with_divisors(torch.tensor(sizes))
    return lengths, divisors.double()


def _with_divisors(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of terms and the divisor of each of the five sums of all tensors."""
    counts, ones = lengths.clamp_min(1), torch.ones_like(lengths)
    return lengths.repeat(5), torch.cat((counts, counts, ones, ones, ones))


def on_device(sizes: list[int], device: torch.device) -> Tensor:
    """Return the numbers as a vector on the device, without a host sync."""
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(sizes, device=device)
    ones = torch.ones(len(sizes), dtype=torch.int64, device=device).unbind()
    return torch.stack(torch_private.foreach_mul(ones, sizes))  # scalars are kernel arguments


# --------------------------------------------------------------------------------- the controller


def _control(tensors: StepTensors, sums: Sums, settings: ControlSettings) -> Coefficients:
    """Increment the step counts and advance the control states, in place.

    Returns:
        The coefficients, as lists of tensors, or of floats for up to `MAX_SCALAR_TENSORS`.
    """
    controls, steps = tensors.controls, tensors.steps
    if _use_scalar_control(controls):
        try:
            return _scalar_control(controls, steps, sums, settings)
        except (ArithmeticError, ValueError):
            pass  # a corrupt state: vectors give NaN where floats raise
    wide = sums.residual.dtype
    count = torch.stack(steps) + 1
    stacked = torch.stack(controls, dim=1).to(wide)
    new, coefficients = advance(stacked, count.to(wide), sums, settings, controls[0].dtype)
    rows = (*new.unbind(dim=1), *count.unbind())
    if new.requires_grad:
        for kept, row in zip((*controls, *steps), rows, strict=True):
            kept.copy_(row)
    else:
        torch_private.foreach_copy_([*controls, *steps], rows)
    return Coefficients(*(list(c.unbind()) for c in coefficients))


def _use_scalar_control(controls: list[Tensor]) -> bool:
    """Return True if Python floats are faster than torch operators and allowed.

    Dispatch modes (operation counters, fake tensors) must see every operator.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    return (
        len(controls) <= MAX_SCALAR_TENSORS
        and type(controls[0]) is Tensor
        and controls[0].device.type == "cpu"
        and not torch_private.is_watched()
    )


def _scalar_control(
    controls: list[Tensor], steps: list[Tensor], sums: Sums, settings: ControlSettings
) -> Coefficients:
    new: list[float] = []
    coefficients = []
    states, counts = map(Tensor.tolist, controls), map(Tensor.item, steps)
    for state, count, *row in zip(states, counts, *map(Tensor.tolist, sums), strict=True):
        held, (forgetting, correction, scale, shift) = advance_floats(
            state, count + 1.0, row, settings
        )
        new += (*held, forgetting, correction)
        coefficients.append((forgetting, scale, shift))
    table = torch.frombuffer(array("d", new), dtype=torch.float64)  # faster than tensor()
    torch_private.foreach_copy_(controls, table.view(len(controls), -1).unbind())
    torch_private.foreach_add_(steps, [torch.ones(())] * len(steps))
    return Coefficients(*map(list, zip(*coefficients, strict=True)))


# ------------------------------------------------------------------------------------- the update


def _work_dtype(exp_avg: Tensor) -> torch.dtype:
    """Return the dtype of the elementwise arithmetic: that of the moments, at least float32."""
    return torch.float32 if exp_avg.dtype in (torch.float16, torch.bfloat16) else exp_avg.dtype


def _largest_finite(work: torch.dtype) -> float:
    """Return the largest finite value of the dtype of the elementwise arithmetic.

    An infinite second moment is clamped to it before averaging: lerp between two infinities gives
    NaN, whereas AdamW stays at infinity and takes no step.
    """
    return torch.finfo(work).max


def _multiply_by_lr(lr: float | Tensor) -> bool:
    """Return True if the update is multiplied by lr, False if lr is passed to addcdiv.

    addcdiv does not accept a tensor; and compiled (inductor, torch 2.13) it keeps using the old
    value of a float that changes between steps.
    """
    return isinstance(lr, Tensor) or torch.compiler.is_compiling()


def _as_real(tensors: list[Tensor]) -> list[Tensor]:
    """View complex tensors as pairs of reals, as torch's optimizers do."""
    if not tensors[0].is_complex():
        return tensors
    return [torch.view_as_real(t.resolve_conj()) for t in tensors]


def _descend(
    param: Tensor,
    grad: Tensor,
    momentum: Tensor,
    square: Tensor,
    coefficients: Sequence[Any],
    options: StepOptions,
) -> None:
    """Update second moment and parameter, in place; coefficients are numbers or tensors."""
    forgetting, scale, shift = coefficients
    lr, weight_decay = options.lr, options.weight_decay
    square.clamp_max_(_largest_finite(square.dtype)).lerp_(grad * grad, forgetting)
    denominator = square.sqrt().mul_(scale).add_(shift)
    if weight_decay != 0.0:
        param.mul_(1.0 - lr * weight_decay)
    if isinstance(lr, Tensor) or _multiply_by_lr(lr):
        param.sub_((momentum / denominator).mul_(lr))
    else:
        param.addcdiv_(momentum, denominator, value=-lr)


class ForLoop(Implementation):
    """A step on tensors of one device and dtype, one after the other."""

    def __init__(self, tensors: StepTensors, options: StepOptions) -> None:
        self.tensors, self.options = tensors, options
        self.params, self.grads, self.exp_avgs, self.exp_avg_sqs = map(_as_real, tensors[:4])
        self.work, self.wide = _work_dtype(self.exp_avgs[0]), sum_dtype(self.params[0].device)
        self.moved: list[tuple[Tensor, Tensor]] = []  # gradients and new first moments

    def sums(self) -> Sums:
        """Return the five sums of each tensor; the first moments are updated."""
        return Sums(*torch.stack([self._sums(i) for i in range(len(self.params))], dim=1).unbind())

    def _sums(self, i: int) -> Tensor:
        """Return the five sums of a tensor; keep its gradient and first moment."""
        grad, exp_avg = self.grads[i].to(self.work), self.exp_avgs[i]
        grad = -grad if self.options.maximize else grad
        differentiable, weight = self.options.differentiable, 1.0 - self.options.settings.beta1
        before = exp_avg.clone() if differentiable else exp_avg
        residual, *products = _tensor_sums(grad, before, self.wide)
        if differentiable or exp_avg.dtype != self.work:
            momentum = torch.lerp(exp_avg.to(self.work, copy=True), grad, weight)
            exp_avg.copy_(momentum)
        else:
            momentum = exp_avg.lerp_(grad, weight)
        self.moved.append((grad, momentum))
        return torch.stack([residual, _absolute_mean(momentum, self.wide), *products])

    def finish(self, sums: Sums) -> None:
        """Advance the control states and update."""
        coefficients = _control(self.tensors, sums, self.options.settings)
        for i in range(len(self.params)):
            self._finish(i, coefficients)

    def _finish(self, i: int, coefficients: Coefficients) -> None:
        (grad, momentum), param, exp_avg_sq = self.moved[i], self.params[i], self.exp_avg_sqs[i]
        forgetting, scale, shift = (column[i] for column in coefficients)
        if self.options.differentiable:
            lr = self.options.lr
            square = torch.lerp(exp_avg_sq.to(self.work, copy=True), grad * grad, forgetting)
            updated = param.to(self.work, copy=True)
            if self.options.weight_decay != 0.0:
                updated = updated * (1.0 - lr * self.options.weight_decay)
            updated = updated - lr * (momentum / (square.sqrt() * scale + shift))
        else:
            square, updated = exp_avg_sq.to(self.work), param.to(self.work)
            _descend(updated, grad, momentum, square, (forgetting, scale, shift), self.options)
        for stored, new in ((exp_avg_sq, square), (param, updated)):
            if stored is not new:
                stored.copy_(new)


class Foreach(Implementation):
    """A step on tensors of one device and dtype with foreach operators; no host sync on any device.

    Nothing is modified before `finish`.
    """

    def __init__(self, tensors: StepTensors, options: StepOptions) -> None:
        self.tensors, self.options = tensors, options
        stored = map(_as_real, (tensors.params, tensors.exp_avgs, tensors.exp_avg_sqs))
        self.stored = list(stored)
        self.work = _work_dtype(self.stored[1][0])
        self.used = [_converted(column, self.work) for column in self.stored]
        self.grads = _converted(_as_real(tensors.grads), self.work)
        if options.maximize:
            self.grads = list(torch_private.foreach_neg(self.grads))

    def sums(self) -> Sums:
        """Return the five sums of each tensor."""
        (params, momenta, _), wide = self.used, sum_dtype(self.grads[0].device)
        weight = 1.0 - self.options.settings.beta1
        sums = []
        for run in gather(params):
            grads, exp_avgs = self.grads[run], momenta[run]
            if len(grads) == 1:
                residual, *products = _tensor_sums(grads[0], exp_avgs[0], wide)
                moved = torch.lerp(exp_avgs[0], grads[0], weight)
                row = torch.stack([residual, _absolute_mean(moved, wide), *products])[:, None]
            else:
                both = torch_private.flatten([*grads, *exp_avgs]).view(2, -1)
                grad, before = both.unbind()
                moved = torch.lerp(before, grad, weight)
                row = _segment_sums(both, moved, tuple(g.numel() for g in grads), wide)
            sums.append(row)
        return Sums(*(sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)).unbind())

    def finish(self, sums: Sums) -> None:
        """Advance the control states and update."""
        forgetting, scale, shift = _control(self.tensors, sums, self.options.settings)
        params, momenta, squares = self.used
        torch_private.foreach_lerp_(momenta, self.grads, 1.0 - self.options.settings.beta1)
        torch_private.foreach_clamp_max_(squares, _largest_finite(self.work))
        grads_sq = torch_private.foreach_mul(self.grads, self.grads)
        torch_private.foreach_lerp_(squares, grads_sq, forgetting)
        roots = torch_private.foreach_sqrt(squares)
        descend = self._descend_floats if isinstance(scale[0], float) else self._descend_tensors
        descend(params, momenta, roots, scale, shift)
        for kept, used in zip(self.stored, self.used, strict=True):
            if kept[0].dtype != self.work:  # `used` holds copies
                torch_private.foreach_copy_(kept, used)

    def _descend_tensors(
        self, params: list[Tensor], momenta: list[Tensor], roots: list[Tensor],
        scale: list[Tensor], shift: list[Tensor],
    ) -> None:  # fmt: skip
        """Move the parameters by lr times momentum over (root times scale plus shift)."""
        lr, weight_decay = self.options.lr, self.options.weight_decay
        denominators = torch_private.foreach_addcmul(shift, roots, scale)
        if weight_decay != 0.0:
            torch_private.foreach_mul_(params, 1.0 - lr * weight_decay)
        if _multiply_by_lr(lr):
            updates = torch_private.foreach_div(momenta, denominators)
            torch_private.foreach_mul_(updates, lr)
            torch_private.foreach_sub_(params, updates)
        else:
            torch_private.foreach_addcdiv_(params, momenta, denominators, -lr)

    def _descend_floats(
        self, params: list[Tensor], momenta: list[Tensor], roots: list[Tensor],
        scale: list[float], shift: list[float],
    ) -> None:  # fmt: skip
        """Do the same on CPU, with the scale taken out of the fraction.

        Operands are tensors: given a number, foreach creates a tensor for each element of the list.
        """
        rate, weight_decay = float(self.options.lr), self.options.weight_decay
        if weight_decay != 0.0:
            decay = torch.tensor(1.0 - rate * weight_decay, dtype=self.work)
            torch_private.foreach_mul_(params, decay)
        offsets = torch.tensor([b / a for a, b in zip(scale, shift, strict=True)], dtype=self.work)
        torch_private.foreach_add_(roots, offsets.unbind())
        torch_private.foreach_addcdiv_(params, momenta, roots, [-rate / a for a in scale])


def _converted(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the list itself when it has the dtype, else copies."""
    return tensors if tensors[0].dtype == dtype else [t.to(dtype) for t in tensors]
