"""Train a study on dask workers that are jobs of Slurm. Needs `pip install dask-jobqueue`.

    python dask_workers.py JOBS STUDY [OPTIONS of afor run]
    python dask_workers.py JOBS STUDY --device cuda            one GPU for each worker

The driver runs where this is started, until the study is complete; it needs no GPU. Queue, account
and network interface come from dask-jobqueue's configuration, such as the environment variables
DASK_JOBQUEUE__SLURM__QUEUE, DASK_JOBQUEUE__SLURM__ACCOUNT and DASK_JOBQUEUE__SLURM__INTERFACE.
"""

import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main(jobs: str, *arguments: str) -> int:
    """Start the workers, run the study on them, and end them."""
    gpu = "cuda" in arguments
    with SLURMCluster(
        cores=1,
        processes=1,
        memory="4GB",
        worker_extra_args=["--resources", "GPU=1"] if gpu else [],
        job_extra_directives=["--gres=gpu:1"] if gpu else [],
        scheduler_options={"dashboard": False},
    ) as cluster:
        cluster.scale(jobs=int(jobs))
        address = cluster.scheduler_address
        command = ["afor", "run", *arguments, "--engine", "dask", "--scheduler", address]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
