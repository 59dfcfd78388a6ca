"""Within an epoch the host never waits for the device, shown on a device without values."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.training import batches as placement
from afor.bench.training.fit import Fit, Team
from afor.bench.training.run_spec import RunSettings


def small_fit(optimizer: str = "afor") -> Fit:
    """Return a training of EEGNet on random windows, on the meta device, that has not begun."""
    meta, shape = torch.device("meta"), InputShape.unnamed(8, 128, 128.0, 2)
    signals = np.random.default_rng(0).standard_normal((96, 8, 128)).astype(np.float32)
    subjects = [f"subject {index // 24}" for index in range(96)]
    names = tuple(dict.fromkeys(subjects))
    settings = RunSettings(
        dataset="random", split=Split(0, 0, train=names[:2], validation=names[2:3], test=names[3:]),
        optimizer=optimizer, lr=1e-3, batch_size=4, max_epochs=2, device="meta",
    )  # fmt: skip
    windows = ArrayWindows(signals, np.arange(96) % 2, subjects)
    sides = placement.Sides(settings, windows, meta)
    return Fit(settings, build_backbone("eegnet", shape).to(meta), sides)


class NoBlockingCopies(TorchDispatchMode):
    """Raises at a copy from the host to the device that waits until the device is idle."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        to_meta = str(kwargs.get("device")) == "meta"
        if func._schema.name == "aten::_to_copy" and to_meta and not kwargs.get("non_blocking"):
            raise RuntimeError("a copy to the device that waits")
        return func(*args, **kwargs)


@pytest.mark.parametrize("in_memory", [True, False], ids=["on the device", "read ahead"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "radam", "adamp", "sophia", "mars", "afor"])
def test_within_an_epoch_the_host_never_asks_the_device(monkeypatch, optimizer, in_memory):
    # Tensors on the meta device have no values: asking for one, as item() does, raises.
    monkeypatch.setattr(placement, "_kept", {})
    monkeypatch.setattr(placement, "free_bytes", lambda _: 1 << 40 if in_memory else 0)
    monkeypatch.setattr("afor.torch_private.foreach_devices", lambda: ["meta"])  # as on CUDA
    fit = small_fit(optimizer)
    assert fit.sides.training._loader.reads_ahead is not in_memory
    order = [fit.sides.training.indices[start : start + 4] for start in range(0, 48, 4)]
    with NoBlockingCopies():
        Team([fit]).take_steps(fit.sides.training, order, 0)
        assert fit.steps == len(order)
        with pytest.raises(RuntimeError, match=r"item\(\)|meta tensors"):
            fit.mean_loss()  # once at the end


def test_a_host_that_asks_the_device_is_found(monkeypatch):
    monkeypatch.setattr(placement, "_kept", {})
    monkeypatch.setattr(placement, "free_bytes", lambda _: 1 << 40)
    fit = small_fit()
    fit.watch_step = lambda _fit, _batch, loss: loss.item()
    Team([fit]).take_steps(fit.sides.training, [fit.sides.training.indices[:4]] * 3, 0)
    assert fit.steps == 0
    with pytest.raises(RuntimeError, match=r"item\(\)|meta tensors"):
        raise fit.error
