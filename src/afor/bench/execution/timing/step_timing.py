"""Time a few training steps on random windows, to know the time of a study before its first run.

Times are kept in the cache folder, for this processor and these versions, so a second plan of the
same networks takes no time.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afor import __version__
from afor.bench.common.devices import pick_device, repeatable, synchronize
from afor.bench.common.files import write_atomically
from afor.bench.common.seeding import isolated
from afor.bench.data.preparation.cache import open_cache
from afor.bench.models.input_shape import InputShape
from afor.bench.study.bundling import AUTO_BUNDLE, is_bundled
from afor.bench.study.planned_runs import canonical

if TYPE_CHECKING:
    import torch

FILE = "step-times.json"
STEPS = 3  # timed steps of a network, after one that is not counted
OPTIMIZER_STEPS = 10  # Sophia estimates the curvature in every tenth
EVALUATION_WINDOWS = 256


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the parts of a training, measured on random windows."""

    gradient_s: float  # forward and backward pass of one batch
    optimizer_s: float  # step of the optimizer, with further passes that it needs
    window_s: float  # evaluation of one window

    @property
    def step_s(self) -> float:
        """Return the seconds of one training step."""
        return self.gradient_s + self.optimizer_s


class StepTimer:
    """Times steps, each kind once: in this process, and per machine through a file.

    Args:
        cache_dir: Folder of the file; None uses ``$AFOR_CACHE`` or the user's cache.
        announce: Is called with a description before something is timed.
    """

    def __init__(
        self, cache_dir: Path | None = None, announce: Callable[[str], None] | None = None
    ) -> None:
        self._path = open_cache(cache_dir) / FILE
        self._announce = announce or (lambda _: None)
        self._times: dict[str, dict[str, float]] = _read(self._path)
        self._networks: dict[str, tuple[float, float]] = {}

    def times(self, spec: Mapping[str, Any], shape: InputShape) -> StepTimes:
        """Return the times of a run's steps; measure them if they are not known.

        Args:
            spec: Spec of the run, see `study.plan`.
            shape: Shape of its windows.

        Returns:
            The seconds of each part of a step.
        """
        key = _key(spec, shape)
        if key not in self._times:
            batch_size, runs = spec["training"]["batch_size"], _together(spec)
            network = canonical([spec["backbone"], batch_size, asdict(shape), runs])
            self._announce(f"{spec['backbone']['name']} with {spec['optimizer']['name']}")
            measured = _measure(spec, shape, self._networks.get(network))
            self._networks[network] = (measured.gradient_s, measured.window_s)
            self._times = {**_read(self._path), **self._times, key: asdict(measured)}
            write_atomically(self._path, json.dumps(self._times, indent=1).encode())
        return StepTimes(**self._times[key])


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Return the times of a file; an unreadable file counts as empty."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return {str(key): asdict(StepTimes(**times)) for key, times in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(spec: Mapping[str, Any], shape: InputShape) -> str:
    """Return all that the times depend on, as text."""
    import torch

    return canonical(
        {
            "backbone": spec["backbone"],
            "optimizer": {k: v for k, v in spec["optimizer"].items() if k != "lr"},
            "batch_size": spec["training"]["batch_size"],
            "shape": [shape.channels, shape.samples, shape.classes],
            "threads": spec["threads"],
            "device": spec["device"],
            **({"together": _together(spec)} if is_bundled(spec) else {}),
            "machine": [platform.node(), platform.machine(), torch.__version__, __version__],
        }
    )


def _together(spec: Mapping[str, Any]) -> int:
    """Return the number of runs that are timed as one network."""
    return AUTO_BUNDLE if is_bundled(spec) else 1


def _measure(
    spec: Mapping[str, Any], shape: InputShape, network: tuple[float, float] | None
) -> StepTimes:
    """Time steps with random windows; `network` holds times of the same network, if known.

    For a bundled run, the gradient and the evaluation are its share of those of a bundle.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from afor.bench.models.registry import build_backbone
    from afor.bench.models.stacked_eegnet import StackedEEGNet
    from afor.bench.optimizers.build import AfterStep, BeforeStep, build_optimizer

    device = pick_device(spec["device"])
    batch_size = spec["training"]["batch_size"]
    optimizer_spec = spec["optimizer"]
    with repeatable(spec["threads"]), isolated(0, device):
        model = build_backbone(spec["backbone"]["name"], shape, **spec["backbone"]["settings"])
        model = model.to(device)
        optimizer = build_optimizer(
            optimizer_spec["name"],
            model,
            optimizer_spec["lr"],
            optimizer_spec["weight_decay"],
            **optimizer_spec["settings"],
        )
        inputs = torch.randn(batch_size, shape.channels, shape.samples, device=device)
        labels = torch.randint(shape.classes, (batch_size,), device=device)
        windows = torch.randn(EVALUATION_WINDOWS, shape.channels, shape.samples, device=device)

        together = _together(spec)
        models = [model, *(deepcopy(model) for _ in range(together - 1))]
        stack = StackedEEGNet(models) if together > 1 else None

        def gradient() -> None:
            if stack is not None:
                logits = stack(inputs, training=True).flatten(0, 1)
                losses = cross_entropy(logits, labels.repeat(together), reduction="none")
                stack.backward(losses.view(together, -1).mean(dim=1))
                return
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]

        def evaluation() -> None:
            model(windows) if stack is None else stack(windows, training=False)

        def step() -> None:
            if isinstance(optimizer, BeforeStep):
                optimizer.before_step(model, inputs)
            optimizer.step()
            if isinstance(optimizer, AfterStep):
                optimizer.after_step(model, inputs)

        model.train()
        gradient()
        step()
        if network is None:
            gradient_s = statistics.median(_seconds(gradient, device) for _ in range(STEPS))
            model.eval()
            with torch.inference_mode():
                evaluation()
                window_s = _seconds(evaluation, device) / EVALUATION_WINDOWS
            model.train()
            gradient_s, window_s = gradient_s / together, window_s / together
        else:
            gradient_s, window_s = network
        optimizer_s = sum(_seconds(step, device) for _ in range(OPTIMIZER_STEPS)) / OPTIMIZER_STEPS
    return StepTimes(gradient_s, optimizer_s, window_s)


def _seconds(call: Callable[[], Any], device: "torch.device") -> float:
    """Return the seconds of a call, with the work that it leaves to the device.

    On one thread of the processor, other processes are not counted.
    """
    import torch

    if device.type == "cpu" and torch.get_num_threads() == 1:
        started = time.thread_time()
        call()
        return time.thread_time() - started
    started = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - started
