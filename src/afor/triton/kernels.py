"""The two Triton kernels of a whole parameter group: sums, then update. Needs triton to import.

Not yet run on a GPU: tested in Triton's interpreter against `reference.py` and compiled ahead of
time for sm_80 and sm_90. The host side, which fills the tables, is `launch.py`.

A tensor is cut into pieces whose size depends on its number of elements alone, one program each.

* `sums_kernel` reads gradient and momentum of its piece and writes five partial sums. No float is
  added atomically, so a step gives the same bits every time.
* `update_kernel` adds the partial sums of its tensor in a fixed order, runs the controller and
  updates its piece. Every program of a tensor repeats the controller: it is some dozens of scalar
  operations, cheaper than a third launch.

All programs of a tensor need its old control state, while one of them writes the new one. They
would race; so the first kernel copies control and step to a snapshot, the second reads only the
snapshot, and the first program of each tensor writes control and step in place. The end of the
first launch is the barrier.

Scalars are float64 and come from device memory: a Python float argument of a compiled kernel is a
float32, and 1 - 0.999 of a float32 is off by 1e-5.
"""
# Triton interprets the annotations of a kernel and has no type stubs; compile-time arguments are
# in capitals, and branches on them are separate `if` statements.
# ruff: noqa: N803, SIM102, SIM108
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,misc"

import triton.language as tl

import triton

BLOCK = 1024  # elements a program handles at once
RUN = 8  # blocks added in float32 lanes before they are flushed to float64
COLUMNS = 6  # of the address table: param, grad, exp_avg, exp_avg_sq, control, step
LAYOUT = 4  # columns of the layout table: elements, elements per piece, first program, pieces
SNAPSHOT = 16  # columns of the snapshot: control, then step in column 9, padded to a power of two
SUMS = 5  # rows of the partial sums: |g - m|, |m'|, g^2, m^2, g m

_BLOCK = tl.constexpr(BLOCK)
_RUN = tl.constexpr(RUN)
_COLUMNS = tl.constexpr(COLUMNS)
_LAYOUT = tl.constexpr(LAYOUT)
_SNAPSHOT = tl.constexpr(SNAPSHOT)
_SUMS = tl.constexpr(SUMS)
_FIELDS = tl.constexpr(9)  # len(control.FIELDS)
_GATHER = tl.constexpr(256)  # partial sums added at once

# Indices of the settings vector; `launch.setting_values` fills it in this order.
(
    _LR, _WEIGHT_DECAY,
    _MOMENTUM_WEIGHT, _SLOW_WEIGHT,  # 1 - beta1, 1 - beta2
    _LOG_BETA1, _LOG_BETA2, _EPS,
    _BETA2_RANGE,  # beta2 - beta2_min
    _DIRECTION_WEIGHT,
    _AGREEMENT_WEIGHT,  # 1 - direction_decay
    _WARMUP_STEPS, _FIXED_MEAN, _FIXED_SCALE, _ZSCORE_CLIP, _TINY,
    _LARGEST,  # of the finite numbers
) = map(tl.constexpr, range(16))  # fmt: skip


@triton.jit
def _lerp(start, end, weight):
    """Move from ``start`` towards ``end``; exact at both ends, as torch.lerp."""
    way = end - start
    return tl.where(weight < 0.5, start + weight * way, end - (1.0 - weight) * way)


@triton.jit
def _one_minus_power(log_decay, step):
    """Return 1 - decay ** step without cancellation (Kahan's expm1)."""
    exponent = step * log_decay
    power = tl.exp(exponent)
    inner = (power > 0.0) & (power < 1.0)
    safe = tl.where(inner, power, 0.5)
    exact = (1.0 - safe) * tl.where(inner, exponent, 1.0) / tl.log(safe)
    return tl.where(inner, exact, tl.where(power < 1.0, 1.0, -exponent))


@triton.jit
def _pointer(addresses, tensor, column: tl.constexpr, dtype: tl.constexpr, ALIGNED: tl.constexpr):
    address = tl.load(addresses + tensor * _COLUMNS + column)
    pointer = address.to(tl.pointer_type(dtype))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _grad_factor(grad_scale, SCALED: tl.constexpr, MAXIMIZE: tl.constexpr):
    """Return the factor of the gradient: the sign divided by GradScaler's scale."""
    factor = tl.full([], -1.0 if MAXIMIZE else 1.0, tl.float64)
    if SCALED:
        factor = factor / tl.load(grad_scale).to(tl.float64)
    return factor


