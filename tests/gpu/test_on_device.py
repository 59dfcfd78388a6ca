"""AFOR and the benchmark on a GPU; the same checks run on the CPU, where they can.

No GPU was there when this was written: `pytest tests/gpu` on a machine with one is the first to run
what CUDA has of its own.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from afor import AFOR
from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.training.batches import Sides, epoch_batches
from afor.bench.training.fit import Fit, Team
from afor.bench.training.loop import train
from afor.bench.training.run_spec import RunSettings
from afor.reference import ReferenceState, reference_step
from afor.triton.launch import triton_unavailable_reason

HAS_CUDA = torch.cuda.is_available()
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device")
SHAPES = ((64, 33), (8, 1, 5), (17,), ())  # matrices, convolutions, vectors, scalars
STEPS = 200
SMALL = InputShape.unnamed(8, 128, 128.0, 2)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(params=["foreach", "fused"])
def implementation(request: pytest.FixtureRequest, device: torch.device) -> dict[str, bool]:
    if request.param == "fused" and device.type == "cuda" and triton_unavailable_reason():
        pytest.skip("no Triton")
    return {request.param: True}


def test_many_steps_follow_the_equations(
    device: torch.device, implementation: dict[str, bool]
) -> None:
    generator, lr = torch.Generator().manual_seed(0), 1e-2
    thetas = [torch.randn(shape, generator=generator) for shape in SHAPES]
    parameters = [torch.nn.Parameter(theta.to(device, copy=True)) for theta in thetas]
    optimizer = AFOR(parameters, lr=lr, weight_decay=0.0, **implementation)
    states = [ReferenceState.start(theta) for theta in thetas]
    for _ in range(STEPS):
        for index, (parameter, state) in enumerate(zip(parameters, states, strict=True)):
            gradient = torch.randn(SHAPES[index], generator=generator)
            parameter.grad = gradient.to(device)
            thetas[index], _ = reference_step(thetas[index], gradient.double(), state, lr=lr)
        optimizer.step()
    for parameter, theta in zip(parameters, thetas, strict=True):
        error = (parameter.detach().cpu().double() - theta).abs().max().item()
        assert error < 1e-4 * lr * math.sqrt(STEPS)


@needs_cuda
def test_replays_of_a_captured_step_give_the_numbers_of_ordinary_steps() -> None:
    pair = [torch.nn.Parameter(torch.linspace(-1, 1, 50, device="cuda")) for _ in range(2)]
    for parameter in pair:
        parameter.grad = torch.linspace(1, 2, 50, device="cuda")
    captured, plain = (AFOR([parameter], lr=1e-2, capturable=True) for parameter in pair)
    stream = torch.cuda.Stream()
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
    assert torch.equal(pair[0], pair[1])


def test_scaled_gradients_give_the_same_steps_and_an_overflow_none(
    device: torch.device, implementation: dict[str, bool]
) -> None:
    pair = [torch.nn.Parameter(torch.ones(8, device=device)) for _ in range(2)]
    scaled, plain = (AFOR([parameter], lr=1e-2, **implementation) for parameter in pair)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    for step in range(5):
        losses = [(parameter * (step + 1.0)).square().sum() for parameter in pair]
        for optimizer in (scaled, plain):
            optimizer.zero_grad()
        scaler.scale(losses[0]).backward()
        losses[1].backward()
        scaler.step(scaled)
        scaler.update()
        plain.step()
    torch.testing.assert_close(pair[0], pair[1], rtol=1e-6, atol=0)
    before = pair[0].detach().clone()
    pair[0].grad = torch.full_like(pair[0], float("inf"))
    scaler.scale(torch.zeros((), device=device))
    scaler.step(scaled)
    assert torch.equal(before, pair[0])


def small_training(device: torch.device, batch_size: int) -> tuple[RunSettings, ArrayWindows]:
    """Return the settings and the random windows of a training of seconds."""
    signals = np.random.default_rng(0).standard_normal((96, 8, 128)).astype(np.float32)
    subjects = [f"subject {index // 24}" for index in range(96)]
    names = tuple(dict.fromkeys(subjects))
    settings = RunSettings(
        dataset="random", split=Split(0, 0, train=names[:2], validation=names[2:3], test=names[3:]),
        optimizer="afor", lr=1e-3, batch_size=batch_size, max_epochs=2, device=device.type,
    )  # fmt: skip
    return settings, ArrayWindows(signals, np.arange(96) % 2, subjects)


@needs_cuda
def test_within_an_epoch_the_host_never_waits_for_the_device() -> None:
    device = torch.device("cuda")
    settings, windows = small_training(device, batch_size=4)
    sides = Sides(settings, windows, device)
    fit = Fit(settings, build_backbone("eegnet", SMALL).to(device), sides)
    team, order = Team([fit]), epoch_batches(sides.training, 4, seed=0)
    team.take_steps(sides.training, order, 0)  # the first compiles and allocates
    reporting = torch.cuda.set_sync_debug_mode  # raises an error in the line that waits
    last = fit.steps * 2

    def watch(fit: Fit, *_: Any) -> None:
        reporting("error" if fit.steps + 1 < last else "default")

    fit.watch_step = watch
    try:
        team.take_steps(sides.training, order, 1)
    finally:
        reporting("default")
    assert fit.error is None


def test_a_training_repeats_its_numbers(device: torch.device) -> None:
    settings, windows = small_training(device, batch_size=16)
    first, second = (
        train(settings, windows, lambda: build_backbone("eegnet", SMALL)).numbers()
        for _ in range(2)
    )
    if device.type == "cpu":
        assert first == second
    else:  # torch does not promise the same bits
        assert first["best_epoch"] == second["best_epoch"]
