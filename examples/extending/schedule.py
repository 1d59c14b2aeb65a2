"""Another way to do loops: eight vectors at a time where gemel takes four, two or one."""

import numpy

import gemel
from gemel import np
from gemel.codegen.schedules import Recipe


def suits(program):
    """Elementwise loops alone; reductions keep what they have."""
    return program.vectors_along == "outer" and not program.inner


def emit(program, target):
    """The module of the kernel."""
    from gemel.codegen.loops import Loops  # needs LLVM, which a cached kernel does not

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
