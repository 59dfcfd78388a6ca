import json

from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError

runner = CliRunner()
QUICK = ["analyse", "cost", "--optimizer", "adamw", "--rounds", "1"]


def test_the_table_stands_beside_the_papers():
    result = runner.invoke(app, QUICK)
    assert result.exit_code == 0, result.output
    assert "1,746 parameters in 12 tensors" in result.stdout
    assert "FLOPs (K)" in result.stdout
    assert "paper" in result.stdout
    assert "Next: afor analyse cost --output cost.json" in result.stderr


def test_json_is_what_the_table_command_reads(tmp_path):
    file = tmp_path / "cost.json"
    runner.invoke(app, [*QUICK, "-o", str(file), "--backbone", "acrnn", "--dataset", "bci2a"])
    found = json.loads(file.read_text())
    assert found["measures"]["extra_kflops"]["adamw"] < 0
    shown = runner.invoke(app, ["table", "cost", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "ACRNN on BCI IV 2a" in shown.stdout


def test_outputs_go_to_files_by_their_suffix(tmp_path):
    names = ("c.md", "c.tex", "c.csv", "c.json")
    targets = [word for name in names for word in ("-o", str(tmp_path / "new" / name))]
    result = runner.invoke(app, [*QUICK, *targets])
    assert result.exit_code == 0, result.output
    read = {name: (tmp_path / "new" / name).read_text() for name in names}
    assert read["c.md"].startswith("**Cost of one step")
    assert "booktabs" in read["c.tex"]
    assert read["c.csv"].startswith("source,measure,method,value")
    assert json.loads(read["c.json"])["parameters"] == 1746


def test_mistakes_are_told_with_what_is_accepted():
    result = runner.invoke(app, ["analyse", "cost", "--dataset", "seed"])
    assert isinstance(result.exception, ConfigError)
    assert "Accepted: deap" in str(result.exception)
    result = runner.invoke(app, ["analyse", "cost", "-o", "cost.pdf"])
    assert "this command writes .json, .md" in str(result.exception)
