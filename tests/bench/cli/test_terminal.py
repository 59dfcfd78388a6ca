import io
import os
import sys

import pytest

from afor.bench.cli.terminal import GuardedTerminal, harmless
from afor.bench.store.database import open_store
from afor.bench.training.execute import failed_run
from afor.bench.training.record import decode

HOSTILE = "no\x1b]0;title\x07\x1b[2J\x9b31m\x08\r luck"


def test_only_line_breaks_tabs_and_colours_pass():
    assert harmless("a\tb\n\x1b[1;31mred\x1b[0m") == "a\tb\n\x1b[1;31mred\x1b[0m"
    assert set(harmless(HOSTILE)).isdisjoint("\x1b\x07\x9b\x08\r")
    assert harmless("abc\u202etxt") == "abc�txt"


def test_a_guard_is_the_stream_it_guards_in_all_else():
    raw = io.StringIO()
    guard = GuardedTerminal(raw)
    guard.write("a\x1b[2Jb")
    guard.flush()
    assert raw.getvalue() == "a�[2Jb"
    assert guard.isatty() is False


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
def test_no_command_sends_control_characters_of_a_store_to_a_terminal(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)
    tiny.run_inline()
    with open_store(tiny.store, write=True) as store:
        first = next(iter(store.contents()))
        run = decode(first)
        store.forget([run.key])
        store.add(failed_run(run.key, {**run.spec, "device": HOSTILE}, HOSTILE))
    for command, study in (
        ("store failures", tiny.store),
        ("store show", tiny.store),
        ("status", tiny.store),
        ("export", tiny.store),
        ("status", f"absent{HOSTILE}.db"),
    ):
        driver, terminal = os.openpty()
        words = [run.key[:12]] if command == "store show" else []
        process = tiny.start(*words, command=command, study=study, on=terminal)
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(driver, 65536):
                shown += data
        except OSError:
            pass  # the other side is closed
        os.close(driver)
        process.wait(timeout=60)
        text = shown.decode().replace("\r\n", "\n")
        assert "luck" in text or command in ("status", "export"), text
        assert set(text).isdisjoint("\x07\x9b\x08\r"), (command, text)
        assert "\x1b]" not in text
        assert "\x1b[2J" not in text
