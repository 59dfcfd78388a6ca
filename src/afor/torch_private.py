"""Private names of torch, each with a fallback for versions of torch that lack it.

No other module of this package uses a private name of torch. A missing name costs speed or a
convenience and never changes a result; `FALLBACKS` lists the replacements. `OPTIMIZER_ATTRIBUTES`
are private names that `AFOR` itself has, because torch sets or reads them.
"""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Result = TypeVar("Result")

# Private name: what is used if torch does not have it.
FALLBACKS = {
    "torch._C._nn:flatten_dense_tensors": "torch.cat of flat views",
    "torch._C._autograd:_profiler_enabled": "hooks and profilers are called in every step",
    "torch._C:_len_torch_dispatch_stack": "the controller works on vectors, tensors one by one",
    "torch._C._functorch:maybe_current_level": "a network's native form is not used",
    "torch.nn.modules.module:_has_any_global_hook": "a network's native form is not used",
    "torch.optim.optimizer:_global_optimizer_pre_hooks": "as for _profiler_enabled",
    "torch.optim.optimizer:_global_optimizer_post_hooks": "as for _profiler_enabled",
    "torch.optim:Optimizer._accelerator_graph_capture_health_check": "the next name",
    "torch.optim:Optimizer._cuda_graph_capture_health_check": "no check",
    "torch.utils._foreach_utils:_get_foreach_kernels_supported_devices": "cuda",
    "torch:_assert_async": "no check inside a compiled step",
    "torch._C._dynamo.guards:TensorGuards": "layouts are compared attribute by attribute",
    "torch.utils._python_dispatch:TorchDispatchMode": "operations are not counted",
}
_FOREACH = (
    "add_", "addcdiv_", "addcmul", "clamp_max_", "copy_", "div", "lerp_", "mul", "mul_", "neg",
    "sqrt", "sub_",
)  # fmt: skip
FALLBACKS |= {f"torch:_foreach_{method}": "a loop over the tensors" for method in _FOREACH}

# Private attribute of an optimizer: what happens in a torch that neither sets nor reads it.
OPTIMIZER_ATTRIBUTES = {
    "_optimizer_step_pre_hooks": "hooks are assumed to exist, and torch is asked in every step",
    "_optimizer_step_post_hooks": "as for _optimizer_step_pre_hooks",
    "_step_supports_amp_scaling": "GradScaler unscales the gradients before the step",
}


def _lookup(name: str) -> Any:
    """Return the object with a name of `FALLBACKS`, or None if torch does not have it."""
    assert name in FALLBACKS
    try:
        return resolve_name(name)
    except (AttributeError, ImportError):
        return None


# ------------------------------------------------------------------------------ lists of tensors


def _loop(method: str) -> Callable[..., list[Tensor]]:
    """Return a function that calls a method of Tensor in a loop; scalar arguments are repeated."""

    def apply(tensors: Sequence[Tensor], *others: Any) -> list[Tensor]:
        columns = [
            other if isinstance(other, list | tuple) else [other] * len(tensors) for other in others
        ]
        return [getattr(t, method)(*row) for t, *row in zip(tensors, *columns, strict=True)]

    return apply


def _foreach(method: str) -> Callable[..., Any]:
    native: Callable[..., Any] | None = _lookup(f"torch:_foreach_{method}")
    return native or _loop(method)


def _addcdiv_loop(
    tensors: Sequence[Tensor],
    above: Sequence[Tensor],
    below: Sequence[Tensor],
    value: float | Sequence[float],
) -> None:
    values = value if isinstance(value, list | tuple) else [value] * len(tensors)
    for t, a, b, number in zip(tensors, above, below, values, strict=True):
        t.addcdiv_(a, b, value=number)


foreach_add_ = _foreach("add_")
foreach_addcdiv_: Callable[..., Any] = _lookup("torch:_foreach_addcdiv_") or _addcdiv_loop
foreach_addcmul = _foreach("addcmul")
foreach_clamp_max_ = _foreach("clamp_max_")
foreach_copy_ = _foreach("copy_")
foreach_div = _foreach("div")
foreach_lerp_ = _foreach("lerp_")
foreach_mul = _foreach("mul")
foreach_mul_ = _foreach("mul_")
foreach_neg = _foreach("neg")
foreach_sqrt = _foreach("sqrt")
foreach_sub_ = _foreach("sub_")


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


