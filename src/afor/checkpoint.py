"""State dicts: the dtypes of the state, and loading from AFOR, Adam, AdamW and afor-optimizer.

torch casts every floating-point state to the parameter's dtype on load, which would round the
moments and the control of half-precision parameters. `load` restores the saved values afterwards.
"""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from afor.control import FIELDS, control_settings, initial_control
from afor.sharded.step import cut_like, gathered
from afor.tensors import (
    MOMENTS,
    find_problem,
    is_inside_storage,
    parameter_name,
    tensors_in,
)

if TYPE_CHECKING:
    from afor.optimizer import AFOR

_IMPLEMENTATION = ("foreach", "fused", "check_fused", "capturable", "differentiable")
# Entries of an afor-optimizer state, by the field of the control vector that they become.
_RELEASED_FIELDS = {
    "noise_fast": "noise_fast", "noise_slow": "noise_slow", "agreement": "dir_ema",
    "score_mean": "snr_ema", "score_var": "snr_var_ema", "score": "snr_t", "zscore": "z_t",
}  # fmt: skip
_ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")
_NEEDED_ENTRIES = {
    "Adam": _ADAM_STATE,
    "AdamW": _ADAM_STATE,
    "AFOR": ("control",),  # an incomplete state of AFOR lacks it
    "afor-optimizer": (*_ADAM_STATE, *_RELEASED_FIELDS.values(), "beta2_t", "beta2_cumprod"),
}
_RELEASED_OPTIONS = {"dir_weight": "direction_weight", "fast_ref": "fast_channel"}


def moment_dtype(p: Tensor, group: dict[str, Any]) -> torch.dtype:
    """Return the dtype of a parameter's moments, see ``half_moments`` of `AFOR`."""
    if p.dtype in (torch.float16, torch.bfloat16) and group["half_moments"] == "float32":
        return torch.float32
    return p.dtype


def control_dtype(p: Tensor) -> torch.dtype:
    """Return the dtype of a parameter's control state: float32, or float64 for double precision."""
    return torch.float64 if p.dtype in (torch.float64, torch.complex128) else torch.float32


