"""The update of one parameter group: picks an implementation; the for-loop and the foreach one.

Every implementation does the same: reduce gradient and momentum of each tensor to five sums (RASS),
let the controller turn them into a decay coefficient (AFC, `control.py`), update moments and
parameter. They differ in how many operators it takes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices

from afor.control import Coefficients, ControlSettings, Sums, advance
from afor.fused import fused_afor, unavailable_reason

CHUNK = 1 << 20  # elements reduced at once by the for-loop path: its float64 copies stay in cache


def afor(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    controls: list[Tensor],
    state_steps: list[Tensor],
    *,
    settings: ControlSettings,
    lr: float | Tensor,
    weight_decay: float,
    maximize: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    differentiable: bool = False,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Take one AFOR step on lists of tensors, in place.

    ``foreach`` and ``fused`` choose the implementation as in ``torch.optim``; ``None`` picks the
    fastest that is valid. ``grads`` are never written to.
    """
    if not params:
        return
    if isinstance(lr, Tensor):
        lr = lr.reshape(())  # foreach takes no other shape
    if fused is None and foreach is None:
        fused, foreach = default_implementation(params, differentiable=differentiable)
    lists = [params, grads, exp_avgs, exp_avg_sqs, controls, state_steps]
    if fused:
        left = fused_afor(
            params, grads, exp_avgs, exp_avg_sqs, controls, state_steps,
            settings=settings, lr=lr, weight_decay=weight_decay, maximize=maximize,
            grad_scale=grad_scale, found_inf=found_inf,
        )  # fmt: skip
        if left is None:
            return
        lists, maximize = left, False  # the rest goes through the for-loop
    step = _multi_tensor_afor if foreach else _single_tensor_afor
    for part in _by_device_and_dtype(lists):
        step(
            *part,
            settings=settings,
            lr=lr,
            weight_decay=weight_decay,
            maximize=maximize,
            differentiable=differentiable,
        )


def default_implementation(params: Sequence[Tensor], *, differentiable: bool) -> tuple[bool, bool]:
    """Return the fastest valid ``(fused, foreach)``.

    The native kernel on CPU when it was built, foreach on accelerators, the for-loop otherwise:
    on CPU foreach loses to the for-loop beyond a million parameters, as in torch.
    """
    if differentiable:
        return False, False
    if all(type(p) in (Tensor, torch.nn.Parameter) for p in params):
        devices = {p.device.type for p in params}
        if devices == {"cpu"}:
            return unavailable_reason() is None, False
        return False, devices <= set(_get_foreach_kernels_supported_devices())
    return False, False


def _by_device_and_dtype(lists: list[list[Tensor]]) -> list[list[list[Tensor]]]:
    """Split parallel lists so that each part has one device and one dtype of each kind."""
    kinds = [(p.device, p.dtype, m.dtype) for p, m in zip(lists[0], lists[2], strict=True)]
    if len(set(kinds)) == 1:
        return [lists]
    return [
        [[t for t, k in zip(column, kinds, strict=True) if k == kind] for column in lists]
        for kind in dict.fromkeys(kinds)
    ]


def _sum_dtype(device: torch.device) -> torch.dtype:
    """Return the widest dtype the device adds in."""
    return torch.float32 if device.type == "mps" else torch.float64


def _work_dtype(exp_avg: Tensor) -> torch.dtype:
    """Return the dtype of the elementwise arithmetic: that of the moments, never half."""
    return torch.float32 if exp_avg.dtype in (torch.float16, torch.bfloat16) else exp_avg.dtype


def _largest(square: Tensor) -> float:
    """Return the largest finite value of a dtype.

    A square that has left the range is brought back before it is averaged: between two infinities
    lerp gives NaN, where AdamW stays at infinity and takes no step.
    """
    return torch.finfo(square.dtype).max


def _scale_update(lr: float | Tensor) -> bool:
    """Tell whether the update is multiplied by lr, instead of handing lr to addcdiv.

    addcdiv takes no tensor; and compiled (inductor, torch 2.13) it goes on with the old value of a
    float that changes between steps.
    """
    return isinstance(lr, Tensor) or torch.compiler.is_compiling()


