import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.cli.catalog import doctor
from afor.native.binding import instruction_set, unavailable_reason


def test_doctor_prints_a_line_per_finding_and_the_next_command():
    result = CliRunner().invoke(app, ["doctor"])
    assert "torch" in result.stdout
    assert "Next: afor demo" in result.stderr or result.exit_code == 1
    assert "fused" in CliRunner().invoke(app, ["doctor", "--gpu"]).stdout
    content = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {"subject", "status", "text"} == set(content[0])


def test_the_next_command_is_one_that_works(monkeypatch):
    lacking = doctor.Finding("extra bench", "missing", "without mne: pip install 'afor[bench]'")
    monkeypatch.setattr("afor.bench.cli.catalog.doctor.examine", lambda _: [lacking])
    result = CliRunner().invoke(app, ["doctor"])
    assert "Next" not in result.stderr


def findings(tmp_path):
    return {finding.subject: finding for finding in doctor.examine(tmp_path)}


def test_it_says_what_is_here(tmp_path):
    found = findings(tmp_path)
    assert found["torch"].status == "ok"
    assert found["disk"].status in ("ok", "note")
    assert {"native kernel", "cores", "extra bench", "afor-optimizer"} <= found.keys()


def test_without_a_gpu_there_is_nothing_to_check(monkeypatch):
    monkeypatch.setattr("afor.triton.launch.triton_unavailable_reason", lambda: "no CUDA device")
    (finding,) = doctor.examine_gpus()
    assert (finding.status, finding.text) == ("note", "nothing to check: no CUDA device")


def test_each_gpu_is_checked_and_one_that_fails_is_broken(monkeypatch):
    def check(device):
        if device.index == 1:
            raise RuntimeError("`fused=True` gives wrong steps on cuda:1")

    monkeypatch.setattr("afor.triton.launch.triton_unavailable_reason", lambda: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("afor.triton.launch.check_kernels", check)
    first, second = doctor.examine_gpus()
    assert first.status == "ok"
    assert (second.status, second.text) == ("broken", "`fused=True` gives wrong steps on cuda:1")


def test_a_kernel_that_cannot_be_used_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("afor.native.binding.unavailable_reason", lambda: "no compiler.")
    finding = findings(tmp_path)["native kernel"]
    assert finding.status == "missing"
    assert "no compiler" in finding.text
    for fast, slow in doctor.STEPS_OF_ADAM.values():
        assert f"{slow:.2f} instead of {fast:.2f}" in finding.text


def test_the_documentation_tells_the_same_cost_of_a_missing_kernel():
    page = Path(__file__).parents[4] / "docs" / "reference" / "compatibility.md"
    text = page.read_text("utf-8")
    for fast, slow in doctor.STEPS_OF_ADAM.values():
        assert f"{fast:.2f}" in text
        assert f"{slow:.2f}" in text


@pytest.mark.skipif(unavailable_reason() is not None, reason="the native kernel was not built")
def test_the_instruction_set_of_the_kernel_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("AFOR_KERNEL_ISA", raising=False)
    text = findings(tmp_path)["native kernel"].text
    assert text.endswith(f"instruction set {instruction_set()}")
    monkeypatch.setenv("AFOR_KERNEL_ISA", "default")
    assert "(chosen by AFOR_KERNEL_ISA)" in findings(tmp_path)["native kernel"].text


def test_the_module_of_afor_optimizer_is_a_clash_only_where_case_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "AFOR.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "_ignores_case", lambda _: True)
    clash = doctor._name_clash()
    assert clash.status == "broken"
    assert "pip uninstall afor-optimizer" in clash.text
    monkeypatch.setattr(doctor, "_ignores_case", lambda _: False)
    assert doctor._name_clash().status == "note"


def test_a_missing_extra_names_the_command_that_installs_it(tmp_path, monkeypatch):
    real = doctor.importlib.util.find_spec
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name == "dask" else real(name)
    )
    assert "pip install 'afor[dask]'" in findings(tmp_path)["extra dask"].text