def load(
    optimizer: "AFOR",
    state_dict: dict[str, Any],
    base_load: Callable[[dict[str, Any]], None],
    check_options: Callable[[dict[str, Any]], None],
) -> None:
    """Load ``state_dict`` with torch's ``load_state_dict`` and keep the dtypes.

    Args:
        optimizer: The optimizer to load into.
        state_dict: A state dict of AFOR, Adam, AdamW or afor-optimizer.
        base_load: ``load_state_dict`` of torch's ``Optimizer``, bound to ``optimizer``.
        check_options: Called with each parameter group to be loaded; raises ValueError.

    Raises:
        ValueError: The state dict does not fit. Everything is checked before torch loads it, so
            the optimizer is unchanged.
    """
    translated: dict[str, Any] = {}
    messages: list[str] = []

    def translate(_: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        translated.update(_translate(optimizer, state_dict, check_options, messages))
        return translated

    def restore(_: Any) -> None:
        _restore(optimizer, translated)

    # Run last before torch loads and first after, so that user hooks see the usual state dicts.
    before = optimizer.register_load_state_dict_pre_hook(translate)
    after = optimizer.register_load_state_dict_post_hook(restore, prepend=True)
    try:
        base_load(state_dict)
    finally:
        before.remove()
        after.remove()
    for message in messages:
        warnings.warn(message, UserWarning, stacklevel=3)  # the caller of load_state_dict


def _translate(
    optimizer: "AFOR",
    state_dict: dict[str, Any],
    check_options: Callable[[dict[str, Any]], None],
    messages: list[str],
) -> dict[str, Any]:
    """Return the state dict in AFOR's form; append warnings for the user to ``messages``."""
    saved_groups = _checked_groups(state_dict)
    if [len(g["params"]) for g in saved_groups] != [
        len(g["params"]) for g in optimizer.param_groups
    ]:
        return state_dict  # torch raises the error
    states: dict[Any, dict[str, Any]] = dict(state_dict["state"])
    origin = _origin(states, saved_groups)
    groups, converted, number = [], 0, 0
    for saved, current in zip(saved_groups, optimizer.param_groups, strict=True):
        group = _merged_group(saved, current, origin)
        check_options(group)
        groups.append(group)
        for position, (key, p) in enumerate(zip(saved["params"], current["params"], strict=True)):
            state = states.get(key)
            if state:
                try:
                    states[key] = _checked_state(p, state, group, origin)
                except ValueError as error:
                    raise ValueError(
                        f"cannot load this state dict: of "
                        f"{parameter_name(current, position, number)}, {error}. The state is "
                        "damaged or belongs to another network; to load the rest, leave the state "
                        f"of this parameter out (del state_dict['state'][{key!r}]), and it starts "
                        "anew"
                    ) from None
                converted += "control" not in state
            number += 1
    if converted:
        messages.append(_conversion_warning(origin, converted, saved_groups, state_dict["state"]))
    return {**state_dict, "state": states, "param_groups": groups}


def _merged_group(saved: dict[str, Any], current: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return the options of a saved group over those of the optimizer's own."""
    group = {k: v for k, v in current.items() if k != "params"}
    options = {_RELEASED_OPTIONS.get(k, k): v for k, v in saved.items()}
    if origin != "AFOR":
        accepted = {*group, "params", "param_names", "initial_lr"} - {*_IMPLEMENTATION}
        options = {k: v for k, v in options.items() if k in accepted}
    return {**group, **options}


def _checked_groups(state_dict: Any) -> list[dict[str, Any]]:
    """Return the parameter groups of a state dict; raise ValueError if it is malformed."""
    well_formed = (
        isinstance(state_dict, dict)
        and isinstance(state_dict.get("state"), dict)
        and all(isinstance(state, dict) for state in state_dict["state"].values())
        and isinstance(state_dict.get("param_groups"), list)
        and all(
            isinstance(group, dict) and isinstance(group.get("params"), list)
            for group in state_dict["param_groups"]
        )
    )
    if not well_formed:
        raise ValueError(
            "cannot load this state dict: expected a dict with 'state' (a dict for each "
            "parameter) and 'param_groups' (a list of dicts with 'params'), as "
            "optimizer.state_dict() returns it"
        )
    if not all(map(is_inside_storage, tensors_in(state_dict))):  # torch is about to copy them
        raise ValueError(
            "cannot load this state dict: one of its tensors is larger than its storage, which was "
            "freed or cut; load the checkpoint anew"
        )
    groups: list[dict[str, Any]] = state_dict["param_groups"]
    return groups


def _checked_state(
    p: Tensor, state: dict[str, Any], group: dict[str, Any], origin: str
) -> dict[str, Any]:
    """Return a saved state in AFOR's form; raise ValueError if it does not fit the parameter."""
    if "control" not in state:
        state = _converted_state(state, group, origin)
    if isinstance(state.get("step"), (int, float)):
        state = {**state, "step": torch.tensor(float(state["step"]))}
    problem = find_problem(p, state, live=False)
    if problem is not None:
        raise ValueError(problem)
    return state


def _origin(states: dict[Any, dict[str, Any]], groups: list[dict[str, Any]]) -> str:
    """Return the name of the optimizer that a state dict came from."""
    keys = set().union(*(s.keys() for s in states.values())) if states else set()
    if "control" in keys or (
        not keys and "beta2_min" in groups[0] and "dir_weight" not in groups[0]
    ):
        return "AFOR"
    if {"dir_ema", "beta2_cumprod", "snr_ema", "snr_var_ema"} <= keys or "dir_weight" in groups[0]:
        return "afor-optimizer"
    if not keys or {"step", "exp_avg", "exp_avg_sq"} <= keys:
        return "AdamW" if groups[0].get("decoupled_weight_decay", True) else "Adam"
    raise ValueError(
        f"cannot load this state dict into AFOR: its states hold {sorted(keys)}; "
        "accepted are those of AFOR, Adam, AdamW and afor-optimizer (step, exp_avg, ...)"
    )


def _converted_state(state: dict[str, Any], group: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return a state of Adam or afor-optimizer with a control vector."""
    missing = [name for name in _NEEDED_ENTRIES[origin] if name not in state]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    step = _number(state["step"], "step")
    control = dict(zip(FIELDS, initial_control(control_settings(group)), strict=True))
    if origin == "afor-optimizer":
        for field, entry in _RELEASED_FIELDS.items():
            control[field] = _number(state[entry], entry)
        control["forgetting"] = 1.0 - _number(state["beta2_t"], "beta2_t")
        control["correction"] = 1.0 - _number(state["beta2_cumprod"], "beta2_cumprod")
    else:
        beta2 = group["betas"][1]
        control["correction"] = -math.expm1(step * math.log(beta2)) if beta2 > 0.0 else 1.0
    return {
        "step": torch.tensor(step),
        "exp_avg": state["exp_avg"],
        "exp_avg_sq": state["exp_avg_sq"],
        "control": torch.tensor(list(control.values()), dtype=torch.float64),
    }


def _number(value: Any, name: str) -> float:
    """Return a saved number or one-element tensor as a float."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} is not a number") from None


def _conversion_warning(
    origin: str, tensors: int, groups: list[dict[str, Any]], states: dict[Any, dict[str, Any]]
) -> str:
    if origin == "afor-optimizer":
        return (
            f"AFOR took over {tensors} tensors from an afor-optimizer state dict, control included"
        )
    text = (
        f"AFOR took over step, exp_avg and exp_avg_sq of {tensors} tensors from an {origin} state "
        "dict; noise, agreement and score statistics start fresh, and the warm-up counts from the "
        "loaded step"
    )
    if origin == "Adam" and any(group.get("weight_decay") for group in groups):
        text += "; weight decay was coupled in Adam and is decoupled from now on"
    if any("max_exp_avg_sq" in state for state in states.values()):
        text += "; max_exp_avg_sq is dropped: AFOR has no amsgrad"
    return text


def _restore(optimizer: "AFOR", translated: dict[str, Any]) -> None:
    """Copy the saved values into the loaded state, in the dtypes of AFOR."""
    saved_keys = [key for group in translated["param_groups"] for key in group["params"]]
    params = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    for key, (p, group) in zip(saved_keys, params, strict=True):
        saved = translated["state"].get(key)
        if not saved:
            continue
        dtypes = {
            "step": torch.float32,
            "exp_avg": moment_dtype(p, group),
            "exp_avg_sq": moment_dtype(p, group),
            "control": control_dtype(p),
        }
        state = optimizer.state[p]
        for name, dtype in dtypes.items():
            value = cut_like(p, saved[name]) if name in MOMENTS else gathered(saved[name])
            if name == "step":
                value = value.reshape(())
            # A copy, so that two optimizers loaded from one dict do not share memory; moments in
            # the memory order of the parameter, which the kernel needs.
            if name in MOMENTS:
                state[name] = torch.empty_like(p, dtype=dtype).copy_(value).detach()
            else:
                state[name] = value.detach().to(device=p.device, dtype=dtype, copy=True)
