"""The native path: binds the compiled kernel, says why when it cannot be used.

`Plan` is the list of addresses the kernel works on. Building one takes longer than a step on a
small network; `group_plan.py` keeps it between steps.
"""

import ctypes
import functools
import importlib.util
import sys
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from afor.control import ControlSettings

ABI = 1
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_SETTINGS = 18  # numbers in `struct settings`
STATE = ("exp_avg", "exp_avg_sq", "control", "step")


# ------------------------------------------------------------------------------- the library


class _PlanStruct(ctypes.Structure):
    """The beginning of `struct plan` in _kernel.c."""

    _fields_ = (
        ("tensors", ctypes.c_int64),
        ("chunks", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("numel", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("param", "grad", *STATE)),
        ("settings", ctypes.c_void_p),
    )


@functools.cache
def _library() -> ctypes.CDLL | str:
    """Return the loaded kernel, or why there is none."""
    spec = importlib.util.find_spec("afor._kernel")
    if spec is None or spec.origin is None:
        return (
            "the native kernel was not built when afor was installed (no working C compiler was "
            "found); install a C compiler and reinstall afor"
        )
    try:
        library = ctypes.CDLL(spec.origin)
        found = library.afor_abi()
    except (OSError, AttributeError) as error:
        return f"the native kernel {spec.origin} does not load: {error}"
    if found != ABI:
        return (
            f"the native kernel {spec.origin} is of another version (interface {found}, expected "
            f"{ABI}); reinstall afor"
        )
    return _bind(library)


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the arguments of the kernel's functions."""
    library.afor_plan_new.restype = ctypes.c_void_p
    library.afor_plan_new.argtypes = [
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
    ]
    library.afor_plan_free.argtypes = [ctypes.c_void_p]
    library.afor_plan_free.restype = None
    library.afor_step.argtypes = [ctypes.c_void_p]
    library.afor_step.restype = None
    return library


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def unavailable_reason() -> str | None:
    """Return why the native CPU kernel cannot be used, or None when it can.

    >>> reason = unavailable_reason()
    >>> reason is None or "kernel" in reason
    True
    """
    library = _library()
    return library if isinstance(library, str) else None


@functools.cache
def _team() -> int | None:
    """Return the address of the function that runs a task on torch's own threads, if it has one.

    A second pool of threads would compete with torch's for the cores.
    """
    if sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


# ---------------------------------------------------------------------------------- the plan


class Plan:
    """Addresses of the tensors of one call, all of one dtype, in memory of the kernel."""

    def __init__(self, params: Sequence[Tensor], state: Sequence[Sequence[Tensor]]) -> None:
        library = _library()
        if isinstance(library, str):
            raise RuntimeError(library)
        n = len(params)
        sizes = (ctypes.c_int64 * n)(*(p.numel() for p in params))
        handle = library.afor_plan_new(n, sizes, DTYPES[params[0].dtype], _team())
        if not handle:
            raise MemoryError(f"no memory for the plan of {n} tensors")
        self._finalizer = weakref.finalize(self, library.afor_plan_free, handle)
        self.step = functools.partial(library.afor_step, handle)
        struct = _PlanStruct.from_address(handle)
        addresses = ctypes.c_uint64 * n
        self.grads = addresses.from_address(struct.grad)
        self._settings = (ctypes.c_double * _SETTINGS).from_address(struct.settings)
        addresses.from_address(struct.param)[:] = [p.data_ptr() for p in params]
        for name, tensors in zip(STATE, state, strict=True):
            addresses.from_address(getattr(struct, name))[:] = [t.data_ptr() for t in tensors]
        self.written: tuple[tuple[float, ...], int] = ((), 0)

    def write_settings(self, settings: tuple[float, ...], threads: int) -> None:
        """Hand the settings of the next steps to the kernel."""
        self._settings[:] = [*settings, threads]
        self.written = (settings, threads)


def kernel_settings(
    s: ControlSettings, lr: float, weight_decay: float, grad_factor: float
) -> tuple[float, ...]:
    """Return the numbers of `struct settings`, in its order, but for the threads."""
    return (
        lr, weight_decay, grad_factor,
        s.beta1, s.beta2, s.eps, s.beta2_min, s.direction_weight, s.direction_decay,
        s.warmup_steps, s.fast_channel, s.normalization == "self", s.fixed_mean, s.fixed_scale,
        s.zscore_clip, s.correction == "cumulative", s.statistics == "calibrated",
    )  # fmt: skip


def is_native(param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor) -> bool:
    """Tell whether the kernel can work on a parameter and its moments as they lie in memory."""
    moments = torch.float64 if param.dtype == torch.float64 else torch.float32
    return (
        param.device.type == "cpu"
        and param.dtype in DTYPES
        and exp_avg.dtype == exp_avg_sq.dtype == moments
        and param.layout == torch.strided
        and param.stride() == exp_avg.stride() == exp_avg_sq.stride()
        # dynamo cannot trace is_neg, nor does it hand out tensors with a pending negation
        and (
            torch.compiler.is_compiling()
            or not (param.is_neg() or exp_avg.is_neg() or exp_avg_sq.is_neg())
        )
        and _is_dense(param)
    )


def _is_dense(x: Tensor) -> bool:
    """Tell whether the elements fill a block of memory, in any order, without overlap."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


# ---------------------------------------------------------------------------------- the step


def fused_afor(
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
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> list[list[Tensor]] | None:
    """Take one step natively; return the lists of what the kernel cannot take, if anything.

    ``grad_scale`` and ``found_inf`` are those of GradScaler: gradients are divided by the first,
    and nothing happens when the second is not zero. The gradients returned are those to descend.
    """
    reason = unavailable_reason()
    if reason is not None:
        raise RuntimeError(f"fused=True cannot be used: {reason}")
    if found_inf is not None and found_inf.item() != 0.0:
        return None
    factor = -1.0 if maximize else 1.0
    if grad_scale is not None:
        factor /= grad_scale.item()
    rows = list(zip(params, grads, exp_avgs, exp_avg_sqs, controls, state_steps, strict=True))
    native = [is_native(p, m, v) for p, _, m, v, _, _ in rows]
    numbers = [float(x) for x in kernel_settings(settings, 0.0, weight_decay, factor)]
    rate = lr if isinstance(lr, Tensor) else torch.tensor(lr, dtype=torch.float64)
    for dtype in dict.fromkeys(p.dtype for p, ok in zip(params, native, strict=True) if ok):
        part = [row for row, ok in zip(rows, native, strict=True) if ok and row[0].dtype == dtype]
        torch.ops.afor.step(*map(list, zip(*part, strict=True)), rate, numbers)
    rest = [row for row, ok in zip(rows, native, strict=True) if not ok]
    if not rest:
        return None
    left = list(map(list, zip(*rest, strict=True)))
    if factor != 1.0:
        left[1] = [grad * factor for grad in left[1]]
    return left


@torch.library.custom_op(
    "afor::step",
    mutates_args=("params", "exp_avgs", "exp_avg_sqs", "controls", "state_steps"),
    device_types="cpu",
    schema=(  # torch 2.6 cannot read `list[Tensor]`
        "(Tensor(a0!)[] params, Tensor[] grads, Tensor(a2!)[] exp_avgs, Tensor(a3!)[] exp_avg_sqs, "
        "Tensor(a4!)[] controls, Tensor(a5!)[] state_steps, Tensor lr, float[] numbers) -> ()"
    ),
)
def _step_operator(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    controls: list[Tensor],
    state_steps: list[Tensor],
    lr: Tensor,
    numbers: list[float],
) -> None:
    """Take one step on tensors of one dtype; what `torch.compile` and profilers see."""
    laid_out = [
        g.resolve_neg() if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
        for p, g in zip(params, grads, strict=True)
    ]
    plan = Plan(params, (exp_avgs, exp_avg_sqs, controls, state_steps))
    plan.grads[:] = [g.data_ptr() for g in laid_out]
    plan.write_settings((lr.item(), *numbers[1:]), torch.get_num_threads())
    plan.step()
