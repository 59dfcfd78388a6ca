"""Load the compiled kernel and call it on lists of tensors.

`KernelPlan` holds the addresses the kernel works on, each with its storage. `is_native` tells which
of the tensors that fit each other (`tensors.find_problem`) the kernel has loops for; the kernel
itself checks, before it writes anything, that every tensor lies inside its storage. Building a plan
takes longer than a step on a small network; `group_plan.py` keeps it between steps.
"""

import ctypes
import functools
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from afor.control import ControlSettings, Sums
from afor.known_group import address_of, storage_address, storage_of, storage_size
from afor.native.extension import Signature, load_extension, require
from afor.tensors import STATE, Implementation, StepTensors
from afor.torch_private import constant_for_compiler

ABI = 5
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_SETTINGS = 18  # numbers in `struct settings`
ARRAYS = ("param", "grad", *STATE)  # the arrays of addresses, in the order of the kernel
ISA_VARIABLE = "AFOR_KERNEL_ISA"
NO_GRAD = 2**64 - 1  # in place of the address of a gradient: the kernel leaves the tensor alone


# ------------------------------------------------------------------------- loading the kernel


class _PlanStruct(ctypes.Structure):
    """The beginning of `struct plan` in kernel.c."""

    _fields_ = (
        ("tensors", ctypes.c_int64),
        ("chunks", ctypes.c_int64),
        ("numel", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ARRAYS),
        ("storage", ctypes.c_void_p),
        ("storage_bytes", ctypes.c_void_p),
        ("settings", ctypes.c_void_p),
    )


_PLAN, _SUMS = ctypes.c_void_p, ctypes.c_void_p
FUNCTIONS: dict[str, Signature] = {
    "afor_plan_new": (_PLAN, [ctypes.c_int64, *3 * [ctypes.c_void_p]]),
    "afor_plan_free": (None, [_PLAN]),
    "afor_step": (ctypes.c_int64, [_PLAN]),
    "afor_sums": (ctypes.c_int64, [_PLAN, _SUMS]),
    "afor_finish": (ctypes.c_int64, [_PLAN, _SUMS]),
    "afor_select": (ctypes.c_int, [ctypes.c_char_p]),
    "afor_selected": (ctypes.c_char_p, []),
    "afor_set": (ctypes.c_char_p, [ctypes.c_int]),
}


@functools.cache
def _library() -> ctypes.CDLL | str:
    """Return the loaded kernel, or the reason why it cannot be used."""
    library = load_extension("afor.native._kernel", "native kernel", "afor_abi", ABI, FUNCTIONS)
    if isinstance(library, str):
        return library
    problem = _select(library, os.environ.get(ISA_VARIABLE, ""))
    if problem is not None:
        warnings.warn(f"AFOR runs without its native kernel: {problem}", stacklevel=2)
        return problem
    return library


def _select(library: ctypes.CDLL, name: str) -> str | None:
    """Select an instruction set, or the best if the name is empty; return an error or None."""
    outcome = library.afor_select(os.fsencode(name))
    if outcome == 0:
        return None
    names = ", ".join(_instruction_sets(library))
    if outcome == 1:
        return (
            f"{ISA_VARIABLE}={name} names no instruction set of this native kernel; it has {names} "
            "(unset the variable to use the best one)"
        )
    return (
        f"{ISA_VARIABLE}={name} names an instruction set that this processor does not have; unset "
        f"the variable to use the best one that it has of {names}"
    )


def _instruction_sets(library: ctypes.CDLL) -> list[str]:
    """Return the names of the instruction sets in the kernel, best first."""
    names: list[str] = []
    while (name := library.afor_set(len(names))) is not None:
        names.append(name.decode())
    return names


@constant_for_compiler
def unavailable_reason() -> str | None:
    """Return the reason why the native CPU kernel cannot be used, or None if it can.

    >>> reason = unavailable_reason()
    >>> reason is None or "kernel" in reason
    True
    """
    library = _library()
    return library if isinstance(library, str) else None


