#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
set -euo pipefail

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"  # srun does not take it from sbatch
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
others=$((SLURM_JOB_NUM_NODES - 1))
export RAY_ADDRESS="$head:6379"

srun --nodes=1 --ntasks=1 --overlap -w "$head" ray start --head --port=6379 --num-cpus=8 --block &
until srun --nodes=1 --ntasks=1 --overlap -w "$head" ray status > /dev/null 2>&1; do sleep 2; done
srun --nodes="$others" --ntasks="$others" --overlap -x "$head" ray start --address="$RAY_ADDRESS" --num-cpus="$SLURM_CPUS_PER_TASK" --block &

srun --nodes=1 --ntasks=1 --overlap -w "$head" python train.py