@triton.jit
def sums_kernel(
    addresses, layout, owners, settings, partials, snapshot, grad_scale,
    GRAD: tl.constexpr, MOMENT: tl.constexpr, CONTROL: tl.constexpr, STEP: tl.constexpr,
    WORK: tl.constexpr, ALIGNED: tl.constexpr, SCALED: tl.constexpr, MAXIMIZE: tl.constexpr,
):  # fmt: skip
    """Write the partial sums of one piece; the first piece also copies the old control state."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tensor = tl.load(owners + program)
    elements = tl.load(layout + tensor * _LAYOUT)
    piece = tl.load(layout + tensor * _LAYOUT + 1)
    first = tl.load(layout + tensor * _LAYOUT + 2)
    grads = _pointer(addresses, tensor, 1, GRAD, ALIGNED)
    exp_avgs = _pointer(addresses, tensor, 2, MOMENT, ALIGNED)
    weight = tl.load(settings + _MOMENTUM_WEIGHT).to(WORK)
    factor = _grad_factor(grad_scale, SCALED, MAXIMIZE).to(WORK)

    begin = (program - first) * tl.multiple_of(piece, _BLOCK)
    end = tl.minimum(begin + piece, elements)
    full = begin + (end - begin) // _BLOCK * _BLOCK  # whole blocks need no mask: wider loads
    lanes = tl.arange(0, _BLOCK)
    zero = tl.zeros([_BLOCK], dtype=WORK)
    nothing = tl.zeros([], dtype=tl.float64)
    residual, momentum, grad_sq = nothing, nothing, nothing
    momentum_sq, product = nothing, nothing
    for run in range(begin, end, _BLOCK * _RUN):
        residuals, momenta, grad_sqs, momentum_sqs, products = zero, zero, zero, zero, zero
        for start in range(run, tl.minimum(run + _BLOCK * _RUN, full), _BLOCK):
            offsets = tl.multiple_of(start, _BLOCK) + lanes
            g = tl.load(grads + offsets).to(WORK) * factor
            m = tl.load(exp_avgs + offsets).to(WORK)
            residuals += tl.abs(g - m)
            momenta += tl.abs(_lerp(m, g, weight))
            grad_sqs += g * g
            momentum_sqs += m * m
            products += g * m
        if run + _BLOCK * _RUN > full:
            offsets = full + lanes
            g = tl.load(grads + offsets, mask=offsets < end, other=0.0).to(WORK) * factor
            m = tl.load(exp_avgs + offsets, mask=offsets < end, other=0.0).to(WORK)
            residuals += tl.abs(g - m)
            momenta += tl.abs(_lerp(m, g, weight))
            grad_sqs += g * g
            momentum_sqs += m * m
            products += g * m
        residual += tl.sum(residuals.to(tl.float64), axis=0)
        momentum += tl.sum(momenta.to(tl.float64), axis=0)
        grad_sq += tl.sum(grad_sqs.to(tl.float64), axis=0)
        momentum_sq += tl.sum(momentum_sqs.to(tl.float64), axis=0)
        product += tl.sum(products.to(tl.float64), axis=0)
    tl.store(partials + program, residual)
    tl.store(partials + programs + program, momentum)
    tl.store(partials + programs * 2 + program, grad_sq)
    tl.store(partials + programs * 3 + program, momentum_sq)
    tl.store(partials + programs * 4 + program, product)

    if program == first:
        fields = tl.arange(0, _SNAPSHOT)
        control = _pointer(addresses, tensor, 4, CONTROL, False)
        kept = tl.load(control + fields, mask=fields < _FIELDS, other=0.0).to(tl.float64)
        step = tl.load(_pointer(addresses, tensor, 5, STEP, False)).to(tl.float64)
        tl.store(snapshot + tensor * _SNAPSHOT + fields, tl.where(fields == _FIELDS, step, kept))


@triton.jit
def _gather(partials, first, pieces, row: tl.constexpr):
    """Add the partial sums of one tensor, in a fixed order."""
    programs = tl.num_programs(0)
    lanes = tl.arange(0, _GATHER)
    total = tl.zeros([_GATHER], dtype=tl.float64)
    for start in range(0, pieces, _GATHER):
        indices = start + lanes
        total += tl.load(
            partials + programs * row + first + indices, mask=indices < pieces, other=0.0
        )
    return tl.sum(total, axis=0)


@triton.jit
def _quotient(m, v, scale, shift):
    """Return m / (sqrt(v) scale + shift), rounded as IEEE says in float32 too."""
    if m.dtype == tl.float32:
        return tl.div_rn(m, tl.sqrt_rn(v) * scale + shift)
    return m / (tl.sqrt(v) * scale + shift)


@triton.jit
def update_kernel(
    addresses, layout, owners, settings, partials, snapshot, grad_scale, found_inf, lr_tensor,
    PARAM: tl.constexpr, GRAD: tl.constexpr, MOMENT: tl.constexpr,
    CONTROL: tl.constexpr, STEP: tl.constexpr, WORK: tl.constexpr,
    ALIGNED: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr,
    LR_TENSOR: tl.constexpr, MAXIMIZE: tl.constexpr, FAST_CHANNEL: tl.constexpr,
    SELF_NORMALIZED: tl.constexpr, CUMULATIVE: tl.constexpr, CALIBRATED: tl.constexpr,
    COMPLETED: tl.constexpr,
):  # fmt: skip
    """Advance the controller of a tensor and update one piece of it; the first piece stores it.

    ``partials`` are the partial sums of all pieces or, if COMPLETED, the five sums of each tensor,
    the first two as means, of which the pieces may be a part.
    """
    if CHECKED:
        if tl.load(found_inf).to(tl.float64) != 0.0:  # the scaler skips this step: change nothing
            return
    program = tl.program_id(0)
    tensor = tl.load(owners + program)
    elements = tl.load(layout + tensor * _LAYOUT)
    piece = tl.load(layout + tensor * _LAYOUT + 1)
    first = tl.load(layout + tensor * _LAYOUT + 2)
    pieces = tl.load(layout + tensor * _LAYOUT + 3)

    # The arithmetic of `control.advance`, line by line.
    eps = tl.load(settings + _EPS)
    tiny = tl.load(settings + _TINY)
    slow = tl.load(settings + _SLOW_WEIGHT)
    direction_weight = tl.load(settings + _DIRECTION_WEIGHT)
    old = snapshot + tensor * _SNAPSHOT
    step = tl.load(old + _FIELDS) + 1.0
    if COMPLETED:
        residual = tl.load(partials + tensor * _SUMS)
        momentum = tl.load(partials + tensor * _SUMS + 1)
        grad_sq = tl.load(partials + tensor * _SUMS + 2)
        momentum_sq = tl.load(partials + tensor * _SUMS + 3)
        product = tl.load(partials + tensor * _SUMS + 4)
    else:
        count = tl.maximum(elements, 1).to(tl.float64)
        residual = _gather(partials, first, pieces, 0) / count
        momentum = _gather(partials, first, pieces, 1) / count
        grad_sq = _gather(partials, first, pieces, 2)
        momentum_sq = _gather(partials, first, pieces, 3)
        product = _gather(partials, first, pieces, 4)

    # RASS: Eqs. (noise_inst) to (score)
    noise_fast = _lerp(tl.load(old), residual, tl.load(settings + _MOMENTUM_WEIGHT))
    noise_slow = _lerp(tl.load(old + 1), residual, slow)
    norms = tl.sqrt(tl.maximum(grad_sq * momentum_sq, tiny))
    cosine = product / (norms + eps)
    beta2_range = tl.load(settings + _BETA2_RANGE)  # zero: the score is not needed
    finite = (tl.abs(residual + cosine) <= tl.load(settings + _LARGEST)) & (beta2_range > 0.0)
    cosine = tl.maximum(cosine, 0.0)
    agreement = _lerp(tl.load(old + 2), cosine, tl.load(settings + _AGREEMENT_WEIGHT))
    noise = noise_slow
    if FAST_CHANNEL:
        noise = tl.maximum(noise_fast, noise_slow)
    ratio = momentum / tl.maximum(noise + eps, tiny)
    discount = agreement * direction_weight + (1.0 - direction_weight)
    score = tl.maximum(ratio * discount, 0.0)

    # AFC: Eqs. (zscore_stats) and (zscore)
    score_mean = _lerp(tl.load(old + 3), score, slow)
    statistics_weight = 1.0
    if CALIBRATED:
        statistics_weight = _one_minus_power(tl.load(settings + _LOG_BETA2), step)
    delta = score - score_mean / statistics_weight
    score_var = _lerp(tl.load(old + 4), delta * delta, slow)
    if SELF_NORMALIZED:
        clip = tl.load(settings + _ZSCORE_CLIP)
        zscore = delta / tl.sqrt(tl.maximum(score_var / statistics_weight + eps, tiny))
        zscore = tl.minimum(tl.maximum(zscore, -clip), clip)
    else:
        zscore = (score - tl.load(settings + _FIXED_MEAN)) / tl.load(settings + _FIXED_SCALE)

    # A non-finite gradient spoils the moments, as in AdamW, but never the control state.
    noise_fast = tl.where(finite, noise_fast, tl.load(old))
    noise_slow = tl.where(finite, noise_slow, tl.load(old + 1))
    agreement = tl.where(finite, agreement, tl.load(old + 2))
    score_mean = tl.where(finite, score_mean, tl.load(old + 3))
    score_var = tl.where(finite, score_var, tl.load(old + 4))
    score = tl.where(finite, score, tl.load(old + 5))
    zscore = tl.where(finite, zscore, tl.load(old + 6))

    # Eqs. (beta2_raw), (gate), (cumprod)
    warmup_steps = tl.load(settings + _WARMUP_STEPS)
    gate = tl.minimum(step / tl.maximum(warmup_steps, 1.0), 1.0)
    gate = tl.where(warmup_steps > 0.0, gate, 1.0)
    forgetting = beta2_range / (1.0 + tl.exp(zscore)) * gate + slow
    correction = tl.load(old + 8)
    correction += forgetting * (1.0 - correction)
    if CUMULATIVE:
        used = correction
    else:
        used = _one_minus_power(tl.load(settings + _LOG_BETA2), step)
    bias1 = _one_minus_power(tl.load(settings + _LOG_BETA1), step)

    if program == first:
        control = _pointer(addresses, tensor, 4, CONTROL, False)
        tl.store(control, noise_fast.to(CONTROL))
        tl.store(control + 1, noise_slow.to(CONTROL))
        tl.store(control + 2, agreement.to(CONTROL))
        tl.store(control + 3, score_mean.to(CONTROL))
        tl.store(control + 4, score_var.to(CONTROL))
        tl.store(control + 5, score.to(CONTROL))
        tl.store(control + 6, zscore.to(CONTROL))
        tl.store(control + 7, forgetting.to(CONTROL))
        tl.store(control + 8, correction.to(CONTROL))
        tl.store(_pointer(addresses, tensor, 5, STEP, False), step.to(STEP))

    # Eqs. (v_adaptive) and (update)
    lr = tl.load(settings + _LR)
    if LR_TENSOR:
        lr = tl.load(lr_tensor).to(tl.float64)
    decay = (1.0 - lr * tl.load(settings + _WEIGHT_DECAY)).to(WORK)
    rate = lr.to(WORK)
    weight = tl.load(settings + _MOMENTUM_WEIGHT).to(WORK)
    factor = _grad_factor(grad_scale, SCALED, MAXIMIZE).to(WORK)
    square_weight = forgetting.to(WORK)
    scale = (bias1 / tl.sqrt(used)).to(WORK)
    shift = (bias1 * eps).to(WORK)
    params = _pointer(addresses, tensor, 0, PARAM, ALIGNED)
    grads = _pointer(addresses, tensor, 1, GRAD, ALIGNED)
    exp_avgs = _pointer(addresses, tensor, 2, MOMENT, ALIGNED)
    exp_avg_sqs = _pointer(addresses, tensor, 3, MOMENT, ALIGNED)
    begin = (program - first) * tl.multiple_of(piece, _BLOCK)
    end = tl.minimum(begin + piece, elements)
    full = begin + (end - begin) // _BLOCK * _BLOCK
    lanes = tl.arange(0, _BLOCK)
    # see _largest_finite in update.py
    LARGEST: tl.constexpr = 1.7976931348623157e308 if tl.float64 == WORK else 3.4028234663852886e38
    for start in range(begin, full, _BLOCK):
        offsets = tl.multiple_of(start, _BLOCK) + lanes
        g = tl.load(grads + offsets).to(WORK) * factor
        p = tl.load(params + offsets).to(WORK)
        m = tl.load(exp_avgs + offsets).to(WORK)
        v = tl.load(exp_avg_sqs + offsets).to(WORK)
        m = _lerp(m, g, weight)
        v = _lerp(tl.where(v == float("inf"), LARGEST, v), g * g, square_weight)
        p = p * decay - rate * _quotient(m, v, scale, shift)
        tl.store(params + offsets, p.to(PARAM))
        tl.store(exp_avgs + offsets, m.to(MOMENT))
        tl.store(exp_avg_sqs + offsets, v.to(MOMENT))
    if full < end:
        offsets = full + lanes
        mask = offsets < end
        g = tl.load(grads + offsets, mask=mask, other=0.0).to(WORK) * factor
        p = tl.load(params + offsets, mask=mask, other=0.0).to(WORK)
        m = tl.load(exp_avgs + offsets, mask=mask, other=0.0).to(WORK)
        v = tl.load(exp_avg_sqs + offsets, mask=mask, other=0.0).to(WORK)
        m = _lerp(m, g, weight)
        v = _lerp(tl.where(v == float("inf"), LARGEST, v), g * g, square_weight)
        p = p * decay - rate * _quotient(m, v, scale, shift)
        tl.store(params + offsets, p.to(PARAM), mask=mask)
        tl.store(exp_avgs + offsets, m.to(MOMENT), mask=mask)
        tl.store(exp_avg_sqs + offsets, v.to(MOMENT), mask=mask)
