"""A parameter group as a step has found and checked it, so that the next one need not do so again.

`KnownGroup.find_grads` compares before each step what it remembers with the group as it is:
parameters and state are the same objects at the same addresses, in storages (which it keeps alive)
of the same size; parameters and gradients have the same dtypes, shapes and strides. On a small
network these comparisons take longer than the kernel, so they use `map` over lists instead of
Python loops.

It holds every parameter that has had a gradient. In lists of gradients, tensors of the same layout
stand for those that are missing in a step. Frozen parameters are not in it.
"""

from collections.abc import Callable
from itertools import chain, repeat
from operator import attrgetter, is_, is_not
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afor.tensors import PLAIN, STATE, StepTensors, fits, span
from afor.torch_private import layout_guard

States = dict[Tensor, dict[str, Any]]  # of an optimizer


class Grads(NamedTuple):
    """The gradients of a known group, one for each of its parameters."""

    tensors: list[Tensor]
    addresses: list[int]
    storages: list[torch.UntypedStorage]


class KnownGroup:
    """The parameters of a group, their state, and what shows that both are as they were."""

    def __init__(self, group: dict[str, Any], state: States) -> None:
        self.group = group
        self._listed = list(group["params"])
        self.params = [p for p in self._listed if state.get(p)]
        self._untrained = [p for p in self._listed if not state.get(p)]
        self._states = [state[p] for p in self.params]
        self._all_states = list(state.values())
        self.columns = [[s[name] for s in self._states] for name in STATE]
        self._state_tensors = list(_values(self._states))
        self._tensors = [*self.params, *self._state_tensors]
        self._addresses = list(map(address_of, self._tensors))
        self._storages = list(map(storage_of, self._tensors))
        self._storage_sizes = list(map(storage_size, self._storages))
        self._stand_ins = [p.detach() for p in self.params]
        self._layouts = [list(map(get, self.params)) for get in _LAYOUT]
        self._contiguous = all(map(_is_contiguous, self.params))
        self._spans = list(map(span, self.params))
        self._state_shapes = list(map(_shape, self._state_tensors))
        self._same_layouts: Callable[..., bool] | None = None
        self._read_pattern([p.grad is None for p in self.params])

    @classmethod
    def remember(cls, group: dict[str, Any], state: States) -> "KnownGroup | None":
        """Return the group as it is, or None if it holds what cannot be compared quickly."""
        for p in group["params"]:
            of_p = state.get(p)
            if not of_p:
                continue
            if type(p) not in PLAIN or of_p.keys() != _ENTRIES:
                return None
            if p.grad is None and not fits(p, p.detach(), of_p):  # no step has checked it
                return None
        return cls(group, state)

    def find_grads(self, state: States) -> Grads | None:
        """Return the gradients of the next step, or None if the group is not as it was."""
        listed, params = self.group["params"], self.params
        current = list(_values(self._states))
        if not (
            len(listed) == len(self._listed)
            and all(map(is_, listed, self._listed))
            and len(state) == len(self._all_states)
            and all(map(is_, state.values(), self._all_states))
            and len(current) == len(self._state_tensors)
            and all(map(is_, current, self._state_tensors))
        ):
            return None
        if self._untrained and any(map(is_not, map(_grad, self._untrained), repeat(None))):
            return None
        grads = list(map(_grad, params))
        pattern = list(map(is_, grads, repeat(None)))
        if pattern != self._pattern:
            self._read_pattern(pattern)
        for i in self.missing:
            grads[i] = self._stand_ins[i]
        try:
            if list(map(address_of, self._tensors)) != self._addresses:
                return None
            found = Grads(grads, list(map(address_of, grads)), list(map(storage_of, grads)))
            if self._same_layouts is None or not self._same_layouts(*params, *grads):
                if not self._have_layouts(grads):
                    return None
                self._same_layouts = layout_guard([*params, *grads])
        except (TypeError, RuntimeError):  # not a dense gradient
            return None
        if list(map(storage_size, self._storages)) != self._storage_sizes:
            return None
        return found

    def step_tensors(self, grads: Grads) -> StepTensors | None:
        """Return the lists of a step, or None if the state or a gradient is not to be touched.

        That is a state of another shape, or a gradient larger than its storage.
        """
        if list(map(_shape, self._state_tensors)) != self._state_shapes:
            return None
        for address, bytes_used, storage in zip(
            grads.addresses, self._spans, grads.storages, strict=True
        ):
            if address + bytes_used > storage.data_ptr() + storage.nbytes():
                return None
        return StepTensors(self.params, grads.tensors, *self.columns).select(
            [not missing for missing in self._pattern]
        )

    def _read_pattern(self, pattern: list[bool]) -> None:
        """Remember which parameters have no gradient."""
        self._pattern = pattern
        self.missing = [i for i, missing in enumerate(pattern) if missing]
        self.present = [p for p, missing in zip(self.params, pattern, strict=True) if not missing]

    def _have_layouts(self, grads: list[Tensor]) -> bool:
        """Return True if params and grads have the dtypes, shapes and strides remembered."""
        if [list(map(get, self.params)) for get in _LAYOUT] != self._layouts:
            return False
        *layouts, strides = self._layouts
        if [list(map(get, grads)) for get in _LAYOUT[:-1]] != layouts:
            return False
        if self._contiguous:
            return all(map(_is_contiguous, grads))
        return list(map(Tensor.stride, grads)) == strides


def _values(states: list[dict[str, Any]]) -> chain[Any]:
    """Return all values of the states of a group, one state after the other."""
    return chain.from_iterable(map(dict.values, states))


address_of = Tensor.data_ptr
storage_of = Tensor.untyped_storage
storage_address = torch.UntypedStorage.data_ptr
storage_size = torch.UntypedStorage.nbytes
_ENTRIES = set(STATE)
_is_contiguous = Tensor.is_contiguous
_grad, _shape = attrgetter("grad"), attrgetter("shape")
_LAYOUT: tuple[Callable[[Tensor], Any], ...] = (
    attrgetter("dtype"),
    _shape,
    attrgetter("device"),
    Tensor.is_neg,
    Tensor.stride,
)
