#!/bin/sh
# 32 workers on 8 machines of a Slurm cluster, 4 cores each: sbatch examples/slurm_workers.sh train.py
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00

# An environment on a file system that all machines see, with gemel[mpi] installed in it.
. "$HOME/environment/bin/activate"

# What a worker may wait for another; the first step compiles, and a slow machine is not a dead one.
export GEMEL_WORKERS_TIMEOUT=120
# Of its four cores one is the program's own, the others are the engine's.
export GEMEL_WORKERS=3

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)
python -m gemel launch -n "$SLURM_NTASKS" --hosts "$hosts" "$@"

# Where the cluster has its own MPI, and mpi4py finds that one, Slurm can start the workers itself:
# srun --mpi=pmix python "$@"
