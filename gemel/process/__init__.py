"""gemel in a process: forks and exits, the garbage collector, tracebacks, notebooks.

`forking`      waits for the engine and for compilers before a fork and at the exit
`urgent`       what waits until a plan has started: garbage collection, writing files
`tracebacks`   tracebacks and warnings at the line of the program, without gemel's own frames
`notebook`     failures nobody has seen, at the end of a cell
`signals`      signals that end a job
"""