flatten: Callable[[Sequence[Tensor]], Tensor] = (
    _lookup("torch._C._nn:flatten_dense_tensors") or _flatten
)


_devices: Callable[[], list[str]] | None = _lookup(
    "torch.utils._foreach_utils:_get_foreach_kernels_supported_devices"
)


def foreach_devices() -> list[str]:
    """Return the device types on which foreach is faster than a loop."""
    return ["cuda"] if _devices is None else _devices()


# ------------------------------------------------------- profilers, dispatch modes and hooks


def _unknown() -> bool:
    return True


is_profiling: Callable[[], bool] = _lookup("torch._C._autograd:_profiler_enabled") or _unknown
is_watched: Callable[[], int] = _lookup("torch._C:_len_torch_dispatch_stack") or _unknown
# The number of the innermost transformation of torch.func, None outside of all.
transform_level: Callable[[], int | None] = (
    _lookup("torch._C._functorch:maybe_current_level") or _unknown
)

# Stands for hooks that cannot be read; it is truthy, so that hooks are assumed to exist.
UNKNOWN_HOOKS: Any = ("unknown",)
global_pre_hooks: Any = _lookup("torch.optim.optimizer:_global_optimizer_pre_hooks")
global_post_hooks: Any = _lookup("torch.optim.optimizer:_global_optimizer_post_hooks")
if global_pre_hooks is None or global_post_hooks is None:
    global_pre_hooks = global_post_hooks = UNKNOWN_HOOKS


# Private attributes of a module with the hooks that its own call would run.
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Whether hooks of all modules exist.
_has_global_hook: Callable[[], bool] = (
    _lookup("torch.nn.modules.module:_has_any_global_hook") or _unknown
)


def has_hooks(*modules: nn.Module) -> bool:
    """Return True if calling one of the modules does more than its forward function."""
    return bool(_has_global_hook()) or any(
        getattr(module, name, UNKNOWN_HOOKS) for module in modules for name in MODULE_HOOKS
    )


class _NoDispatchMode:
    def __init__(self) -> None:
        raise RuntimeError(
            f"operations cannot be counted: torch {torch.__version__} has no TorchDispatchMode; "
            "use a version of torch that has it"
        )


DispatchMode: Any = _lookup("torch.utils._python_dispatch:TorchDispatchMode") or _NoDispatchMode


# --------------------------------------------------------------------------- layouts of tensors


class LayoutGuard(Protocol):
    """Compares the layout of tensors with a remembered one."""

    def check(self, *tensors: Tensor) -> bool:
        """Return True only if dtype, device, shape, strides and pending negations are the same."""


class _NeverAgrees:
    def check(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        return False


_tensor_guards: Callable[..., Any] | None = _lookup("torch._C._dynamo.guards:TensorGuards")


def layout_guard(tensors: Sequence[Tensor]) -> LayoutGuard:
    """Return a guard whose ``check`` is True while the tensors have their present layout.

    The guard is the one of torch's compiler, which compares all tensors in one call. The fallback
    never returns True, and the caller has to compare attribute by attribute.
    """
    if _tensor_guards is None:
        return _NeverAgrees()
    guard: LayoutGuard = _tensor_guards(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    return guard


# ---------------------------------------------------------------------------------------- checks


def _no_check(*_: Any) -> None:
    pass


check_graph_capture: Callable[[Optimizer], None] = (
    _lookup("torch.optim:Optimizer._accelerator_graph_capture_health_check")
    or _lookup("torch.optim:Optimizer._cuda_graph_capture_health_check")  # its older name
    or _no_check
)
assert_async: Callable[[Tensor, str], None] = _lookup("torch:_assert_async") or _no_check


# --------------------------------------------------------------------------------- torch.compile


def constant_for_compiler(function: Callable[[], Result]) -> Callable[[], Result]:
    """Let `torch.compile` take the result of a function as a constant.

    This is `torch.compiler.assume_constant_result` without its import of the compiler, which takes
    seconds. A torch that does not read the mark traces the function.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
