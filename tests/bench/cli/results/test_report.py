import json

from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import StoreError
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.store.files import write_results

runner = CliRunner()


def test_a_report_is_written_and_named(tmp_path):
    results = tmp_path / "r.json"
    write_results(
        results, *simulate_results({"adam": 0, "afor": 0.05}, datasets=["bci2a"], repetitions=1)
    )
    target = tmp_path / "new" / "page.html"
    arguments = ["report", str(results), "-o", str(target), "--static"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert str(target) in result.stdout
    html = target.read_text("utf-8")
    assert "<title>Methods across subjects</title>" in html
    assert "<script" not in html
    content = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
    assert content["file"] == str(target)
    assert content["bytes"] == target.stat().st_size
    (verdict,) = content["verdicts"]
    assert "AFOR is better than Adam" in verdict


def test_a_store_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the page would be written
    result = runner.invoke(app, ["report", str(tmp_path / "no.db")])
    assert isinstance(result.exception, StoreError)
