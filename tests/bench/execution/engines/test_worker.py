import io
import os
import pickle
import subprocess
import sys

import pytest

from afor.bench.execution.engines.worker import BOOTSTRAP, send


def test_messages_come_out_as_they_went_in_and_a_cut_one_is_an_end():
    stream = io.BytesIO()
    send(stream, ("job", {"a": 1.5}))
    send(stream, b"x" * 100_000)
    whole = stream.getvalue()
    stream.seek(0)
    assert pickle.load(stream) == ("job", {"a": 1.5})
    assert pickle.load(stream) == b"x" * 100_000
    for cut in (0, 3, 8, 20):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            pickle.load(io.BytesIO(whole[:cut]))


def start(tmp_path, parent):
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BOOTSTRAP, str(parent), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_a_worker_ends_when_the_line_to_its_driver_closes(tmp_path):
    worker = start(tmp_path, os.getpid())
    assert pickle.load(worker.stdout) == ("ready",)
    worker.stdin.close()
    assert worker.wait(timeout=5) == 0
    worker.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="parents are not known there")
def test_a_worker_whose_driver_has_died_before_it_started_ends_at_once(tmp_path):
    worker = start(tmp_path, parent=1)
    worker.communicate(timeout=30)
    assert worker.returncode == 1