@functools.cache
def log_missing_kernel() -> None:
    """Log once per process that AFOR's default on the CPU runs without its native kernel.

    It is a log record of the logger ``afor``, not a warning: results are right, only slower, and
    a program that turns warnings into errors goes on.
    """
    if (reason := unavailable_reason()) is not None:
        logging.getLogger("afor").warning(
            "AFOR runs without its native kernel, a step on the CPU takes several times as long: "
            "%s.",
            reason,
        )


def instruction_set() -> str | None:
    """Return the instruction set of the native kernel in use, or None without a kernel.

    It is the best one the processor supports (``avx512``, ``avx2`` or ``default``), or the one that
    the environment variable ``AFOR_KERNEL_ISA`` names when the kernel is first used. All give the
    same results.

    >>> instruction_set() in ("avx512", "avx2", "default", None)
    True
    """
    library = _library()
    return None if isinstance(library, str) else library.afor_selected().decode()


@functools.cache
def openmp_team() -> int | None:
    """Return the address of the OpenMP function that runs a task on torch's threads, or None.

    A second thread pool would compete with torch's for the cores.
    """
    if sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


# ---------------------------------------------------------------------------------- the plan


class KernelPlan:
    """Addresses and storages of the tensors of one call, in kernel memory.

    The plan keeps the storages of parameters and state alive, so that their memory is not reused
    while the kernel holds its address.
    """

    def __init__(self, params: Sequence[Tensor], state: Sequence[Sequence[Tensor]]) -> None:
        library = require(_library())
        n = len(params)
        elements = (ctypes.c_int64 * n)(*(p.numel() for p in params))
        dtypes = (ctypes.c_int64 * n)(*(DTYPES[p.dtype] for p in params))
        handle = library.afor_plan_new(n, elements, dtypes, openmp_team())
        if not handle:
            raise MemoryError(f"no memory for the plan of {n} tensors")
        self._finalizer = weakref.finalize(self, library.afor_plan_free, handle)
        self._library_step = functools.partial(library.afor_step, handle)
        self._library_sums = functools.partial(library.afor_sums, handle)
        self._library_finish = functools.partial(library.afor_finish, handle)
        self._tensors = n
        struct = _PlanStruct.from_address(handle)
        addresses = ctypes.c_uint64 * n
        width = ctypes.sizeof(addresses)
        self.grads = addresses.from_address(struct.grad)
        self.grad_storages = addresses.from_address(struct.storage + width)
        self.grad_storage_bytes = addresses.from_address(struct.storage_bytes + width)
        self._settings = (ctypes.c_double * _SETTINGS).from_address(struct.settings)
        tables = ctypes.c_uint64 * (len(ARRAYS) * n)
        self._all_storages = tables.from_address(struct.storage)
        self._all_storage_bytes = tables.from_address(struct.storage_bytes)
        self.storages: list[torch.UntypedStorage] = []
        for name, tensors in zip(("param", *STATE), (params, *state), strict=True):
            addresses.from_address(getattr(struct, name))[:] = list(map(address_of, tensors))
            self.storages += map(storage_of, tensors)
        self._write_storages()
        self._written: tuple[float, tuple[float, ...], int] = (0.0, (), 0)

    def _write_storages(self) -> None:
        """Set the storages of parameters and state to what they are now."""
        n = self._tensors
        for index, name in enumerate(("param", *STATE)):
            storages = self.storages[index * n : (index + 1) * n]
            array = slice(ARRAYS.index(name) * n, (ARRAYS.index(name) + 1) * n)
            self._all_storages[array] = list(map(storage_address, storages))
            self._all_storage_bytes[array] = list(map(storage_size, storages))

    def write_grads(self, addresses: Sequence[Any], storages: list[torch.UntypedStorage]) -> None:
        """Set the gradients of the next step: their addresses and the storages they lie in."""
        self.grads[:] = list(addresses)
        self.grad_storages[:] = list(map(storage_address, storages))
        self.grad_storage_bytes[:] = list(map(storage_size, storages))

    def write_settings(self, lr: float, settings: tuple[float, ...]) -> None:
        """Set the learning rate and the settings of the next step, which has torch's threads."""
        numbers = (lr, settings, torch.get_num_threads())
        if numbers != self._written:
            self._settings[:] = [lr, *settings, numbers[-1]]
            self._written = numbers

    def step(self) -> None:
        """Take a step.

        Raises:
            RuntimeError: A tensor does not lie inside its storage; nothing was changed.
        """
        _check_misfit(self._library_step())

    def sums(self) -> Tensor:
        """Return the five sums of each tensor, (tensors, 5); raises as `step`, changes nothing."""
        sums = torch.empty(self._tensors, len(Sums._fields), dtype=torch.float64)
        _check_misfit(self._library_sums(sums.data_ptr()))
        return sums

    def finish(self, sums: Tensor) -> None:
        """Take a step with the sums of whole tensors, of which these may be parts; raise as `step`.

        ``sums`` are those of each tensor, (tensors, 5), the first two divided by its elements.
        """
        sums = sums.to("cpu", torch.float64).contiguous()
        if sums.shape != (self._tensors, len(Sums._fields)):
            raise RuntimeError(f"AFOR: {tuple(sums.shape)} sums for {self._tensors} tensors")
        self._write_storages()  # another thread or a hook may have resized one since `sums`
        _check_misfit(self._library_finish(sums.data_ptr()))


