import ctypes
import sys
from types import SimpleNamespace

import pytest
import torch

from afor.bench.common.devices import (
    describe_device,
    gpus_for,
    keep_freed_memory,
    pick_device,
    repeatable,
)
from afor.bench.common.errors import ConfigError


def test_auto_takes_the_best_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto").type == "cuda"


def test_a_device_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "cuda:1", "mps", "gpu", "cpu:1", ""):
        with pytest.raises(ConfigError, match="Accepted here: auto, cpu"):
            pick_device(name)
    assert pick_device("cpu").type == "cpu"


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    with repeatable(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_freed_memory_is_kept_where_the_c_library_has_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *options: calls.append(options))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(sys, "platform", "linux")
    keep_freed_memory()
    assert calls == [(-1, 512 * 2**20), (-3, 32 * 2**20)]  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_other_c_libraries_are_left_as_they_are(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())  # musl has no mallopt
    monkeypatch.setattr(sys, "platform", platform)
    keep_freed_memory()


@pytest.mark.skipif(sys.platform != "linux", reason="the call is glibc's")
def test_the_call_that_keeps_freed_memory_succeeds() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        pytest.skip("this C library has no mallopt")
    assert mallopt(-1, 512 * 2**20) == mallopt(-3, 32 * 2**20) == 1


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("three_gpus")
def test_cuda_stands_for_all_gpus_and_an_index_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus_for("cuda") == gpus_for("auto") == ("0", "1", "2")
    assert gpus_for("cuda:1") == ("1",)
    assert gpus_for("cpu") == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5ab,7")  # as a batch system sets it
    assert gpus_for("cuda") == ("4", "GPU-5ab", "7")
    assert gpus_for("cuda:1") == ("GPU-5ab",)
    with pytest.raises(ConfigError, match="cuda:3"):
        gpus_for("cuda:3")


@pytest.mark.parametrize(("precision", "allowed"), [("float32", False), ("tf32", True)])
def test_tf32_is_off_unless_asked_for(precision: str, allowed: bool) -> None:
    before = torch.backends.cudnn.allow_tf32
    with repeatable(1, precision):  # type: ignore[arg-type]
        assert torch.backends.cudnn.allow_tf32 is allowed
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
    assert torch.backends.cudnn.allow_tf32 is before


@pytest.mark.usefixtures("three_gpus")
def test_algorithms_are_deterministic_where_there_is_cuda() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with repeatable(1):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_record_of_a_gpu_names_what_may_change_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        name, major, minor = "RTX 9", 9, 1

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    described = describe_device(torch.device("cuda"))
    assert (described["gpu"], described["capability"]) == ("RTX 9", "9.1")
    assert {"cuda", "cudnn", "driver"} <= described.keys()
    assert described["tf32"] == "off"
    assert describe_device(torch.device("cuda"), "tf32")["tf32"] == "on"
    assert describe_device(torch.device("cpu")) == {}
