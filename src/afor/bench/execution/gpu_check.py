"""Check AFOR and the benchmark on an accelerator, for `afor doctor --gpu`.

No part of this package has been developed on a GPU. Every check compares with what is tested on
the CPU, and a check that fails is reported and does not stop the others.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from afor import AFOR, __version__
from afor.bench.common.devices import describe_device, pick_device, synchronize
from afor.bench.common.doctor import Finding, Verdict
from afor.bench.common.seeding import isolated
from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.dataset_shapes import DEAP
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.training.loop import Fit, make_fit, train
from afor.bench.training.run_spec import RunSettings
from afor.bench.training.serving import serve_alone
from afor.reference import ReferenceState, reference_step

SHAPES = ((64, 33), (8, 1, 5), (17,), ())  # matrices, convolutions, vectors, scalars
STEPS = 200
LIMIT = 1e-5  # relative difference from the equations in float64, after all steps in float32
TIMED_STEPS, BATCH = 20, 256
_SMALL = InputShape.unnamed(8, 128, 128.0, 2)


def check_gpu(name: str = "auto") -> Iterator[Finding]:
    """Yield the findings about a device, one after another.

    Args:
        name: ``cuda``, ``mps`` or ``auto``.

    Raises:
        ConfigError: There is no such device.
    """
    device = pick_device(name)
    versions = {"afor": __version__, "torch": torch.__version__, **describe_device(device)}
    described = ", ".join(f"{key} {value}" for key, value in versions.items())
    yield Finding("device", "ok" if device.type != "cpu" else "note", f"{device}; {described}")
    checks: dict[str, Callable[[torch.device], str]] = {
        "foreach step": lambda d: _against_reference(d, foreach=True),
        "fused step": lambda d: _against_reference(d, fused=True),
        "graph capture": _graph_capture,
        "GradScaler": _grad_scaler,
        "GradScaler, fused": lambda d: _grad_scaler(d, fused=True),
        "no waiting": _no_waiting,
        "study twice": _same_numbers_twice,
        "throughput": _throughput,
    }
    for subject, check in checks.items():
        started = time.perf_counter()
        try:
            text = check(device)
        except Exception as error:  # noqa: BLE001  the other checks must run all the same
            reason = str(error).strip().partition("\n")[0]
            yield Finding(subject, "broken", f"{type(error).__name__}: {reason}")
        else:
            verdict: Verdict = "note" if text.startswith("not ") else "ok"
            yield Finding(subject, verdict, f"{text} ({time.perf_counter() - started:.1f} s)")


def _against_reference(device: torch.device, **implementation: Any) -> str:
    """Compare many steps with the paper's equations in float64."""
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(shape, generator=generator) for shape in SHAPES]
    parameters = [torch.nn.Parameter(start.clone().to(device)) for start in starts]
    optimizer = AFOR(parameters, lr=1e-2, **implementation)
    thetas = [start.double() for start in starts]
    states = [ReferenceState.start(theta) for theta in thetas]
    for _ in range(STEPS):
        for index, (parameter, state) in enumerate(zip(parameters, states, strict=True)):
            gradient = torch.randn(SHAPES[index], generator=generator)
            parameter.grad = gradient.to(device)
            thetas[index], _ = reference_step(thetas[index], gradient.double(), state, lr=1e-2)
        optimizer.step()
    worst = max(
        _distance(parameter.detach().cpu().double(), theta, start.double())
        for parameter, theta, start in zip(parameters, thetas, starts, strict=True)
    )
    if not worst < LIMIT:
        raise ArithmeticError(f"{worst:.1e} away from the equations, at most {LIMIT:g} is expected")
    return f"{worst:.1e} away from the equations after {STEPS} steps"


def _distance(actual: Tensor, expected: Tensor, start: Tensor) -> float:
    """Return the largest difference as a share of the distance travelled."""
    return float((actual - expected).abs().max() / (expected - start).abs().max())


def _graph_capture(device: torch.device) -> str:
    """Capture a step in a CUDA graph and compare its replay with ordinary steps."""
    if device.type != "cuda":
        return "not possible: only CUDA has graphs"
    pair = [torch.nn.Parameter(torch.linspace(-1, 1, 50, device=device)) for _ in range(2)]
    gradient = torch.linspace(1, 2, 50, device=device)
    for parameter in pair:
        parameter.grad = gradient.clone()
    captured, plain = (AFOR([parameter], lr=1e-2, capturable=True) for parameter in pair)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        captured.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for _ in range(10):
        graph.replay()
    for _ in range(11):
        plain.step()
    difference = float((pair[0] - pair[1]).abs().max())
    if difference > 0:
        raise ArithmeticError(f"replays differ from ordinary steps by {difference:.1e}")
    return "10 replays give the numbers of ordinary steps"


