"""The pages for maintainers name modules and functions that exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/explanation/design.md", "CONTRIBUTING.md")


def named_in(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    return sorted(set(re.findall(r"`(afor(?:\.\w+)+)`", text)))


@pytest.mark.parametrize("name", named_in(PAGES[0]))
def test_every_name_of_the_design_page_exists(name):
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"there is no module {parts[0]}")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text()
    names = re.findall(r"`((?:src|tests|docs|tools|benchmarks)/[\w./-]+\.(?:py|md|toml|c))`", text)
    missing = [name for name in names if "NAME" not in name and not (ROOT / name).is_file()]
    assert missing == []