def _as_real(tensors: list[Tensor]) -> list[Tensor]:
    """View complex tensors as pairs of reals, as torch's optimizers do."""
    return [torch.view_as_real(t) if t.is_complex() else t for t in tensors]


def _control(
    controls: list[Tensor], steps: list[Tensor], sums: Sums, settings: ControlSettings
) -> Coefficients:
    """Advance all controls of a list at once and store them back."""
    wide = sums.residual.dtype
    stacked = torch.stack(controls, dim=1).to(wide)
    new, coefficients = advance(stacked, torch.stack(steps).to(wide), sums, settings)
    rows = list(new.to(controls[0].dtype).unbind(dim=1))
    if new.requires_grad:
        for control, row in zip(controls, rows, strict=True):
            control.copy_(row)
    else:
        torch._foreach_copy_(controls, rows)
    return coefficients


# ---------------------------------------------------------------------------------- for-loop


def _single_tensor_afor(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    controls: list[Tensor],
    state_steps: list[Tensor],
    *,
    settings: ControlSettings,
    lr: float | Tensor,
    weight_decay: float,
    maximize: bool,
    differentiable: bool,
) -> None:
    """Loop over the tensors; only the controller sees them all at once."""
    params, exp_avgs, exp_avg_sqs = _as_real(params), _as_real(exp_avgs), _as_real(exp_avg_sqs)
    work, wide = _work_dtype(exp_avgs[0]), _sum_dtype(params[0].device)
    grads = [
        -g.to(work) if maximize else g.to(work) for g in _as_real([g.resolve_conj() for g in grads])
    ]
    scale_update = _scale_update(lr)
    keep = differentiable or work != exp_avgs[0].dtype  # write results by copy, not in place

    sums, momenta = [], []
    for grad, exp_avg, step in zip(grads, exp_avgs, state_steps, strict=True):
        step.add_(1)
        before = exp_avg.clone() if differentiable else exp_avg
        known = _tensor_sums(grad, before, wide)
        momentum = _advance_average(exp_avg, grad, 1.0 - settings.beta1, work, keep=keep)
        sums.append(torch.stack([known[0], _absolute_mean(momentum, wide), *known[1:]]))
        momenta.append(momentum)
    columns = Sums(*torch.stack(sums, dim=1).unbind())
    coefficients = _control(controls, state_steps, columns, settings)

    forgetting, scale, shift = (c.to(work).unbind() for c in coefficients)
    for i, (param, grad, momentum, exp_avg_sq) in enumerate(
        zip(params, grads, momenta, exp_avg_sqs, strict=True)
    ):
        if not differentiable:
            exp_avg_sq.clamp_max_(_largest(exp_avg_sq))
        square = _advance_average(exp_avg_sq, grad * grad, forgetting[i], work, keep=keep)
        root = square.sqrt()
        if differentiable:  # sqrt needs its result for the backward
            denominator = root * scale[i] + shift[i]
        else:
            denominator = root.mul_(scale[i]).add_(shift[i])
        updated = param.to(work, copy=True) if differentiable else param.to(work)
        if weight_decay != 0.0:
            decay = 1.0 - lr * weight_decay
            updated = updated * decay if differentiable else updated.mul_(decay)
        if differentiable:
            updated = updated - lr * (momentum / denominator)
        elif isinstance(lr, Tensor) or scale_update:
            updated.sub_((momentum / denominator).mul_(lr))
        else:
            updated.addcdiv_(momentum, denominator, value=-lr)
        if updated is not param:
            param.copy_(updated)


def _advance_average(
    average: Tensor, value: Tensor, weight: float | Tensor, work: torch.dtype, *, keep: bool
) -> Tensor:
    """Move a running average towards ``value`` and return it in ``work``."""
    if not keep:
        return average.lerp_(value, weight)
    new = torch.lerp(average.to(work, copy=True), value, weight)
    average.copy_(new)
    return new


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
    """Cut tensors of one shape into flat pieces, so that wide copies of them stay small."""
    flat = [t.reshape(-1) for t in tensors]
    if tensors[0].numel() <= CHUNK or torch.compiler.is_compiling():
        return [tuple(flat)]
    return list(zip(*(torch.split(t, CHUNK) for t in flat), strict=True))


