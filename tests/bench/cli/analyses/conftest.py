"""Fixtures of the commands of the analyses."""

import pytest


@pytest.fixture
def study_file(tmp_path, window_cache, monkeypatch):
    """Return a function that writes a study to `tiny.toml` in a current folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFOR_CACHE", str(window_cache))

    def write(text: str) -> str:
        (tmp_path / "tiny.toml").write_text(text)
        return "tiny.toml"

    return write
