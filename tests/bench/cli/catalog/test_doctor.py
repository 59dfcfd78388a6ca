import json

from typer.testing import CliRunner

from afor.bench.cli.app import app


def test_doctor_prints_a_line_per_finding_and_the_next_command():
    result = CliRunner().invoke(app, ["doctor"])
    assert "torch" in result.stdout
    assert "CUDA fused path not yet run on a GPU" in result.stdout
    assert "Next: afor demo" in result.stderr or result.exit_code == 1
    content = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {"subject", "verdict", "text"} == set(content[0])
