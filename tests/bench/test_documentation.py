"""Every Python example of the README and the documentation runs; printed results are right."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.runner import run_study
from afor.bench.study.schema import parse_study

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARTNERS = {"accelerate", "lightning", "moabb", "pytorch_optimizer", "skorch", "transformers"}
# What the tutorials say of results on another processor: points, of a mean or an SD over folds.
TRAINED_WITHIN = {"points": 5.0, "10⁻³ nats": 40.0}  # NLL: about the interval of a gain there
TRAINED = ("Adam", "AdamW", "AFOR")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: p.relative_to(ROOT).as_posix()
)
@pytest.mark.usefixtures("train_here")
def test_the_examples_of_a_page_run_one_after_another(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("_MNE_FAKE_HOME_DIR", str(tmp_path))  # MOABB writes its settings there
    names: dict[str, object] = {"__name__": "__main__"}
    for code in blocks(page):
        if page.name == "partners.md":  # a reader wants one framework
            names = {"__name__": "__main__"}
        try:
            exec(compile(code, str(page), "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in PARTNERS:
                raise
            pytest.skip(f"{error.name} is not installed: pip install 'afor[partners,moabb]'")
    assert_printed_results(page)
    assert_printed_checks(page)


def assert_printed_checks(page: Path) -> None:
    """Hold what `afor data check` prints on a page against what it prints of the files here."""
    for command, printed in re.findall(
        r"^\$ afor (data check .*)\n(.*?)^Next:", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        if Path(command.split()[-1]).exists():
            result = CliRunner(env={"COLUMNS": "100"}).invoke(app, command.split())
            assert result.stdout.strip() == printed.strip()


def test_the_sizes_of_downloads_are_those_that_the_command_prints(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("AFOR_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    commands = 0
    for page in PAGES:
        for command, printed in re.findall(
            r"^\$ afor (data get .*--dry-run)\n(\w.*)$", page.read_text("utf-8"), re.MULTILINE
        ):
            assert CliRunner().invoke(app, command.split()).stdout.splitlines()[0] == printed
            commands += 1
    assert commands == 4
    ten = CliRunner().invoke(app, "data get eegmmidb --subject 1-10 --dry-run".split())  # noqa: SIM905
    (size,) = re.findall(r"about \d+ MB", ten.stdout)
    said = [
        found
        for page in PAGES
        for found in re.findall(
            r"ten\s+people of PhysioNet[^.]*?(about \d+ MB)", page.read_text("utf-8")
        )
    ]
    assert said
    assert set(said) == {size}


@pytest.mark.timeout(1200)  # 24 trainings, on however slow a machine
@pytest.mark.usefixtures("train_here")
def test_the_results_of_the_first_study_are_those_of_the_page(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorial" / "first-study.md"
    text = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    store = Path("results/mine.db")
    run_study(parse_study(text), text, store, LocalEngine(1), cache_dir=tmp_path / "cache")
    assert assert_printed_results(page) == 2


def assert_printed_results(page: Path) -> int:
    """Hold tables and statistics on a page against the finished stores in this folder.

    What needs no training is the same to the last character. What comes out of a training may be
    `TRAINED_WITHIN` away, and the page says so; p-values, marks and ranks follow from it.
    """
    content = page.read_text("utf-8")
    compared, units = 0, set()
    for command, printed in re.findall(
        r"^\$ afor ((?:table main|judge) \S+)\n(.*?)^Next:", content, re.MULTILINE | re.DOTALL
    ):
        if not Path(command.split()[-1]).exists() or "Incomplete" in printed:
            continue
        # The pages were printed on a terminal of 100 columns.
        result = CliRunner(env={"COLUMNS": "100"}).invoke(
            app, command.split(), catch_exceptions=False
        )
        rows, expected = rows_of(result.stdout), rows_of(printed)
        assert [row[:2] for row in rows] == [row[:2] for row in expected]
        for (name, unit, numbers), (_, _, on_page) in zip(rows, expected, strict=True):
            allowed = TRAINED_WITHIN[unit] if name in TRAINED else 0.0
            assert numbers == pytest.approx(on_page, rel=0, abs=allowed), (command, name)
        compared += 1
        units |= {unit for name, unit, _ in expected if name in TRAINED}
    for unit in units:
        distance = TRAINED_WITHIN[unit]
        assert re.search(rf"within {distance:g}\s*·?\s*{unit}", content), "how far is not said"
    return compared


def rows_of(text: str) -> list[tuple[str, str, list[float]]]:
    """Return name, unit and numbers of each row of a table: of statistics, the gains alone."""
    rows = []
    unit = "points"
    for line in text.replace("−", "-").splitlines():
        if re.search(r": \d+ folds", line):
            unit = "10⁻³ nats" if "nats" in line else "points"
        row = re.match(r"(AdamW|Adam|AFOR|Majority class|Chance level) {2,}(.*)", line)
        if row is None:
            continue
        gain = re.match(r"(?:better|worse|equal ±1|undecided) +([+-]\d+\.\d+)", row[2])
        numbers = [gain[1]] if gain else re.findall(r"[+-]?\d+\.\d+", row[2])
        if gain or "±" in row[2] or row[1] not in TRAINED:  # neither p-values nor ranks nor wins
            rows.append((row[1], unit, [float(number) for number in numbers]))
    return rows


@pytest.mark.skipif(
    not (ROOT / "docs" / "images").exists(), reason="a source distribution has no pictures"
)
def test_pictures_and_pages_that_are_linked_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
