"""The Slurm recipes of the documentation, with stand-ins for sbatch, srun and scancel."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[4] / "docs/howto/slurm"
ARRAY = """
# Runs the tasks of an array one after another, as Slurm would in parallel.
count="${1#--array=1-}"
shift
for task in $(seq "$count"); do
  SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$count SLURM_CPUS_PER_TASK=1 bash "$@" || exit
done
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shell scripts")


def environment_with(tiny, **programs: str) -> dict[str, str]:
    """Return an environment in which these programs come first."""
    folder = tiny.folder / "bin"
    folder.mkdir()
    start = f"exec {sys.executable} -c 'from afor.bench.cli.app import main; main()'"
    for name, text in {**programs, "afor": f'{start} "$@"'}.items():
        program = folder / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**tiny.environment, "PATH": path, "STAND_IN_FOLDER": str(tiny.folder)}


def test_an_array_of_shards_and_a_merge_give_the_whole_study(tiny):
    tiny.write(subjects=3, repetitions=1)
    done = subprocess.run(
        ["sbatch", "--array=1-2", RECIPES / "shards.sh", str(tiny.file)],
        cwd=tiny.folder, env=environment_with(tiny, sbatch=ARRAY, srun='exec "$@"'),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts = sorted((tiny.folder / "results").glob("tiny.part-*.db"))
    assert [part.name for part in parts] == ["tiny.part-1-of-2.db", "tiny.part-2-of-2.db"]
    tiny.call(*parts, command="store merge", study=tiny.store)
    assert len(tiny.numbers()) == 6
