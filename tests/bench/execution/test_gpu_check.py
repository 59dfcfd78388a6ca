"""The checks of `afor doctor --gpu`, on the CPU: the logic is the same."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from afor.bench.common.errors import ConfigError
from afor.bench.execution import gpu_check
from afor.bench.training import placement

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(gpu_check, "TIMED_STEPS", 1)
    monkeypatch.setattr(gpu_check, "BATCH", 4)
    monkeypatch.setattr(gpu_check, "STEPS", 20)


def test_every_check_passes_or_says_why_it_is_not_possible():
    findings = {finding.subject: finding for finding in gpu_check.check_gpu("cpu")}
    assert findings.pop("graph capture").verdict == "note"
    assert findings.pop("no waiting").verdict == "note"
    assert findings.pop("device").verdict == "note"
    assert {subject: f.text for subject, f in findings.items() if f.verdict != "ok"} == {}
    assert "steps/s" in findings["throughput"].text


def test_a_check_that_fails_is_reported_and_the_others_run(monkeypatch):
    monkeypatch.setattr(gpu_check, "LIMIT", 0.0)
    findings = list(gpu_check.check_gpu("cpu"))
    assert [f.subject for f in findings if f.verdict == "broken"] == ["foreach step", "fused step"]
    assert "away from the equations" in findings[1].text
    assert findings[-1].verdict == "ok"


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
    fit = gpu_check.small_fit(torch.device("meta"), 4, optimizer)
    assert fit.training._loader.reads_ahead is not in_memory
    order = [fit.training.indices[start : start + 4] for start in range(0, 48, 4)]
    with NoBlockingCopies(), pytest.raises(RuntimeError, match=r"item\(\)|meta tensors"):
        fit.train_batches(order, 0)  # its mean loss, once at the end
    assert fit.steps == len(order)


def test_a_host_that_asks_the_device_is_found(monkeypatch):
    monkeypatch.setattr(placement, "_kept", {})
    monkeypatch.setattr(placement, "free_bytes", lambda _: 1 << 40)
    fit = gpu_check.small_fit(torch.device("meta"), 4)
    fit.watch_step = lambda _fit, _batch, loss: loss.item()
    with pytest.raises(RuntimeError, match=r"item\(\)|meta tensors"):
        fit.train_batches([fit.training.indices[:4]] * 3, 0)
    assert fit.steps == 0


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="not available"):
        list(gpu_check.check_gpu("cuda:9"))
