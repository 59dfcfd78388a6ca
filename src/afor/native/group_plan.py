"""A kernel plan for a whole parameter group, kept between steps.

`GroupPlan.run` checks before each step that nothing the plan points to was replaced, reshaped or
resized: parameters and state are the same objects at the same addresses, in storages (which the
plan keeps alive) of the same size; parameters and gradients have the same dtypes, shapes and
strides. The kernel checks that all tensors lie inside their storages. On a small network the checks
take longer than the kernel, so they use `map` over lists instead of Python loops.

The plan holds every parameter that has had a gradient; the kernel leaves those alone that have none
in a step. Frozen parameters are not in it.
"""

from collections.abc import Callable
from itertools import chain, repeat
from operator import attrgetter, is_, is_not
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from afor.control import control_settings
from afor.native.binding import (
    NO_GRAD,
    KernelPlan,
    OutsideStorageError,
    is_native,
    kernel_settings,
    storage_size,
    unavailable_reason,
)
from afor.state_check import STATE, checked_rate
from afor.torch_private import LayoutGuard, layout_guard

if TYPE_CHECKING:
    from afor.optimizer import AFOR


class GroupPlan:
    """The kernel plan of a parameter group, with the objects it was built from."""

    def __init__(self, optimizer: "AFOR", group: dict[str, Any]) -> None:
        self.group = group
        self.listed = list(group["params"])
        self.params = [p for p in self.listed if optimizer.state.get(p)]
        self.untrained = [p for p in self.listed if not optimizer.state.get(p)]
        self.states = [optimizer.state[p] for p in self.params]
        self.all_states = list(optimizer.state.values())
        self.state_tensors = list(_values(self.states))
        self.addresses = list(map(_address, chain(self.params, self.state_tensors)))
        # In lists of gradients, tensors of the same layout stand for those that are missing.
        self.stand_ins = [p.detach() for p in self.params]
        self._read_pattern([p.grad is None for p in self.params])
        self.layouts = [list(map(get, self.params)) for get in _LAYOUT]
        self.contiguous = all(map(_is_contiguous, self.params))
        self.plan = KernelPlan(self.params, [[s[name] for s in self.states] for name in STATE])
        self.guard: LayoutGuard | None = None
        self.options: list[Any] = []  # values of the group that `settings` were read from
        self.settings: tuple[float, ...] = ()

    @classmethod
    def build(cls, optimizer: "AFOR", group: dict[str, Any]) -> "GroupPlan | None":
        """Return a plan, or None if the kernel cannot update every parameter that has a state."""
        if unavailable_reason() is not None:
            return None
        for p in group["params"]:
            state = optimizer.state.get(p)
            if not state:
                continue
            plain = type(p) in (Tensor, torch.nn.Parameter) and state.keys() == set(STATE)
            grad = p.detach() if p.grad is None else p.grad
            if not plain or not is_native(p, grad, [state[name] for name in STATE]):
                return None
        return cls(optimizer, group)

    @staticmethod
    def serves(group: dict[str, Any]) -> bool:
        """Return True if the options of a group select the kernel."""
        if group["differentiable"]:
            return False
        return bool(group["fused"]) or (group["fused"] is None and group["foreach"] is None)

    def run(self, optimizer: "AFOR") -> bool:
        """Take a step; return False without doing anything if the plan is out of date.

        This is one long function because on a small network a function call costs about as much as
        the check it would contain.
        """
        group, params = self.group, self.params
        if not (self.options and all(map(is_, self.options, group.values()))):
            if not self.serves(group):
                return False
            self._read_options()
        listed, states = group["params"], optimizer.state
        current = list(_values(self.states))
        if not (
            len(listed) == len(self.listed)
            and all(map(is_, listed, self.listed))
            and len(states) == len(self.all_states)
            and all(map(is_, states.values(), self.all_states))
            and len(current) == len(self.state_tensors)
            and all(map(is_, current, self.state_tensors))
        ):
            return False

        if self.untrained and any(map(is_not, map(_grad, self.untrained), repeat(None))):
            return False
        grads = list(map(_grad, params))
        pattern = list(map(is_, grads, repeat(None)))
        if pattern != self.pattern:
            self._read_pattern(pattern)
        for i in self.missing:
            grads[i] = self.stand_ins[i]
        try:
            addresses = list(map(_address, chain(params, self.state_tensors, grads)))
            storages = list(map(_storage, grads))
            if self.guard is None or not self.guard.check(*params, *grads):
                if not self._has_layouts(grads):
                    return False
                self.guard = layout_guard([*params, *grads])
        except (TypeError, RuntimeError):  # not a dense gradient
            return False
        plan, count = self.plan, len(self.addresses)
        if addresses[:count] != self.addresses:
            return False
        if list(map(storage_size, plan.storages)) != plan.storage_bytes:
            return False

        settings = self.settings
        found_inf = optimizer.__dict__.get("found_inf")
        if found_inf is not None:  # set by GradScaler
            if found_inf.item() != 0.0:
                return True
            grad_scale = optimizer.__dict__.get("grad_scale")
            if grad_scale is not None:  # None after `unscale_`
                settings = self._settings(1.0 / grad_scale.item())
        threads = torch.get_num_threads()
        for i in self.missing:
            addresses[count + i] = NO_GRAD
        plan.write_grads(addresses[count:], storages)
        if plan.written[0] is not settings or plan.written[1] != threads:
            plan.write_settings(settings, threads)
        try:
            plan.step()
        except OutsideStorageError:  # nothing was changed; the next check names the parameter
            return False
        increment_version(self.present)  # as any in-place operator does
        return True

    def _read_pattern(self, pattern: list[bool]) -> None:
        """Remember which parameters have no gradient."""
        self.pattern = pattern
        self.missing = [i for i, missing in enumerate(pattern) if missing]
        self.present = [p for p, missing in zip(self.params, pattern, strict=True) if not missing]

    def _has_layouts(self, grads: list[Tensor]) -> bool:
        """Return True if params and grads have the dtypes, shapes and strides of the plan."""
        if [list(map(get, self.params)) for get in _LAYOUT] != self.layouts:
            return False
        *layouts, strides = self.layouts
        if [list(map(get, grads)) for get in _LAYOUT[:-1]] != layouts:
            return False
        if self.contiguous:
            return all(map(_is_contiguous, grads))
        return list(map(_stride, grads)) == strides

    def _read_options(self) -> None:
        """Read the settings; remember the options only if they are immutable objects."""
        self.settings = self._settings(1.0)
        immutable = not isinstance(self.group["lr"], Tensor) and type(self.group["betas"]) is tuple
        self.options = list(self.group.values()) if immutable else []

    def _settings(self, grad_factor: float) -> tuple[float, ...]:
        """Return the kernel settings for gradients that are multiplied by a factor."""
        lr = self.group["lr"]
        lr = checked_rate(lr).item() if isinstance(lr, Tensor) else lr
        factor = -grad_factor if self.group["maximize"] else grad_factor
        return kernel_settings(control_settings(self.group), lr, self.group["weight_decay"], factor)


def _values(states: list[dict[str, Any]]) -> chain[Any]:
    """Return all values of the states of a group, one state after the other."""
    return chain.from_iterable(map(dict.values, states))


_address = Tensor.data_ptr
_storage = Tensor.untyped_storage
_is_contiguous = Tensor.is_contiguous
_stride = Tensor.stride
_grad = attrgetter("grad")
_LAYOUT: tuple[Callable[[Tensor], Any], ...] = (
    attrgetter("dtype"),
    attrgetter("shape"),
    attrgetter("device"),
    Tensor.is_neg,
    _stride,
)
