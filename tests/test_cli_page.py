"""The page of commands says what the command line says."""

from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def script(load_script) -> ModuleType:
    return load_script("docs/figures/cli_page.py")


def test_the_page_is_what_the_command_line_says_today(script) -> None:
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.page(), "write it anew: python docs/figures/cli_page.py"


def test_a_command_stands_there_with_its_help_arguments_and_options(script) -> None:
    section = script.page().split("## afor store verify\n")[1].split("## ")[0]
    assert "Train a sample of runs again" in section
    for word in ("`RESULTS`", "`--count NUMBER`", "`--root TEXT`", "`-j, --jobs NUMBER`", "`3`"):
        assert word in section


def test_commands_of_a_group_stand_under_their_full_name(script) -> None:
    assert "## afor data stand-in\n" in script.page()


def test_signs_that_markdown_would_take_for_itself_are_escaped(script) -> None:
    assert r"moabb:\<Name\>" in script.page()
    assert r"\$AFOR_DATA" in script.page()
