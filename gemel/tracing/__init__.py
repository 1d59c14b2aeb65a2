"""Tracing: Python functions become programs, which are bound to sizes and run as plans.

A call goes from `Compiled` to a `Program` (one for each kind of arguments: a graph with free
extents), to a `Bound` (for certain sizes), to a plan. `Compiled` keeps all of them. For arguments
like earlier ones, the core's `CallSite` goes directly to the plan.

`compiled`, `programs`, `bound`, `sized_plans`
    These four, and the plans of a program for all sizes.
`nested`, `foreign`, `manners`
    Arguments and results: nested ones, NumPy's arrays, NDArrays of MXNet 1.
`inner_gradients`, `mixing`
    Functions that take gradients themselves, and their mixed precision.
`updates`
    Programs that overwrite many arrays, for optimizers.
"""
