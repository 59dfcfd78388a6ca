import json

from typer.testing import CliRunner

from afor.bench.cli.app import app

runner = CliRunner()


def test_a_fact_is_printed_with_its_numbers_and_its_limits():
    result = runner.invoke(app, ["facts", "mean-beta2"])
    assert result.exit_code == 0, result.output
    for text in ("[0.99423, 0.99477]", "range: 0.99423, 0.99477", "Limits: "):
        assert text in result.stdout


def test_json_holds_the_values():
    result = runner.invoke(app, ["facts", "nsal-dgat", "--json"])
    (fact,) = json.loads(result.stdout)
    assert fact["name"] == "nsal-dgat"
    assert fact["values"]["share of NaN by channels"]["6"] == 1.0


def test_an_unknown_fact_is_refused_with_those_there_are():
    result = runner.invoke(app, ["facts", "bursts"])
    assert result.exit_code != 0
    assert "burst" in str(result.exception)
