"""Private names of torch, with a fallback for those that a version of torch may lack.

No other module of this package uses a private name of torch. A missing name costs speed or a
convenience and never changes a result; `FALLBACKS` lists the replacements. The operators on lists
of tensors, on which torch's own optimizers stand, have none. `OPTIMIZER_ATTRIBUTES` are private
names that `AFOR` itself has, because torch sets or reads them.
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
}
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

_Foreach = Callable[..., Any]  # lists and tuples of tensors
foreach_addcdiv_: _Foreach = torch._foreach_addcdiv_
foreach_addcmul: _Foreach = torch._foreach_addcmul
foreach_add_: _Foreach = torch._foreach_add_
foreach_clamp_max_: _Foreach = torch._foreach_clamp_max_
foreach_copy_: _Foreach = torch._foreach_copy_
foreach_div: _Foreach = torch._foreach_div
foreach_lerp_: _Foreach = torch._foreach_lerp_
foreach_mul: _Foreach = torch._foreach_mul
foreach_mul_: _Foreach = torch._foreach_mul_
foreach_neg: _Foreach = torch._foreach_neg
foreach_sqrt: _Foreach = torch._foreach_sqrt
foreach_sub_: _Foreach = torch._foreach_sub_
flatten: Callable[[list[Tensor]], Tensor] = torch._C._nn.flatten_dense_tensors
DispatchMode: Any = torch.utils._python_dispatch.TorchDispatchMode


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
