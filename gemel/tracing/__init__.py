"""Tracing: Python functions as programs, bound to the sizes of their arguments and run as plans.

A call goes `Compiled` -> `Program` (one for each kind of arguments: a graph with free extents) ->
`Bound` (for certain sizes) -> a plan. `Compiled` keeps all of them; the core's `CallSite` goes from
arguments like earlier ones straight to the plan.
"""
