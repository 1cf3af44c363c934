#!/bin/bash
# Stage grpo1 of instella-3b by verl; made by `instella engines render`.
# PYTHON: a Python that has verl, on every node; by default the first in PATH.
set -euo pipefail
cd "$(dirname -- "$(readlink -f -- "$0")")"
. ./environment.sh
python=$(command -v "${PYTHON:-python3}")
export PATH="$(dirname -- "$python"):$PATH"
mapfile -t overrides <overrides.txt
train=("$python" -m verl.trainer.main_ppo "${overrides[@]}")
: "${SLURM_JOB_NODELIST:?start this inside a SLURM job of 2 nodes}"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
rm -f finished
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL \
    "$python" -m ray.scripts.scripts symmetric-run --address "$head:6379" --min-nodes 2 --num-gpus=8 --include-dashboard=false -- \
    bash -c '"$@" && touch finished' train "${train[@]}"
[ -e finished ] || { echo 'verl did not run to its end' >&2; exit 1; }
