"""The Slurm recipe of the documentation, with stand-ins for sbatch and srun."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[4] / "docs/howto/slurm/shards.sh"
SBATCH = """
# Runs the tasks of an array one after another, as Slurm would in parallel.
count="${1#--array=1-}"
shift
for task in $(seq "$count"); do
  SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$count SLURM_CPUS_PER_TASK=1 bash "$@" || exit
done
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_an_array_of_shards_and_a_merge_give_the_whole_study(tiny):
    tiny.write(subjects=3, draws=1)
    programs = tiny.folder / "bin"
    programs.mkdir()
    start = f"exec {sys.executable} -c 'from afor.bench.cli.app import main; main()'"
    texts = {"sbatch": SBATCH, "srun": 'exec "$@"', "afor": f'{start} "$@"'}
    for name, text in texts.items():
        program = programs / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {**tiny.environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [programs / "sbatch", "--array=1-2", RECIPE, str(tiny.file)],
        cwd=tiny.folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts = sorted((tiny.folder / "results").glob("tiny.part-*.db"))
    assert [part.name for part in parts] == ["tiny.part-1-of-2.db", "tiny.part-2-of-2.db"]
    tiny.call(*parts, command="merge", study=tiny.store)
    assert len(tiny.numbers()) == 6