class OutsideStorageError(RuntimeError):
    """A tensor does not lie inside its storage."""


def _check_misfit(misfit: int) -> None:
    """Raise OutsideStorageError for a tensor that the kernel has reported."""
    if misfit:
        tensor, array = divmod(misfit - 1, len(ARRAYS))
        raise OutsideStorageError(
            f"AFOR: {ARRAYS[array]} of tensor {tensor} of its group is larger than its "
            "storage, which was resized; nothing was changed. Give the tensor a storage of "
            "its own (tensor.clone()) and step again"
        )


def kernel_settings(
    s: ControlSettings, weight_decay: float, grad_factor: float
) -> tuple[float, ...]:
    """Return the fields of `struct settings` in its order, except the first and last.

    Gradients are multiplied by ``grad_factor``.
    """
    return (
        weight_decay, grad_factor,
        s.beta1, s.beta2, s.eps, s.beta2_min, s.direction_weight, s.direction_decay,
        s.warmup_steps, s.fast_channel, s.normalization == "self", s.fixed_mean, s.fixed_scale,
        s.zscore_clip, s.correction == "cumulative", s.statistics == "calibrated",
    )  # fmt: skip


def is_native(param: Tensor, grad: Tensor, state: Sequence[Tensor]) -> bool:
    """Return True if the kernel can update a parameter in its current memory layout.

    Args:
        param: The parameter.
        grad: Its gradient, with any strides: it is copied if they differ from the parameter's.
        state: Its exp_avg, exp_avg_sq, control and step, which fit it.
    """
    exp_avg, exp_avg_sq, control, _ = state
    wide = torch.float64 if param.dtype == torch.float64 else torch.float32
    return (
        param.device.type == "cpu"
        and param.dtype in DTYPES
        and grad.dtype == param.dtype
        and exp_avg.dtype == exp_avg_sq.dtype == control.dtype == wide
        and param.shape == grad.shape == exp_avg.shape == exp_avg_sq.shape
        and param.stride() == exp_avg.stride() == exp_avg_sq.stride()
        and control.is_contiguous()
        # dynamo cannot trace is_neg, and its tensors have no pending negation
        and (torch.compiler.is_compiling() or not any(t.is_neg() for t in (param, *state)))
        and _is_dense(param)
    )


