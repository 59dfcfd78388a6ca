"""The update of one parameter group: select an implementation; the for-loop and the foreach one.

Every implementation reduces gradient and momentum of each tensor to five sums (RASS, `sums.py`),
lets the controller compute a decay coefficient from them (AFC, `control.py`), and updates moments
and parameter. They differ in the number of operators they call. Start reading at `afor`.
"""

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from afor import torch_private
from afor.control import FIELDS, Coefficients, ControlSettings, Sums, advance, advance_floats
from afor.native.binding import fused_afor, unavailable_reason
from afor.rows import ROWS, TABLES, Row
from afor.sums import absolute_mean, cut_rows, row_sums, singles, sum_dtype, tensor_sums
from afor.tensor_lists import Finish, StepOptions, by_device_and_dtype, is_plain
from afor.triton.launch import triton_afor

MAX_SCALAR_TENSORS = 32  # up to this many tensors, plain floats beat vectorised control on CPU


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
    check_fused: bool = True,
) -> None:
    """Take one AFOR step on lists of tensors, in place.

    Args:
        params: Parameters.
        grads: Their gradients; never modified.
        exp_avgs: First moments.
        exp_avg_sqs: Second moments.
        controls: Control states, see `control.FIELDS`.
        state_steps: Step counts.
        settings: Controller settings of the group.
        lr: Learning rate.
        weight_decay: Decoupled weight decay.
        maximize: Ascend instead of descend.
        foreach: Use the multi-tensor implementation; see ``fused``.
        fused: Use the native kernel. With ``foreach`` and ``fused`` None, the fastest valid
            implementation is used.
        differentiable: Let autograd run through the step.
        grad_scale: Scale of GradScaler, for ``fused``.
        found_inf: Flag of GradScaler, for ``fused``: nothing changes if it is not zero.
        check_fused: Check the kernels before the first ``fused`` step on a CUDA device.
    """
    if not params:
        return
    if isinstance(lr, Tensor):
        lr = lr.reshape(())  # foreach takes no other shape
    if fused is None and foreach is None:
        fused, foreach = default_implementation(params, differentiable=differentiable)
    lists = [params, grads, exp_avgs, exp_avg_sqs, controls, state_steps]
    options: StepOptions = {
        "settings": settings, "lr": lr, "weight_decay": weight_decay, "maximize": maximize,
        "differentiable": differentiable, "grad_scale": grad_scale, "found_inf": found_inf,
        "check_fused": check_fused,
    }  # fmt: skip
    if fused and params[0].device.type == "cuda" and torch.compiler.is_compiling():
        foreach = True  # inductor generates its own kernels
    elif fused:
        fused_step = triton_afor if params[0].device.type == "cuda" else fused_afor
        not_taken = fused_step(*lists, **options)
        if not_taken is None:
            return
        lists, options["maximize"] = not_taken, False  # these go through the for-loop
    begin = begin_multi_tensor if foreach else begin_single_tensor
    for part in by_device_and_dtype(lists):
        sums, finish = begin(*part, **options)
        finish(sums)


def default_implementation(params: Sequence[Tensor], *, differentiable: bool) -> tuple[bool, bool]:
    """Return the fastest valid ``(fused, foreach)``.

    The native kernel on CPU when it was built, foreach on accelerators, the for-loop otherwise:
    on CPU foreach loses to the for-loop beyond a million parameters, as in torch.
    """
    if differentiable or not is_plain(params):
        return False, False
    devices = {p.device.type for p in params}
    if devices == {"cpu"}:
        return unavailable_reason() is None, False
    return False, devices <= set(torch_private.foreach_devices())


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
    return [torch.view_as_real(t) for t in tensors] if tensors[0].is_complex() else tensors


