"""The optimizer AFOR: arguments, checks, state, step and state dict."""

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.compiler import is_dynamo_compiling
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from afor import checkpoint
from afor.control import control_settings, initial_control
from afor.known_group import KnownGroup
from afor.native.binding import PlanCache, unavailable_reason
from afor.native.group_plan import GroupPlan
from afor.sharded.completion import Attendance
from afor.sharded.step import (
    ShardedStep,
    check_sharded,
    is_sharded,
    sharded_members,
    split_sharded,
    step_sharded,
)
from afor.tensors import (
    STATE,
    StepOptions,
    StepTensors,
    checked_rate,
    find_problem,
    fits,
    is_inside_storage,
    parameter_name,
)
from afor.torch_private import (
    UNKNOWN_HOOKS,
    check_graph_capture,
    global_post_hooks,
    global_pre_hooks,
    is_profiling,
)
from afor.triton.launch import triton_unavailable_reason
from afor.update import Name, choose, implementations

CHOICES = {
    "normalization": ("self", "fixed"),
    "correction": ("cumulative", "fixed"),
    "statistics": ("paper", "calibrated"),
    "half_moments": ("float32", "parameter"),
}

# Options that are numbers: rule in messages, check of a finite number, names.
_NUMBERS: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "in [0, 1)": (lambda x: 0 <= x < 1, ("betas[0]", "betas[1]", "beta2_min", "direction_decay")),
    "at least 0": (lambda x: x >= 0, ("eps", "weight_decay", "direction_weight", "warmup_steps")),
    "finite": (lambda _: True, ("fixed_mean",)),
    "above 0": (lambda x: x > 0, ("fixed_scale", "zscore_clip")),
}
_CONFLICTS = (
    ("fused", "foreach", "`fused` and `foreach` cannot be `True` together"),
    ("fused", "differentiable", "`fused` does not support `differentiable`"),
    ("foreach", "differentiable", "`foreach` does not support `differentiable`"),
)
SWITCHES = (
    "fast_channel", "maximize", "foreach", "fused", "check_fused", "capturable", "differentiable",
)  # fmt: skip


