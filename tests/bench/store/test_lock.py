import subprocess
import sys

import pytest

from afor.bench.common.errors import StoreError
from afor.bench.store.lock import lock_path, locked


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path):
    store = tmp_path / "x.db"
    with locked(store), pytest.raises(StoreError, match=r"another afor.*process"), locked(store):
        pass
    with locked(store):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path):
    store = tmp_path / "x.db"
    script = (
        "import os, sys, signal; from pathlib import Path\n"
        "from afor.bench.store.lock import locked\n"
        "with locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(store)]).returncode == -9
    assert lock_path(store).exists()
    with locked(store):
        pass


def test_a_place_that_cannot_hold_a_lock_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="--store"), locked(tmp_path / "file" / "x.db"):
        pass
