"""A reduction of your own, which carries two values along: the logarithm of a sum of exponentials.

Run this file: the printed plan has one kernel, which reads the array once and never overflows."""

import numpy

import gemel
from gemel import np
from gemel.ir.combiner import Combiner
from gemel.ir.declare import reduction


class LargestAndSum(Combiner):
    """The largest element so far, and the sum of exp(x - largest) (Milakov, Gimelshein, 2018)."""

    def initial(self, dtype):
        return (dtype, -numpy.inf), (dtype, 0)

    def update(self, xp, state, x, position):
        return self.combine(xp, state, (x, 1.0))

    def combine(self, xp, a, b):
        most = xp.maximum(a[0], b[0])
        near = xp.where(xp.isfinite(most), most, 0)
        return most, a[1] * xp.exp(a[0] - near) + b[1] * xp.exp(b[0] - near)

    def result(self, xp, state):
        return state[0] + xp.log(state[1])


@reduction(combine=LargestAndSum())
def log_sum(x, *, axis=None, keepdims=False):
    return numpy.logaddexp.reduce(x, axis=axis, keepdims=keepdims)


x = np.random.normal(1000, 10, (5, 40000))
program = gemel.compile(lambda x: log_sum(x - 1, axis=1) + 1)
numpy.testing.assert_allclose(program(x), log_sum.function(x.asnumpy(), axis=1), rtol=1e-6)
print(program.plan_summary(x))
