#!/bin/sh
# Runs train.py with 32 workers, of 4 cores each, on 8 machines of a Slurm cluster:
#   sbatch examples/slurm_workers.sh train.py
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00

# A virtual environment with gemel[mpi], on a file system that all machines share.
. "$HOME/environment/bin/activate"

# How many seconds a worker waits for another before it gives up. The first step compiles, and a slow
# machine must not count as a dead one.
export GEMEL_WORKERS_TIMEOUT=120
# The Python program runs on one of a worker's four cores, the engine's threads on the others.
export GEMEL_WORKERS=3

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)
python -m gemel launch -n "$SLURM_NTASKS" --hosts "$hosts" "$@"

# If the cluster has an MPI of its own and mpi4py uses it, Slurm can start the workers itself:
# srun --mpi=pmix python "$@"
