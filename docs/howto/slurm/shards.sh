#!/bin/bash
# One part of a study per task of a Slurm array:  sbatch --array=1-8 shards.sh STUDY [OPTIONS of afor run]
# With GPUs:  sbatch --array=1-8 --gres=gpu:1 shards.sh STUDY --device cuda
#SBATCH --job-name=afor
#SBATCH --cpus-per-task=2
#SBATCH --signal=TERM@120
# A task that is ended and queued again continues where it stopped.
#SBATCH --requeue
set -euo pipefail
part="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
srun afor run "$@" --shard "$part" --jobs "${AFOR_JOBS:-$SLURM_CPUS_PER_TASK}"