class AFOR(Optimizer):
    """AdamW whose second-moment decay adapts per tensor and per step.

    Each step, every tensor's gradient is scored by how it compares with the tensor's own momentum
    (how far off it is, and whether it points the same way). A score above the tensor's own running
    mean lengthens its memory towards ``betas[1]``, one below shortens it towards ``beta2_min``.
    With ``beta2_min == betas[1]`` the update is AdamW's, and no score is computed. One step of a
    tensor, with g its gradient, m and v its moments::

        score    = mean|m_t| / noise * agreement    # noise: running mean of |g - m|;
                                                    # agreement: running cosine of g and m
        z        = (score - its running mean) / its running standard deviation
        beta2    = beta2_min + (betas[1] - beta2_min) * sigmoid(z)      # faded in by the warm-up
        m_t, v_t = the averages of g and g^2 with the decays betas[0] and beta2
        param   -= lr * (weight_decay * param + m_hat / (sqrt(v_hat) + eps))

    where the hats divide by 1 minus the product of the decays so far. The equations are those of
    Zhu et al., "Adaptive Forgetting for Nonstationary Optimization: Towards Robust EEG Decoding".

    Args:
        params: parameters, named parameters or parameter groups, as for any torch optimizer.
            Every option below can be set per group.
        lr: learning rate, a number (of NumPy, too) or a one-element tensor (default: 1e-3).
        betas: decay of the first moment, and the longest memory of the second, beta2^init
            (default: (0.9, 0.999)).
        eps: added to the denominator of the update, and where the paper adds it in the score
            (default: 1e-8).
        weight_decay: decoupled weight decay (default: 1e-2, as in torch's AdamW).
        beta2_min: the shortest memory of the second moment (default: 0.99).
        direction_weight: how much disagreement with the momentum lowers the score (w); 0 ignores
            the direction, *w/o DC* (default: 1.0).
        warmup_steps: steps over which adaptation fades in (T_w); 0 adapts from the first step,
            *w/o TSG* (default: 100).
        direction_decay: decay of the running agreement (default: 0.9).
        fast_channel: compare with the larger of a fast and a slow noise average; ``False`` uses the
            slow one alone, *w/o FC* (default: True).
        normalization: ``"self"`` standardises the score by its own running mean and variance;
            ``"fixed"`` by ``fixed_mean`` and ``fixed_scale``, *w/o SRN* (default: "self").
        fixed_mean: see ``normalization`` (default: 1.0).
        fixed_scale: see ``normalization`` (default: 2.0).
        zscore_clip: bound of the standardised score (default: 5.0).
        correction: ``"cumulative"`` normalises the second moment by the product of the decays;
            ``"fixed"`` by that of ``betas[1]`` alone, *w/o EC* (default: "cumulative").
        statistics: ``"paper"``, or ``"calibrated"`` (ours): running mean and variance of the score
            are corrected for their initial values, so that adaptation is active after the warm-up
            (default: "paper").
        half_moments: moments of float16 and bfloat16 parameters in ``"float32"`` or in the dtype of
            the ``"parameter"`` (default: "float32").
        maximize: ascend instead of descend (default: False).
        foreach: use the multi-tensor implementation; ``None`` picks the fastest that is valid
            (default: None).
        fused: use the native kernel; ``None`` uses it on CPU when it was built (default: None).
        check_fused: compare the kernels with the equations, on small tensors, before the first
            ``fused`` step of this process on a CUDA device, and raise RuntimeError if they differ
            (default: True).
        capturable: allow capture in a CUDA graph. The state lives on the device in any case
            (default: False).
        differentiable: let autograd run through ``step`` (default: False).

    Example:
        >>> import torch
        >>> from afor import AFOR
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = AFOR(model.parameters(), lr=1e-3, weight_decay=1e-4)
        >>> loss = model(torch.ones(3, 4)).square().mean()
        >>> loss.backward()
        >>> optimizer.step()
        >>> optimizer.zero_grad()

    A non-finite gradient does what it does in AdamW: the moments and the parameter take it up.
    The control state does not; it stays as it was and beta2 stays in range, so that a run whose
    moments and parameters are restored goes on.
    """

    # torch sets these on each optimizer.
    _optimizer_step_pre_hooks: Any = UNKNOWN_HOOKS
    _optimizer_step_post_hooks: Any = UNKNOWN_HOOKS

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        beta2_min: float = 0.99,
        direction_weight: float = 1.0,
        warmup_steps: int = 100,
        direction_decay: float = 0.9,
        fast_channel: bool = True,
        normalization: Literal["self", "fixed"] = "self",
        fixed_mean: float = 1.0,
        fixed_scale: float = 2.0,
        zscore_clip: float = 5.0,
        correction: Literal["cumulative", "fixed"] = "cumulative",
        statistics: Literal["paper", "calibrated"] = "paper",
        half_moments: Literal["float32", "parameter"] = "float32",
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        check_fused: bool = True,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "beta2_min": beta2_min, "direction_weight": direction_weight,
            "warmup_steps": warmup_steps, "direction_decay": direction_decay,
            "fast_channel": fast_channel, "normalization": normalization,
            "fixed_mean": fixed_mean, "fixed_scale": fixed_scale, "zscore_clip": zscore_clip,
            "correction": correction, "statistics": statistics,
            "half_moments": half_moments, "maximize": maximize, "foreach": foreach,
            "fused": fused, "check_fused": check_fused, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        _check_options(defaults)
        self._forget()
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _forget(self) -> None:
        """Drop what is remembered of each group between steps, by the group's id."""
        self._plans: dict[int, GroupPlan] = {}
        self._known: dict[int, KnownGroup] = {}
        self._caches: dict[int, PlanCache] = {}
        self._attendance = Attendance()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # If True, GradScaler passes its scale to step() instead of unscaling, as for torch's fused.
        return all(group["fused"] for group in self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group; options it does not set take the optimizer's defaults."""
        if isinstance(param_group, dict):
            _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            if any(map(is_sharded, group["params"])):
                check_sharded(group)
            if group["fused"]:
                _check_fused(group["params"])
        except RuntimeError:
            del self.param_groups[-1]
            raise
        _choose(group, group["params"])  # logs if the native kernel is missing

    # -------------------------------------------------------------------------------- state

    def _collect(self, group: dict[str, Any]) -> StepTensors:
        """Return the tensors of a group that have a gradient, checked; the one walk over it."""
        if not torch.compiler.is_compiling():
            known = self._known.get(id(group))
            if known is not None and known.group is group:
                grads = known.find_grads(self.state)
                tensors = None if grads is None else known.step_tensors(grads)
                if tensors is not None:
                    return tensors
                del self._known[id(group)]
        tensors = StepTensors.empty()
        self._init_group(group, *tensors)
        if not torch.compiler.is_compiling():
            known = KnownGroup.remember(group, self.state)
            if known is not None:
                self._known[id(group)] = known
        return tensors

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        """Fill the lists, initialise missing state; return whether a parameter is complex.

        torch's compiler calls this by its name instead of tracing it.
        """
        has_complex = False
        for position, p in enumerate(group["params"]):
            if p.grad is None:
                continue
            if p.grad.layout != torch.strided:
                raise RuntimeError("AFOR does not support sparse gradients")
            has_complex |= torch.is_complex(p)
            state = self.state[p]
            if not state:
                self._init_state(p, state, group)
            if not fits(p, p.grad, state):
                self._check_state(group, position, p, state)
            row = (p, p.grad, *map(state.__getitem__, STATE))
            for column, tensor in zip(lists, row, strict=True):
                column.append(tensor)
        return has_complex

    def _init_state(self, p: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        # All state is on the parameter's device, so that a step needs no host sync.
        state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
        for name in ("exp_avg", "exp_avg_sq"):
            dtype = checkpoint.moment_dtype(p, group)
            state[name] = torch.zeros_like(p, dtype=dtype, memory_format=torch.preserve_format)
        state["control"] = torch.tensor(
            initial_control(control_settings(group)),
            dtype=checkpoint.control_dtype(p),
            device=p.device,
        )

    def _check_state(
        self, group: dict[str, Any], position: int, p: Tensor, state: dict[str, Any]
    ) -> None:
        """Raise RuntimeError if state or gradient do not fit; convert the step count to float32."""
        step = state.get("step")
        if isinstance(step, (int, float)):
            state["step"] = torch.tensor(float(step), device=p.device)
        elif isinstance(step, Tensor) and step.dtype != torch.float32 and not step.is_complex():
            state["step"] = step.to(torch.float32)
        misfit = find_problem(p, state, p.grad)
        if misfit is not None:
            before = self.param_groups[: [id(g) for g in self.param_groups].index(id(group))]
            number = sum(len(g["params"]) for g in before) + position
            raise RuntimeError(
                f"AFOR cannot step: of {parameter_name(group, position, number)}, {misfit}. "
                "Parameter, gradient and state were changed apart from each other: restore them, "
                "or delete the parameter's entry of optimizer.state to begin its state anew"
            )

    # --------------------------------------------------------------------------------- step

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; with a closure, evaluate it first and return its loss."""
        if is_dynamo_compiling():
            return self._step(closure)
        # torch wraps `step` for hooks and profilers, which costs as much as the kernel on a small
        # network. We do so only if there is a hook; to a profiler we name the step as torch does.
        if (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or global_pre_hooks
            or global_post_hooks
        ):
            return self._hooked_step(closure)
        if is_profiling():
            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                return self._step(closure)
        return self._step(closure)

    step.hooked = True  # type: ignore[attr-defined]

    @Optimizer.profile_hook_step
    def _hooked_step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take a step with hooks."""
        return self._step(closure)

    def _step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        planned, others = [], []
        for group in self.param_groups:
            plan = None if is_dynamo_compiling() else self._plans.get(id(group))
            if plan is not None and plan.group is group:
                planned.append(plan)
            else:
                others.append(group)
        if others:
            self._step_groups(others)
        for plan in planned:
            if not plan.run(self):
                del self._plans[id(plan.group)]
                self._step_groups([plan.group])
        return loss

    def _step_groups(self, groups: list[dict[str, Any]]) -> None:
        """Collect the tensors of groups, then take a step on the sharded ones, then on the others.

        So nothing has changed if a tensor does not fit, or if the ranks disagree.
        """
        check_graph_capture(self)
        numbers = {id(group): number for number, group in enumerate(self.param_groups)}
        plain: list[tuple[dict[str, Any], StepTensors]] = []
        sharded: list[ShardedStep] = []
        for group in groups:
            tensors = self._collect(group)
            members = sharded_members(group, numbers[id(group)])
            if members:
                check_sharded(group)
                tensors, shards = split_sharded(tensors)
                chosen_by, cache = (group["foreach"], group["fused"]), self._cache(group)
                options = self._step_options(group)
                sharded.append(ShardedStep(members, shards, options, *chosen_by, cache))
            plain.append((group, tensors))
        if sharded:
            with torch.no_grad():
                step_sharded(sharded, self._attendance)
        for group, tensors in plain:
            if tensors.params and not self._step_planned(group, tensors):
                with torch.set_grad_enabled(group["differentiable"]):
                    name, options = _choose(group, tensors.params), self._step_options(group)
                    for part in implementations(name, tensors, options, self._cache(group)):
                        part.step()

    def _step_planned(self, group: dict[str, Any], tensors: StepTensors) -> bool:
        """Take a step with a plan that is kept; return False if the kernel cannot take them all."""
        known = None if is_dynamo_compiling() else self._known.get(id(group))
        if known is None or _choose(group, tensors.params) != "fused":
            return False
        plan = GroupPlan.build(known)
        if plan is None or not plan.run(self):
            return False
        self._plans[id(group)] = plan
        return True

    def _cache(self, group: dict[str, Any]) -> PlanCache:
        if torch.compiler.is_compiling():
            return PlanCache()
        return self._caches.setdefault(id(group), PlanCache())

    def _step_options(self, group: dict[str, Any]) -> StepOptions:
        lr = group["lr"]
        return StepOptions(
            settings=control_settings(group),
            lr=checked_rate(lr) if isinstance(lr, Tensor) else float(lr),
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            grad_scale=getattr(self, "grad_scale", None),  # both set by GradScaler
            found_inf=getattr(self, "found_inf", None),
            check_fused=group["check_fused"],
        )

    # --------------------------------------------------------------------------- state dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of AFOR, Adam, AdamW or the package afor-optimizer.

        State that Adam does not have (noise, agreement and score statistics) is initialised, with a
        warning, which also says if ``max_exp_avg_sq`` of amsgrad is dropped. Unlike torch's, this
        method keeps the dtypes of the state: moments and control of half-precision parameters stay
        float32.

        Args:
            state_dict: What ``state_dict()`` of one of these optimizers returned.

        Raises:
            ValueError: The state does not fit the parameters (it belongs to another network or
                optimizer), or an option is not valid. The optimizer is unchanged.
        """
        checkpoint.load(self, state_dict, super().load_state_dict, _check_options)
        self._forget()


def _choose(group: dict[str, Any], params: list[Tensor]) -> Name:
    """Return the name of the implementation that parameters of a group take."""
    return choose(
        params,
        foreach=group["foreach"],
        fused=group["fused"],
        differentiable=group["differentiable"],
    )


def _check_options(options: dict[str, Any]) -> None:
    """Raise ValueError for the first option that is not valid."""
    lr = options["lr"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"lr as a tensor must have one element, got shape {tuple(lr.shape)}")
    if isinstance(lr, Tensor) and not is_inside_storage(lr):
        raise ValueError("lr is larger than its storage, which was freed or cut")
    rate = lr.item() if isinstance(lr, Tensor) else lr
    _check_number("lr", rate, "at least 0", lambda x: x >= 0)
    betas = options["betas"]
    if not isinstance(betas, Iterable) or len(tuple(betas)) != 2:
        raise ValueError(f"betas must be a pair (beta1, beta2), got {betas!r}")
    beta1, beta2 = betas
    numbers = {**options, "betas[0]": beta1, "betas[1]": beta2}
    for rule, (accepts, names) in _NUMBERS.items():
        for name in names:
            _check_number(name, numbers[name], rule, accepts)
    if options["beta2_min"] > beta2:
        raise ValueError(
            f"beta2_min must not be above betas[1], got beta2_min={options['beta2_min']} > "
            f"betas[1]={beta2}; lower beta2_min, or set both equal for a fixed decay"
        )
    for name, accepted in CHOICES.items():
        if options[name] not in accepted:
            raise ValueError(f"{name} must be one of {accepted}, got {options[name]!r}")
    for name in SWITCHES:
        if not isinstance(options[name], bool) and not (
            options[name] is None and name in ("foreach", "fused")
        ):
            raise ValueError(f"{name} must be True or False, got {options[name]!r}")
    for first, second, problem in _CONFLICTS:
        if options[first] and options[second]:
            raise RuntimeError(problem)


def _check_number(name: str, value: Any, rule: str, accepts: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):  # numbers of NumPy included
        raise ValueError(f"{name} must be a number {rule}, got {value!r}")
    if not math.isfinite(value) or not accepts(float(value)):
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def _check_fused(params: list[Tensor]) -> None:
    for p in params:
        if p.device.type not in ("cpu", "cuda"):
            raise RuntimeError(
                "`fused=True` requires all parameters to be tensors on the CPU or a CUDA device, "
                f"got {p.dtype} on {p.device.type}; leave fused unset"
            )
    devices = {p.device.type for p in params}
    if len(devices) > 1:
        raise RuntimeError(
            "`fused=True` requires the parameters of a group to be on one device type, got "
            f"{' and '.join(sorted(devices))}; give each its own group"
        )
    reason = triton_unavailable_reason() if "cuda" in devices else unavailable_reason()
    if reason is not None:
        raise RuntimeError(f"`fused=True` cannot be used: {reason}")
