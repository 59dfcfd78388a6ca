"""Studies printed in the documentation are studies, and what is said of them is so."""

import re
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FRAGMENTS = [
    (page, text)
    for page in sorted(DOCS.rglob("*.md"))
    for text in BLOCK.findall(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(
    ("page", "text"), FRAGMENTS, ids=[f"{p.stem}-{n}" for n, (p, _) in enumerate(FRAGMENTS)]
)
def test_a_printed_study_or_part_of_one_has_valid_keys(page, text) -> None:
    from afor.bench.study.schema import Study

    least = {"name": "x", "datasets": ["lab"], "backbones": ["eegnet"], "optimizers": ["adam"]}
    Study.model_validate({**least, **tomllib.loads(text)})


def test_the_plan_in_the_tutorial_is_what_the_command_prints(tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from afor.bench.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    page = (DOCS / "tutorial" / "first-study.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(BLOCK.findall(page)[0], encoding="utf-8")
    printed = page.split("$ afor plan mine.toml -j 1 --no-timing\n")[1].split("```")[0]
    arguments = ["plan", "mine.toml", "-j", "1", "--no-timing"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments, catch_exceptions=False)
    assert result.stdout.strip() == printed.split("\nNext:")[0].strip()


def test_the_demo_has_as_many_runs_as_the_pages_say() -> None:
    from afor.bench.study.schema import load_study

    demo = load_study("demo")
    subjects = demo.datasets[0].options["n_subjects"]
    runs = len(demo.optimizers) * len(demo.backbones) * subjects * demo.protocol.repetitions
    assert f"0 of {runs} runs" in (DOCS / "tutorial" / "first-study.md").read_text("utf-8")
    assert re.search(rf"{runs}\s+trainings", (DOCS / "howto" / "studies.md").read_text("utf-8"))


def test_the_reference_lists_every_key_of_a_study() -> None:
    from afor.bench.study import schema as config

    page = (DOCS / "reference" / "benchmark.md").read_text("utf-8")
    for start, table in {
        "| (top) |": config.Study,
        "| `[training]` |": config.Training,
        "| `[protocol]` |": config.Protocol,
        "| `[search]` |": config.Search,
        "| `[[datasets]]` |": config.DatasetEntry,
        "| `[[backbones]]` |": config.BackboneEntry,
        "| `[[optimizers]]` |": config.OptimizerEntry,
    }.items():
        row = next(line for line in page.splitlines() if line.startswith(start))
        assert row == f"{start} {', '.join(f'`{key}`' for key in table.model_fields)} |"