def _control(
    controls: list[Tensor], steps: list[Tensor], sums: Sums, settings: ControlSettings
) -> Coefficients:
    """Increment the step counts and advance the control states, in place.

    Returns:
        The coefficients, as lists of tensors, or of floats for up to `MAX_SCALAR_TENSORS`.
    """
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
    table, fields = TABLES.take(len(steps), controls[0].dtype), len(FIELDS)
    stored = [*controls, *steps]
    numbers = table.read(stored)
    counts = [count + 1.0 for count in numbers[-len(steps) :]]
    states = [numbers[at : at + fields] for at in range(0, fields * len(controls), fields)]
    columns = zip(*(column.tolist() for column in sums), strict=True)
    new: list[float] = []
    coefficients: list[tuple[float, float, float]] = []
    for state, count, row in zip(states, counts, columns, strict=True):
        held, (forgetting, correction, scale, shift) = advance_floats(state, count, row, settings)
        new += (*held, forgetting, correction)
        coefficients.append((forgetting, scale, shift))
    table.write(stored, new + counts)
    TABLES.give_back(table)
    return Coefficients(*map(list, zip(*coefficients, strict=True)))


# ---------------------------------------------------------------------------------- for-loop


def begin_single_tensor(
    *lists: list[Tensor], **options: Unpack[StepOptions]
) -> tuple[Sums, Finish]:
    """Begin a step with a loop over the tensors; small tensors are concatenated (`rows.py`).

    Returns:
        The sums, and the function that finishes the step. Only the first moments may have been
        updated before it is called.
    """
    params, grads, exp_avgs, exp_avg_sqs, controls, state_steps = lists
    settings, lr, weight_decay = options["settings"], options["lr"], options["weight_decay"]
    maximize = options.get("maximize", False)
    differentiable = options.get("differentiable", False)
    params, exp_avgs, exp_avg_sqs = _as_real(params), _as_real(exp_avgs), _as_real(exp_avg_sqs)
    if grads[0].is_complex():
        grads = _as_real([g.resolve_conj() for g in grads])
    work, wide = _work_dtype(exp_avgs[0]), sum_dtype(params[0].device)
    multiply_by_lr = _multiply_by_lr(lr)
    copy = differentiable or work != exp_avgs[0].dtype  # update out of place and copy back

    begun: list[tuple[slice, Row | tuple[Tensor, Tensor]]] = []
    rows = []
    for part in cut_rows(params) if _use_rows(params) else singles(params):
        if part.stop - part.start > 1:
            row = ROWS.take(tuple(p.shape for p in params[part]), work)
            columns = [column[part] for column in (params, grads, exp_avgs, exp_avg_sqs)]
            rows.append(row.begin(*columns, beta1=settings.beta1, maximize=maximize))
            begun.append((part, row))
            continue
        grad, exp_avg = grads[part.start].to(work), exp_avgs[part.start]
        grad = -grad if maximize else grad
        before = exp_avg.clone() if differentiable else exp_avg
        residual, *products = tensor_sums(grad, before, wide)
        momentum = _advance_average(exp_avg, grad, 1.0 - settings.beta1, work, copy=copy)
        rows.append(torch.stack([residual, absolute_mean(momentum, wide), *products])[:, None])
        begun.append((part, (grad, momentum)))
    sums = Sums(*(rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)).unbind())

    def finish(completed: Sums) -> None:
        coefficients = _control(controls, state_steps, completed, settings)
        forgetting, scale, shift = coefficients
        for part, started in begun:
            i = part.start
            if isinstance(started, Row):
                of_part = Coefficients(*(column[part] for column in coefficients))
                largest = _largest_finite(work)
                started.finish(of_part, lr=lr, weight_decay=weight_decay, largest=largest)
                ROWS.give_back(started)
                continue
            (grad, momentum), param, exp_avg_sq = started, params[i], exp_avg_sqs[i]
            if not differentiable:
                exp_avg_sq = exp_avg_sq.to(work).clamp_max_(_largest_finite(work))
            square = _advance_average(exp_avg_sq, grad * grad, forgetting[i], work, copy=copy)
            if square.dtype != exp_avg_sqs[i].dtype:
                exp_avg_sqs[i].copy_(square)
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
            elif isinstance(lr, Tensor) or multiply_by_lr:
                updated.sub_((momentum / denominator).mul_(lr))
            else:
                updated.addcdiv_(momentum, denominator, value=-lr)
            if updated is not param:
                param.copy_(updated)

    return sums, finish


