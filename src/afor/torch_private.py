"""Private names of torch that this package uses; no other module names one.

All versions of torch since 2.8 have them, except where a fallback is given. The optimizer itself
has the private names of `OPTIMIZER_ATTRIBUTES`, because torch sets or reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack
from torch._C._autograd import _profiler_enabled
from torch._C._dynamo.guards import TensorGuards
from torch._C._functorch import maybe_current_level
from torch.nn.modules import module as _modules
from torch.optim import Optimizer
from torch.optim import optimizer as _optimizers
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices

Result = TypeVar("Result")

# Private attribute of an optimizer: what happens in a torch that neither sets nor reads it.
OPTIMIZER_ATTRIBUTES = {
    "_optimizer_step_pre_hooks": "hooks are assumed to exist, and torch is asked in every step",
    "_optimizer_step_post_hooks": "as for _optimizer_step_pre_hooks",
    "_step_supports_amp_scaling": "GradScaler unscales the gradients before the step",
}
UNKNOWN_HOOKS: Any = ("unknown",)  # truthy: hooks that cannot be read are assumed to exist

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
# The device types on which foreach is faster than a loop.
foreach_devices: Callable[[], list[str]] = _get_foreach_kernels_supported_devices

# ------------------------------------------------------- profilers, dispatch modes and hooks

is_profiling: Callable[[], bool] = _profiler_enabled
is_watched: Callable[[], int] = _len_torch_dispatch_stack
# The number of the innermost transformation of torch.func, None outside of all.
transform_level: Callable[[], int | None] = maybe_current_level
global_pre_hooks: Any = _optimizers._global_optimizer_pre_hooks
global_post_hooks: Any = _optimizers._global_optimizer_post_hooks
# Private attributes of a module with the hooks that its own call would run.
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_has_global_hook: Callable[[], bool] = _modules._has_any_global_hook  # of all modules


def has_hooks(*modules: nn.Module) -> bool:
    """Return True if calling one of the modules does more than its forward function."""
    return _has_global_hook() or any(
        getattr(module, name) for module in modules for name in MODULE_HOOKS
    )


# ---------------------------------------------------------------------------------------- checks


def layout_guard(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Return a function of the same number of tensors that compares their layout with these.

    It returns True only if dtype, device, shape, strides and pending negations are the same. It is
    the guard of torch's compiler, which compares all tensors in one call.
    """
    guards: Any = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    check: Callable[..., bool] = guards.check
    return check


check_graph_capture: Callable[[Optimizer], None] = getattr(
    Optimizer, "_accelerator_graph_capture_health_check", None
) or getattr(Optimizer, "_cuda_graph_capture_health_check")  # noqa: B009 - of older versions
assert_async: Callable[[Tensor, str], None] = torch._assert_async


# --------------------------------------------------------------------------------- torch.compile


def constant_for_compiler(function: Callable[[], Result]) -> Callable[[], Result]:
    """Let `torch.compile` take the result of a function as a constant.

    This is `torch.compiler.assume_constant_result` without its import of the compiler, which takes
    seconds. A torch that does not read the mark traces the function.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