# ----------------------------------------------------------------------------------- foreach


def _multi_tensor_afor(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    controls: list[Tensor],
    state_steps: list[Tensor],
    *,
    settings: ControlSettings,
    lr: float | Tensor,
    weight_decay: float,
    maximize: bool,
    differentiable: bool,
) -> None:
    """Run each operator once for all tensors; no host sync on any device."""
    assert not differentiable
    stored = _as_real(params), _as_real(exp_avgs), _as_real(exp_avg_sqs)
    work, wide = _work_dtype(stored[1][0]), _sum_dtype(params[0].device)
    params, momenta, squares = (_converted(tensors, work) for tensors in stored)
    grads = _converted(_as_real([g.resolve_conj() for g in grads]), work)
    if maximize:
        grads = list(torch._foreach_neg(grads))

    torch._foreach_add_(state_steps, 1)
    norms = _norms(grads, momenta, wide)
    torch._foreach_lerp_(momenta, grads, 1.0 - settings.beta1)
    norms += torch._foreach_norm(momenta, 1, dtype=wide)
    residual, grad_norm, momentum_norm, product, negative, momentum = (
        torch.stack(norms).view(6, len(params)).unbind()
    )
    numel = _numel(params, wide)
    sums = Sums(
        residual / numel,
        momentum / numel,
        grad_norm * grad_norm,
        momentum_norm * momentum_norm,
        product - 2.0 * negative,
    )
    coefficients = _control(controls, state_steps, sums, settings)

    forgetting, scale, shift = (list(c.to(work).unbind()) for c in coefficients)
    torch._foreach_clamp_max_(squares, _largest(stored[2][0]))
    torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), forgetting)
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_mul_(denominators, scale)
    torch._foreach_add_(denominators, shift)
    if weight_decay != 0.0:
        torch._foreach_mul_(params, 1.0 - lr * weight_decay)
    if _scale_update(lr):
        updates = torch._foreach_div(momenta, denominators)
        torch._foreach_mul_(updates, lr)
        torch._foreach_sub_(params, updates)
    else:
        torch._foreach_addcdiv_(params, momenta, denominators, -lr)

    for kept, used in zip(stored, (params, momenta, squares), strict=True):
        if kept is not used:
            torch._foreach_copy_(kept, used)


def _converted(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the list itself when it has the dtype, else copies."""
    return tensors if tensors[0].dtype == dtype else [t.to(dtype) for t in tensors]


def _numel(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the sizes of the tensors (at least 1) as a vector on their device."""
    sizes = [max(t.numel(), 1) for t in tensors]
    device = tensors[0].device
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(sizes, dtype=dtype, device=device)
    ones = torch.ones(len(sizes), dtype=dtype, device=device).unbind()
    return torch.stack(torch._foreach_mul(ones, sizes))  # scalars travel with the launch: no sync


def _norms(grads: list[Tensor], momenta: list[Tensor], wide: torch.dtype) -> list[Tensor]:
    """Return |g - m|_1, |g|_2, |m|_2, |gm|_1 and |min(gm, 0)|_1 of all tensors, one after another.

    There is no foreach sum, but <g, m> = |gm|_1 - 2 |min(gm, 0)|_1.
    """
    if grads[0].device.type == "cpu":  # products of float32 leave its range beyond 1e19
        grads, momenta = _converted(grads, wide), _converted(momenta, wide)
    residuals = torch._foreach_sub(grads, momenta)
    products = torch._foreach_mul(grads, momenta)
    norms = [
        *torch._foreach_norm(residuals, 1, dtype=wide),
        *torch._foreach_norm(grads, 2, dtype=wide),
        *torch._foreach_norm(momenta, 2, dtype=wide),
        *torch._foreach_norm(products, 1, dtype=wide),
    ]
    torch._foreach_clamp_max_(products, 0.0)
    return [*norms, *torch._foreach_norm(products, 1, dtype=wide)]