def _use_rows(params: list[Tensor]) -> bool:
    """Return True if concatenating small tensors is faster: plain tensors on CPU."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    return params[0].device.type == "cpu" and is_plain(params) and not torch_private.is_watched()


def _advance_average(
    average: Tensor, value: Tensor, weight: float | Tensor, work: torch.dtype, *, copy: bool
) -> Tensor:
    """Update a running average towards ``value`` and return it in the dtype ``work``."""
    if not copy:
        return average.lerp_(value, weight)
    new = torch.lerp(average.to(work, copy=True), value, weight)
    average.copy_(new)
    return new


# ----------------------------------------------------------------------------------- foreach


def begin_multi_tensor(*lists: list[Tensor], **options: Unpack[StepOptions]) -> tuple[Sums, Finish]:
    """Begin a step with foreach operators; no host sync on any device.

    Returns:
        The sums, and the function that finishes the step. Nothing is modified before it is called.
    """
    assert not options.get("differentiable")
    params, grads, exp_avgs, exp_avg_sqs, controls, state_steps = lists
    settings, lr, weight_decay = options["settings"], options["lr"], options["weight_decay"]
    stored = _as_real(params), _as_real(exp_avgs), _as_real(exp_avg_sqs)
    work, wide = _work_dtype(stored[1][0]), sum_dtype(params[0].device)
    params, momenta, squares = (_converted(tensors, work) for tensors in stored)
    grads = _converted(_as_real([g.resolve_conj() for g in grads]), work)
    if options.get("maximize"):
        grads = list(torch_private.foreach_neg(grads))

    rows = [row_sums(grads[row], momenta[row], settings.beta1, wide) for row in cut_rows(params)]
    sums = Sums(*(rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)).unbind())

    def finish(completed: Sums) -> None:
        forgetting, scale, shift = _control(controls, state_steps, completed, settings)

        torch_private.foreach_lerp_(momenta, grads, 1.0 - settings.beta1)
        torch_private.foreach_clamp_max_(squares, _largest_finite(work))
        torch_private.foreach_lerp_(squares, torch_private.foreach_mul(grads, grads), forgetting)
        roots = list(torch_private.foreach_sqrt(squares))
        descend = _descend_floats if isinstance(scale[0], float) else _descend_tensors
        descend(params, momenta, roots, scale, shift, lr, weight_decay)

        for kept, used in zip(stored, (params, momenta, squares), strict=True):
            if kept[0].dtype != work:  # `used` holds copies
                torch_private.foreach_copy_(kept, used)

    return sums, finish


def _descend_tensors(
    params: list[Tensor], momenta: list[Tensor], roots: list[Tensor],
    scale: list[Tensor], shift: list[Tensor], lr: float | Tensor, weight_decay: float,
) -> None:  # fmt: skip
    """Move the parameters by lr times momentum over (root times scale plus shift)."""
    denominators = torch_private.foreach_addcmul(shift, roots, scale)
    if weight_decay != 0.0:
        torch_private.foreach_mul_(params, 1.0 - lr * weight_decay)
    if isinstance(lr, Tensor) or _multiply_by_lr(lr):
        updates = torch_private.foreach_div(momenta, denominators)
        torch_private.foreach_mul_(updates, lr)
        torch_private.foreach_sub_(params, updates)
    else:
        torch_private.foreach_addcdiv_(params, momenta, denominators, -lr)


def _descend_floats(
    params: list[Tensor], momenta: list[Tensor], roots: list[Tensor],
    scale: list[float], shift: list[float], lr: float | Tensor, weight_decay: float,
) -> None:  # fmt: skip
    """Do the same on CPU, with the scale taken out of the fraction.

    Operands are tensors: given a number, foreach creates a tensor for each element of the list.
    """
    rate, dtype = float(lr), roots[0].dtype
    if weight_decay != 0.0:
        torch_private.foreach_mul_(params, torch.tensor(1.0 - rate * weight_decay, dtype=dtype))
    offsets = torch.tensor([b / a for a, b in zip(scale, shift, strict=True)], dtype=dtype)
    torch_private.foreach_add_(roots, list(offsets.unbind()))
    torch_private.foreach_addcdiv_(params, momenta, roots, [-rate / a for a in scale])


def _converted(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the list itself when it has the dtype, else copies."""
    return tensors if tensors[0].dtype == dtype else [t.to(dtype) for t in tensors]