def _is_dense(x: Tensor) -> bool:
    """Return True if the elements fill a block of memory, in any order, without overlap."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


# ---------------------------------------------------------------------------------- the step


class PlanCache:
    """The plan of the last step, which the next one uses if its tensors are where they were."""

    def __init__(self) -> None:
        self._plan: KernelPlan | None = None
        self._key: list[Any] = []

    def plan_for(self, params: Sequence[Tensor], state: Sequence[Sequence[Tensor]]) -> KernelPlan:
        """Return a plan for these tensors."""
        tensors = [*params, *chain.from_iterable(state)]
        storages = list(map(storage_of, tensors))
        key: list[Any] = [(p.dtype, p.numel()) for p in params]
        key += [*map(address_of, tensors), *map(storage_address, storages)]
        key += map(storage_size, storages)
        if self._plan is None or key != self._key:
            self._plan, self._key = KernelPlan(params, state), key
        return self._plan


class KernelStep(Implementation):
    """A step with the native kernel, on tensors that it supports (`is_native`).

    Nothing is modified before `finish`.

    Args:
        tensors: The tensors.
        lr: The learning rate.
        settings: What `kernel_settings` returned.
        cache: Keeps the plan between steps.
    """

    def __init__(
        self,
        tensors: StepTensors,
        lr: float | Tensor,
        settings: tuple[float, ...],
        cache: PlanCache | None = None,
    ) -> None:
        self.tensors = tensors
        self._lr, self._settings = lr, settings
        self._cache = cache or PlanCache()

    def step(self) -> None:
        """Take the step in one call; under `torch.compile` as an operator."""
        if torch.compiler.is_compiling():
            lr = self._lr
            rate = lr if isinstance(lr, Tensor) else torch.tensor(lr, dtype=torch.float64)
            torch.ops.afor.step(*self.tensors, rate, [float(x) for x in self._settings])
            return
        self._begin().step()
        increment_version(self.tensors.params)

    def sums(self) -> Sums:
        """Return the five sums of each tensor."""
        self._plan = self._begin()
        sums = self._plan.sums()
        sums[:, :2] /= torch.tensor([max(p.numel(), 1) for p in self.tensors.params])[:, None]
        return Sums(*sums.unbind(dim=1))

    def finish(self, sums: Sums) -> None:
        """Take the step with the sums of whole tensors."""
        _write_grads(self._plan, self._grads)
        self._plan.finish(torch.stack(sums, dim=1))
        increment_version(self.tensors.params)

    def _begin(self) -> KernelPlan:
        """Return the plan of this step; a gradient of other strides than its parameter's is copied.

        The gradients are kept: the plan holds their addresses.
        """
        params, grads, *state = self.tensors
        self._grads = [
            g.resolve_neg() if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
            for p, g in zip(params, grads, strict=True)
        ]
        plan = self._cache.plan_for(params, state)
        _write_grads(plan, self._grads)
        lr = self._lr.item() if isinstance(self._lr, Tensor) else self._lr
        plan.write_settings(lr, self._settings)
        return plan


def _write_grads(plan: KernelPlan, grads: Sequence[Tensor]) -> None:
    plan.write_grads(list(map(address_of, grads)), list(map(storage_of, grads)))


@torch.library.custom_op(
    "afor::step",
    mutates_args=("params", "exp_avgs", "exp_avg_sqs", "controls", "state_steps"),
    device_types="cpu",
    schema=(  # torch 2.6 cannot read `list[Tensor]`
        "(Tensor(a0!)[] params, Tensor[] grads, Tensor(a2!)[] exp_avgs, Tensor(a3!)[] exp_avg_sqs, "
        "Tensor(a4!)[] controls, Tensor(a5!)[] state_steps, Tensor lr, float[] settings) -> ()"
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
    settings: list[float],
) -> None:
    """Take one step, as an operator for `torch.compile`."""
    tensors = StepTensors(params, grads, exp_avgs, exp_avg_sqs, controls, state_steps)
    KernelStep(tensors, lr, tuple(settings)).step()
