import json

from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.doctor import Finding


def test_doctor_prints_a_line_per_finding_and_the_next_command():
    result = CliRunner().invoke(app, ["doctor"])
    assert "torch" in result.stdout
    assert "Next: afor demo" in result.stderr or result.exit_code == 1
    assert "fused" in CliRunner().invoke(app, ["doctor", "--gpu"]).stdout
    content = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {"subject", "status", "text"} == set(content[0])


def test_the_next_command_is_one_that_works(monkeypatch):
    lacking = Finding("extra bench", "missing", "without mne: pip install 'afor[bench]'")
    monkeypatch.setattr("afor.bench.cli.catalog.doctor.examine", lambda _: [lacking])
    result = CliRunner().invoke(app, ["doctor"])
    assert "Next" not in result.stderr
