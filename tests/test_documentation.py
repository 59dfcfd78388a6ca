"""Every Python example of the README and the documentation runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARTNERS = {"accelerate", "lightning", "moabb", "skorch", "transformers"}  # extras, not ours
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_the_examples_of_a_page_run_one_after_another(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("_MNE_FAKE_HOME_DIR", str(tmp_path))  # MOABB writes its settings there
    names: dict[str, object] = {"__name__": "__main__"}
    for code in blocks(page):
        try:
            exec(compile(code, str(page), "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in PARTNERS:
                raise
            pytest.skip(f"{error.name} is not installed: pip install 'afor[partners,moabb]'")


def test_pictures_and_pages_that_are_linked_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
