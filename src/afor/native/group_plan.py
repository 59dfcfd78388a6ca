"""A kernel plan for a whole parameter group, kept between steps while the group stays as it is."""

from operator import is_
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd.graph import increment_version

from afor.control import control_settings
from afor.known_group import KnownGroup
from afor.native.binding import NO_GRAD, KernelPlan, OutsideStorageError, is_native, kernel_settings
from afor.tensors import checked_rate

if TYPE_CHECKING:
    from afor.optimizer import AFOR

_IMPLEMENTATION = ("foreach", "fused", "differentiable")  # options that choose it


class GroupPlan:
    """The kernel plan of a known group. The kernel leaves parameters without a gradient alone."""

    def __init__(self, known: KnownGroup) -> None:
        self.known = known
        self.group = known.group
        self.plan = KernelPlan(known.params, known.columns)
        self._chosen_by = [self.group[name] for name in _IMPLEMENTATION]
        self._options: list[Any] = []  # values of the group that the next two were read from
        self._lr: float = 0.0
        self._settings: tuple[float, ...] = ()

    @classmethod
    def build(cls, known: KnownGroup) -> "GroupPlan | None":
        """Return a plan, or None if the kernel cannot update every parameter that has a state."""
        for p, *state in zip(known.params, *known.columns, strict=True):
            if not is_native(p, p.detach() if p.grad is None else p.grad, state):
                return None
        return cls(known)

    def run(self, optimizer: "AFOR") -> bool:
        """Take a step; return False without doing anything if the plan is out of date."""
        if not (self._options and all(map(is_, self._options, self.group.values()))):
            if [self.group[name] for name in _IMPLEMENTATION] != self._chosen_by:
                return False
            self._read_options()
        grads = self.known.find_grads(optimizer.state)
        if grads is None:
            return False
        settings = self._settings
        found_inf = optimizer.__dict__.get("found_inf")
        if found_inf is not None:  # set by GradScaler
            if found_inf.item() != 0.0:
                return True
            grad_scale = optimizer.__dict__.get("grad_scale")
            if grad_scale is not None:  # None after `unscale_`
                settings = self._read_settings(1.0 / grad_scale.item())
        for i in self.known.missing:
            grads.addresses[i] = NO_GRAD
        self.plan.write_grads(grads.addresses, grads.storages)
        self.plan.write_settings(self._lr, settings)
        try:
            self.plan.step()
        except OutsideStorageError:  # nothing was changed; the next check names the parameter
            return False
        increment_version(self.known.present)  # as any in-place operator does
        return True

    def _read_options(self) -> None:
        """Read the settings; remember the options only if they are immutable objects."""
        lr = self.group["lr"]
        self._lr = checked_rate(lr).item() if isinstance(lr, Tensor) else lr
        self._settings = self._read_settings(1.0)
        immutable = not isinstance(lr, Tensor) and type(self.group["betas"]) is tuple
        self._options = list(self.group.values()) if immutable else []

    def _read_settings(self, grad_factor: float) -> tuple[float, ...]:
        """Return the kernel settings for gradients that are multiplied by a factor."""
        factor = -grad_factor if self.group["maximize"] else grad_factor
        return kernel_settings(control_settings(self.group), self.group["weight_decay"], factor)
