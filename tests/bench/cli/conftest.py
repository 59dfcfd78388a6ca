"""Fixtures of the commands: call one in this process."""

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError


def _invoke(words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


@pytest.fixture(scope="session")
def call():
    """Return a function that runs a command and checks its exit code."""

    def run(*words, code=0):
        result = _invoke(words)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture(scope="session")
def refuse():
    """Return a function that runs a command which fails, and gives the message."""

    def run(*words, error=ConfigError):
        result = _invoke(words)
        assert isinstance(result.exception, error), result.output
        return str(result.exception)

    return run
