import pytest
import torch

from afor.bench.common.devices import pick_device, repeatable
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
