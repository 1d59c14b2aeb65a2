"""A compiler pass of your own: a function from graph to graph, here one that removes log(exp(x)).

    python examples/extending/compiler_pass.py

What to look for: without the pass, exp(400) overflows and the last result is inf. With it, the
result is 401, and the printed graph has neither log nor exp.
"""

import numpy

import gemel
from gemel import np
from gemel.ir.graph import rewrite
from gemel.ops.elementwise import exp, log


def undo_exponentials(graph):
    """Replace log(exp(x)) by x, which stays finite where exp(x) overflows."""

    def undone(node, inputs):
        source = inputs[0].node if node.op is log else None
        return source.inputs if source is not None and source.op is exp else None

    return rewrite(graph, undone)


def function(x):
    return np.log(np.exp(x * 2)) + 1


x = np.array([1.0, 2.0, 200.0])
program = gemel.compile(function, passes=[undo_exponentials])
numpy.testing.assert_allclose(program(x), [3, 5, 401])
print("without the pass", gemel.compile(function)(x))
print("with it         ", program(x))
print(program.graph(x, optimized=True))
