"""The tape: recorded calls, and how gradients are propagated back through them.

`recording`    calls under `autograd.record()`, variables, where the contents of arrays come from
`views`        views of recorded arrays, and writes through them
`kinds`        the gradient of one kind of call: its pullback, as a graph of operations
`steps`        the calls that some heads depend on, in order
`reverse`      the backward pass over a step, call by call or by a plan
`step_plans`   when the gradient of a step is compiled, and its plan
`function`     `autograd.Function`
`traced`       its calls in traced functions
`clock_cache`  a cache of bounded size, for kinds and plans
"""
