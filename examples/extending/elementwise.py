"""An elementwise operation of your own: declare its formula and its gradient; gemel does the rest.

    python examples/extending/elementwise.py

What to look for: the operation works on arrays, on the tape and in a compiled function. The plan
printed last has a single kernel, which fuses the operation with the arithmetic around it.
"""

import numpy

import gemel
from gemel import autograd, np
from gemel.ir.declare import elementwise


@elementwise()
def squareplus(xp, x, *, b=4.0):
    """(x + sqrt(x^2 + b)) / 2, a smooth rectifier (Barron, 2021)."""
    return (x + xp.sqrt(x * x + b)) / 2


@squareplus.gradient
def _(g, y, x, *, b):
    return (g * y / np.sqrt(x * x + b),)


x = np.array([-2.0, 0.0, 3.0])
x.attach_grad()
with autograd.record():
    y = squareplus(x)
y.backward()
print("squareplus", y, "gradient", x.grad)

program = gemel.compile(lambda x: squareplus(x * 2, b=1.0) + 1)
numpy.testing.assert_allclose(program(x), squareplus(x * 2, b=1.0) + 1, rtol=1e-6)
print(program.plan_summary(x))
