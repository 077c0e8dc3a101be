#!/bin/bash
#SBATCH --job-name=rewards
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --signal=TERM@60
set -euo pipefail

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"  # srun does not take it from sbatch
umask 077
[ -s "$HOME/reward-token" ] || openssl rand -hex 32 > "$HOME/reward-token"
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's|.*|http://&:8000/score|' > "$HOME/reward-servers"

srun guerdon serve rewards.py --host 0.0.0.0 --port 8000 --token-file "$HOME/reward-token" --drain-timeout 50
