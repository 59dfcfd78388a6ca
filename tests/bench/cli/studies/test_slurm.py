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
# Starts a job in the background, whose number is that of its process group, and keeps its script.
JOB = """
cp "$1" "$STAND_IN_FOLDER/job.sh"
CUDA_VISIBLE_DEVICES= setsid bash "$STAND_IN_FOLDER/job.sh" >"$STAND_IN_FOLDER/job.log" 2>&1 &
echo "Submitted batch job $!"
"""
CANCEL = 'kill -- "-$1"'

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
    tiny.write(subjects=3, draws=1)
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


def test_dask_workers_that_are_jobs_train_a_study_on_their_gpu(tiny):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    tiny.write(subjects=3, draws=1)
    environment = {
        **environment_with(tiny, sbatch=JOB, scancel=CANCEL),
        "DASK_JOBQUEUE__SLURM__INTERFACE": "lo",
    }
    done = subprocess.run(
        [sys.executable, RECIPES / "dask_workers.py", "1", str(tiny.file), "--device", "cuda"],
        cwd=tiny.folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    log = tiny.folder / "job.log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "no job")
    assert len(tiny.numbers()) == 6
    script = (tiny.folder / "job.sh").read_text()
    assert "#SBATCH --gres=gpu:1" in script
    assert "--resources GPU=1" in script