def _grad_scaler(device: torch.device, **implementation: Any) -> str:
    """Check that scaled gradients give the same steps, and that an overflow changes nothing."""
    pair = [torch.nn.Parameter(torch.ones(8, device=device)) for _ in range(2)]
    scaled, plain = (AFOR([parameter], lr=1e-2, **implementation) for parameter in pair)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    for step in range(5):
        losses = [(parameter * (step + 1.0)).square().sum() for parameter in pair]
        for optimizer in (scaled, plain):
            optimizer.zero_grad()
        scaler.scale(losses[0]).backward()  # type: ignore[no-untyped-call]
        losses[1].backward()  # type: ignore[no-untyped-call]
        scaler.step(scaled)
        scaler.update()
        plain.step()
    if not torch.allclose(pair[0], pair[1], rtol=1e-6, atol=0):
        raise ArithmeticError("scaled gradients give other steps")
    before = pair[0].detach().clone()
    pair[0].grad = torch.full_like(pair[0], float("inf"))
    scaler.scale(torch.zeros((), device=device))
    scaler.step(scaled)
    if not torch.equal(before, pair[0]):
        raise ArithmeticError("a step was taken although the gradient overflowed")
    return "the same steps; an overflow is left out"


def _no_waiting(device: torch.device) -> str:
    """Check that within an epoch the host never waits for the device."""
    if device.type != "cuda":
        return "not possible: only CUDA reports that the host waits"
    fit = small_fit(device, batch_size=4)
    serve_alone(fit.epoch(0))  # the first compiles and allocates
    reporting = torch.cuda.set_sync_debug_mode  # raises an error in the line that waits
    last = fit.steps * 2

    def watch(fit: Fit, *_: object) -> None:
        reporting("error" if fit.steps + 1 < last else "default")

    fit.watch_step = watch
    try:
        serve_alone(fit.epoch(1))
    finally:
        reporting("default")
    return f"{fit.steps // 2} steps without waiting for the device"


def small_fit(device: torch.device, batch_size: int, optimizer: str = "afor") -> Fit:
    """Return a training of EEGNet on random windows that has not begun."""
    settings, windows = _small_training(device, batch_size, optimizer)
    return make_fit(settings, build_backbone("eegnet", _SMALL).to(device), windows, device)


def _small_training(
    device: torch.device, batch_size: int, optimizer: str = "afor"
) -> tuple[RunSettings, ArrayWindows]:
    """Return the settings and the random windows of a training of seconds."""
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((96, 8, 128)).astype(np.float32)
    subjects = [f"person {index // 24}" for index in range(96)]
    windows = ArrayWindows(signals, np.arange(96) % 2, subjects)
    names = tuple(dict.fromkeys(subjects))
    settings = RunSettings(
        dataset="random",
        split=Split(0, 0, train=names[:2], validation=names[2:3], test=names[3:]),
        optimizer=optimizer,
        lr=1e-3,
        batch_size=batch_size,
        max_epochs=2,
        device=device.type,
    )
    return settings, windows


def _same_numbers_twice(device: torch.device) -> str:
    """Train a small network twice and compare every number."""
    settings, windows = _small_training(device, batch_size=16)
    first, second = (
        train(settings, windows, lambda: build_backbone("eegnet", _SMALL)).numbers()
        for _ in range(2)
    )
    differing = [name for name in first if repr(first[name]) != repr(second[name])]
    if differing:
        return f"not the same numbers in {', '.join(differing)}; on CUDA torch promises no more"
    return "the same numbers, bit by bit"


def _throughput(device: torch.device) -> str:
    """Compare the steps per second of EEGNet on the device with those on the CPU."""
    rates = {name: _steps_per_second(torch.device(name)) for name in ("cpu", device.type)}
    ratio = rates[device.type] / rates["cpu"]
    each = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    return f"EEGNet, 32 × 128, batch {BATCH}: {each} steps/s, {ratio:.1f} times the CPU"


def _steps_per_second(device: torch.device) -> float:
    with isolated(0, device):
        model = build_backbone("eegnet", DEAP).to(device)
        optimizer = AFOR(model.parameters())
        inputs = torch.randn(BATCH, DEAP.channels, DEAP.samples, device=device)
        labels = torch.randint(DEAP.classes, (BATCH,), device=device)
        for step in range(TIMED_STEPS + 1):
            if step == 1:  # the first compiles and allocates
                synchronize(device)
                started = time.perf_counter()
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        synchronize(device)
    return TIMED_STEPS / (time.perf_counter() - started)
