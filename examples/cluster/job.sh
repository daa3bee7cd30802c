#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Slurm: sbatch job.sh, in a folder that all nodes see and that holds run.json and the file `token`.
#SBATCH --job-name=hearth
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -euo pipefail
HEARTH_TOKEN=$(cat token)
export HEARTH_TOKEN HEARTH_THREADS=${SLURM_CPUS_PER_TASK:-16}
# The same command goes on from the last checkpoint when the job is queued again.
srun --kill-on-bad-exit=1 hearth train run.json --out runs/cluster
