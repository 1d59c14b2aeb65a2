"""A schedule of your own: loops over eight vectors at a time, where gemel takes four, two or one.

Run this file: it checks that the results have the same bits as those of gemel's own schedule, and
prints the plan.
"""

import numpy

import gemel
from gemel import np
from gemel.codegen.schedules import Recipe


def suits(program):
    """Accept elementwise loops only; reductions keep gemel's own schedule."""
    return program.vectors_along == "outer" and not program.inner


def emit(program, target):
    """Generate the LLVM module of the kernel."""
    from gemel.codegen.loops.plain import Loops  # loads LLVM, which cached kernels do not need

    class Wide(Loops):
        def outer_copies(self):
            return 8

    return Wide(program, target).build()


def function(x):
    return np.exp(-x * x) * 3


wide = Recipe("wide", suits, emit)
x = np.random.normal(size=(1000,))
program = gemel.compile(function, recipes=[wide])
numpy.testing.assert_array_equal(program(x), gemel.compile(function)(x))
print(program.plan_summary(x))
print("the same bits, eight vectors at a time")
