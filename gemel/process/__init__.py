"""gemel in a process: forks and exits, the garbage collector, tracebacks, notebooks."""
