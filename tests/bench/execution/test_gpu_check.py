"""The checks of `afor doctor --gpu`, on the CPU: the logic is the same."""

import pytest
import torch

from afor.bench.common.errors import ConfigError
from afor.bench.execution import gpu_check

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(gpu_check, "TIMED_STEPS", 1)
    monkeypatch.setattr(gpu_check, "BATCH", 4)
    monkeypatch.setattr(gpu_check, "STEPS", 20)


def test_every_check_passes_or_says_why_it_is_not_possible():
    findings = {finding.subject: finding for finding in gpu_check.check_gpu("cpu")}
    assert findings.pop("graph capture").verdict == "note"
    assert findings.pop("device").verdict == "note"
    assert {subject: f.text for subject, f in findings.items() if f.verdict != "ok"} == {}
    assert "steps/s" in findings["throughput"].text


def test_a_check_that_fails_is_reported_and_the_others_run(monkeypatch):
    monkeypatch.setattr(gpu_check, "LIMIT", 0.0)
    findings = list(gpu_check.check_gpu("cpu"))
    assert [f.subject for f in findings if f.verdict == "broken"] == ["foreach step", "fused step"]
    assert "away from the equations" in findings[1].text
    assert findings[-1].verdict == "ok"


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="not available"):
        list(gpu_check.check_gpu("cuda:9"))
