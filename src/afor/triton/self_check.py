"""Check the Triton kernels against the paper's equations before their first step on a device.

The kernels are tested in Triton's interpreter and compiled ahead of time; what a GPU and its driver
make of them shows only there. A few steps on small tensors take milliseconds.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from afor.control import FIELDS, ControlSettings, initial_control
from afor.reference import ReferenceState, reference_step
from afor.tensors import Implementation, StepOptions, StepTensors

SHAPES = ((9_000,), (33, 7), ())  # of two programs, of one program, a scalar
STEPS = 4
LIMIT = 1e-4  # largest accepted error, as a share of the learning rate or of 1 - beta2
_SETTINGS = ControlSettings(warmup_steps=2)  # beta2 adapts within these steps
_LR, _WEIGHT_DECAY = 1e-2, 0.1
_OPTIONS = StepOptions(_SETTINGS, _LR, _WEIGHT_DECAY, check_fused=False)
_passed: set[torch.device] = set()  # in this process


def check_once(
    implementation: Callable[[StepTensors, StepOptions], Implementation], device: torch.device
) -> None:
    """Check a fused step on a device, unless it has passed in this process.

    Args:
        implementation: Makes a step, as `launch.TritonStep` does.
        device: The device of the tensors.

    Raises:
        RuntimeError: The step fails, or it is not the one of the equations.
    """
    if device in _passed:
        return
    advice = "Nothing was changed; leave `fused` unset to use foreach"
    try:
        error = largest_error(implementation, device)
    except Exception as problem:
        reason = str(problem).strip().partition("\n")[0]
        raise RuntimeError(
            f"`fused=True` does not work on {device}: {type(problem).__name__}: {reason}. {advice}"
        ) from problem
    if not error < LIMIT:
        raise RuntimeError(
            f"`fused=True` gives wrong steps on {device}: they differ from the paper's equations "
            f"by {error:.1e} of a step, at most {LIMIT:g} is accepted. {advice}"
        )
    _passed.add(device)


def largest_error(
    implementation: Callable[[StepTensors, StepOptions], Implementation], device: torch.device
) -> float:
    """Return how far a few steps on small tensors are from the equations in float64.

    Returns:
        The largest difference of a parameter, as a share of the learning rate, or of a
        1 - beta2, as a share of its value.
    """
    thetas = [0.1 * _wave(shape, 1.0) for shape in SHAPES]  # little rounding, beside the steps
    states = [ReferenceState.start(theta) for theta in thetas]
    params = [theta.to(device, copy=True) for theta in thetas]
    exp_avgs, exp_avg_sqs = ([torch.zeros_like(p) for p in params] for _ in range(2))
    controls = [torch.tensor(initial_control(_SETTINGS), device=device) for _ in params]
    counts = [torch.zeros((), device=device) for _ in params]
    options = {k: v for k, v in _SETTINGS._asdict().items() if k not in ("beta1", "beta2")}
    decays: list[float] = []
    for number in range(STEPS):
        grads = [_wave(shape, 2.0 + number) for shape in SHAPES]
        on_device = [grad.to(device) for grad in grads]
        tensors = StepTensors(params, on_device, exp_avgs, exp_avg_sqs, controls, counts)
        implementation(tensors, _OPTIONS).step()
        decays = []
        for i, (state, grad) in enumerate(zip(states, grads, strict=True)):
            thetas[i], scalars = reference_step(
                thetas[i], grad, state, lr=_LR, weight_decay=_WEIGHT_DECAY, **options
            )
            decays.append(1.0 - scalars.beta2)
    errors = [
        (p.cpu().double() - theta).abs().max() / _LR
        for p, theta in zip(params, thetas, strict=True)
    ]
    place = FIELDS.index("forgetting")
    errors += [
        (control[place].cpu().double() / decay - 1.0).abs()
        for control, decay in zip(controls, decays, strict=True)
    ]
    return float(torch.stack(errors).max())


def _wave(shape: tuple[int, ...], phase: float) -> Tensor:
    """Return numbers between -1 and 1 that need no random generator."""
    count = torch.Size(shape).numel()
    return torch.arange(1, count + 1).double().mul(phase).sin().float().view(shape)
