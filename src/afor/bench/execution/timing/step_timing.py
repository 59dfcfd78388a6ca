"""Time a few training steps on random windows, to know the time of a study before its first run.

Times are kept in the cache folder, for this processor and these versions, so a second plan of the
same networks takes no time.
"""

import functools
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afor import __version__
from afor.bench.common.devices import pick_device, repeatable, synchronize
from afor.bench.common.files import write_atomically
from afor.bench.common.seeding import isolated
from afor.bench.data.prepared.cache import open_cache
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.study.planned_runs import canonical
from afor.bench.training.execute import run_settings
from afor.bench.training.run_spec import RunSettings

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

FILE = "step-times.json"
_UNTIMED = ("max_epochs", "patience", "weights", "passes", "adaptation")  # no part of a step
STEPS = 3  # timed steps of a network, after one that is not counted
OPTIMIZER_STEPS = 10  # Sophia estimates the curvature in every tenth
EVALUATION_WINDOWS = 256


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the parts of a training, measured on random windows."""

    gradient_s: float  # reading, forward and backward pass of one batch
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
        self._cache_dir = cache_dir
        self._announce = announce or (lambda _: None)
        self._times: dict[str, dict[str, float]] = {}  # known to this process
        self._networks: dict[str, tuple[float, float]] = {}

    def times(self, spec: Mapping[str, Any], shape: InputShape, together: int = 1) -> StepTimes:
        """Return the times of a run's steps; measure them if they are not known.

        Args:
            spec: Spec of the run.
            shape: Shape of its windows.
            together: Number of runs that are trained as one network; the times of one of them are
                its share.
        """
        key = _key(spec, shape, together)
        if key not in self._times:
            self._times = {**_read(self._path), **self._times}
        if key not in self._times:
            network = canonical([spec["backbone"], _step_settings(spec), asdict(shape), together])
            self._announce(f"{spec['backbone']['name']} with {spec['optimizer']['name']}")
            measured = _measure(spec, shape, together, self._networks.get(network))
            self._networks[network] = (measured.gradient_s, measured.window_s)
            self._times = {**_read(self._path), **self._times, key: asdict(measured)}
            write_atomically(self._path, json.dumps(self._times, indent=1).encode())
        return StepTimes(**self._times[key])

    @functools.cached_property
    def _path(self) -> Path:
        return open_cache(self._cache_dir) / FILE


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Return the times of a file; an unreadable file counts as empty."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return {str(key): asdict(StepTimes(**times)) for key, times in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(spec: Mapping[str, Any], shape: InputShape, together: int) -> str:
    """Return all that the times depend on, as text."""
    import torch

    return canonical(
        {
            "backbone": spec["backbone"],
            "optimizer": {k: v for k, v in spec["optimizer"].items() if k != "lr"},
            "training": _step_settings(spec),
            "shape": [shape.channels, shape.samples, shape.classes],
            "threads": spec["threads"],
            "device": spec["device"],
            **({"together": together} if together > 1 else {}),
            "machine": [platform.node(), platform.machine(), torch.__version__, __version__],
        }
    )


def _step_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the training that may change the time of a step."""
    return {name: value for name, value in spec["training"].items() if name not in _UNTIMED}


def _measure(
    spec: Mapping[str, Any],
    shape: InputShape,
    together: int,
    network: tuple[float, float] | None,
) -> StepTimes:
    """Time steps with random windows; `network` holds times of the same network, if known."""
    import torch

    from afor.bench.models.registry import build_backbone
    from afor.bench.models.stacked_eegnet import stacks_here
    from afor.bench.optimizers.build import AfterStep, BeforeStep, build_optimizer

    device = pick_device(spec["device"])
    optimizer_spec = spec["optimizer"]
    settings = run_settings(spec)
    with repeatable(spec["threads"], settings.precision), isolated(0, device):
        model = build_backbone(spec["backbone"]["name"], shape, **spec["backbone"]["settings"])
        model = model.to(device)

        def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
            return build_optimizer(
                optimizer_spec["name"],
                model,
                optimizer_spec["lr"],
                optimizer_spec["weight_decay"],
                **optimizer_spec["settings"],
            )

        if not stacks_here(model):
            together = 1  # as a worker trains them on this machine
        models = [model, *(deepcopy(model) for _ in range(together - 1))]
        optimizer = make_optimizer(model)
        inputs = torch.randn(settings.batch_size, shape.channels, shape.samples, device=device)
        labels = torch.randint(shape.classes, (settings.batch_size,), device=device)
        model.train()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]

        def step() -> None:
            if isinstance(optimizer, BeforeStep):
                optimizer.before_step(model, inputs)
            optimizer.step()
            if isinstance(optimizer, AfterStep):
                optimizer.after_step(model, inputs)

        step()
        optimizer_s = sum(_seconds(step, device) for _ in range(OPTIMIZER_STEPS)) / OPTIMIZER_STEPS
        gradient_s, window_s = network or _time_network(settings, shape, models, device)
    return StepTimes(gradient_s, optimizer_s, window_s)


def _time_network(
    settings: RunSettings,
    shape: InputShape,
    models: "Sequence[torch.nn.Module]",
    device: "torch.device",
) -> tuple[float, float]:
    """Return the seconds of a step without its optimizer's, and of the evaluation of a window.

    They are those of the training loop, with reading, normalising and recording; of several runs,
    the share of one in their bundle.
    """
    from afor.bench.training.batches import Side, make_normalize
    from afor.bench.training.fit import Fit, Team

    rng = np.random.default_rng(0)
    count = max((STEPS + 1) * settings.batch_size, EVALUATION_WINDOWS)
    signals = rng.standard_normal((count, shape.channels, shape.samples), dtype=np.float32)
    windows = ArrayWindows(signals, rng.integers(shape.classes, size=count), ["person"] * count)
    normalize = make_normalize(settings.normalization, windows, ["person"], device)
    side = Side("training", windows, ["person"], normalize, device)
    fits = [Fit(settings, model, side, side, shape.classes) for model in models]
    size = settings.batch_size
    first, *order = [side.indices[at : at + size] for at in range(0, (STEPS + 1) * size, size)]
    held_out = side.part(side.indices[:EVALUATION_WINDOWS])
    team = Team(fits)

    def train(batches: "Sequence[NDArray[np.int64]]") -> None:
        team.take_steps(side, batches, dropout_seed=0)
        for fit in fits:
            if fit.error is not None:
                raise fit.error
            fit.mean_loss()

    train([first])
    whole_s = _seconds(lambda: train(order), device) / STEPS / len(fits)
    step_s = statistics.median(_seconds(fits[0].optimizer.step, device) for _ in range(STEPS))
    team.predict(held_out)
    evaluated_s = _seconds(lambda: team.predict(held_out), device) / len(fits)
    return max(whole_s - step_s, 0.0), evaluated_s / EVALUATION_WINDOWS


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
