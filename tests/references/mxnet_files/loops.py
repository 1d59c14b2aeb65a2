"""Write loops-*: loops and branches of MXNet 1.9.1, and its results for them.

Run it like `make.py`, in this folder: ``python loops.py``.
"""

from __future__ import annotations

import mxnet as mx
from mxnet.gluon import nn


class Loops(nn.HybridBlock):
    """Each kind of loop, with values from outside; one loop is inside another."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(3,))
            self.line = nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, a, b, weight):
        total = F.sum(a, axis=0)

        def step(row, state):
            hidden = self.line(F.expand_dims(row * weight + state[0], axis=0))
            return hidden, [state[0] + row * total]

        each, last = F.contrib.foreach(step, a, [b])
        outputs, variables = F.contrib.while_loop(
            lambda i, x: i < 3,
            lambda i, x: ([F.broadcast_mul(x, i) + b], [i + 1, x + b]),
            [F.zeros((1,)), b],
            max_iterations=3,
        )
        chosen = F.contrib.cond(F.sum(b) > 0, lambda: a + 5, lambda: (a - 5) * 2)
        nested, _ = F.contrib.foreach(
            lambda row, state: F.contrib.foreach(lambda x, s: (x * s, s + x), row, state),
            F.expand_dims(a, axis=2),
            F.slice_axis(b, axis=0, begin=0, end=1),
        )
        return each, last[0], outputs[0], *variables, chosen, nested


if __name__ == "__main__":
    mx.random.seed(1)
    net = Loops()
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    inputs = [mx.nd.random.normal(shape=shape) for shape in ((4, 3), (3,))]
    found = net(*inputs)
    net.export("loops")
    held = {f"x{i}": x for i, x in enumerate(inputs)}
    mx.nd.save("loops.io", {**held, **{f"y{i}": y for i, y in enumerate(found)}})
