"""An operation of your own that moves elements: a rule says where each one comes from.

Run this file: the printed plan has one kernel, which also moves the elements, in its own loop."""

import numpy

import gemel
from gemel import np
from gemel.ir.declare import op
from gemel.spec import Spec


@op(moves=1)
def skewed(x, *, step=1):
    """Row i of a matrix, turned round by i * step places."""
    return numpy.stack([numpy.roll(row, i * step) for i, row in enumerate(x)])


@skewed.spec
def _(x, *, step):
    return Spec(x.shape, x.dtype)


@skewed.element
def _(loop, position, x, *, step):
    row, column = map(loop.number, position)
    return x.at(position[0], (column - row * step) % loop.constant(x.shape[1]))


@skewed.gradient
def _(g, y, x, *, step):
    return (skewed(g, step=-step),)


x = np.arange(12.0).reshape(3, 4)
program = gemel.compile(lambda x: skewed(x * 2) + 1)
print(program(x))
print(program.plan_summary(x))
numpy.testing.assert_array_equal(program(x), skewed.function(x.asnumpy() * 2, step=1) + 1)
