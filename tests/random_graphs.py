"""Random programs with every kind of operation that the graph compiler treats in its own way."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from gemel import np, npx
from gemel.ir.graph import Entry, Graph, placeholder
from gemel.ir.trace import Trace
from gemel.spec import Spec

#: An entry with more elements is cut and passed through tanh, so that values stay finite.
LARGEST = 400


class Writer:
    """Writes one random program: the entries so far, and the inputs they depend on."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.dtype = self.random.choice(("float64", "float64", "float32"))
        self.inputs: list[Entry] = []
        self.values: list[Entry] = []
        for _ in range(self.random.randint(1, 3)):
            self.input(tuple(self.random.choice((1, 2, 3, 4, 5)) for _ in range(self.rank())))

    def rank(self) -> int:
        return self.random.choice((0, 1, 2, 2, 3, 4))

    def input(self, shape: tuple[int, ...]) -> Entry:
        entry = placeholder(Spec(shape, self.dtype), f"x{len(self.inputs)}")
        self.inputs.append(entry)
        self.values.append(entry)
        return entry

    def pick(self, low: int = 0) -> Entry:
        """An entry of at least `low` dimensions; recent ones are more likely."""
        fit = [v for v in self.values if v.ndim >= low]
        if not fit:
            return self.input(tuple(self.random.choice((2, 3, 4)) for _ in range(low)))
        return self.random.choice(fit[-4:] if self.random.random() < 0.7 else fit)

    def partner(self, x: Entry) -> Any:
        """An entry that broadcasts with x."""
        shape = tuple(n if self.random.random() < 0.7 else 1 for n in x.shape)
        fit = [v for v in self.values if v.shape in (x.shape, shape, x.shape[1:])]
        if fit and self.random.random() < 0.8:
            return self.random.choice(fit)
        return self.input(shape[self.random.choice((0, 0, len(shape) // 2)) :])

    def axis(self, x: Entry) -> int:
        return self.random.randrange(-x.ndim, x.ndim)

    # --- steps ------------------------------------------------------------------------------

    def unary(self) -> list[Entry]:
        name = self.random.choice(
            ("tanh", "abs", "exp", "sqrt", "square", "sign", "sigmoid", "relu")
        )
        x = self.pick()
        if name == "exp":
            return [np.exp(np.tanh(x))]
        if name == "sqrt":
            return [np.sqrt(np.abs(x) + 1)]
        if name in ("sigmoid", "relu"):
            return [getattr(npx, name)(x)]
        return [getattr(np, name)(x)]

    def number(self) -> list[Entry]:
        x = self.pick()
        forms: tuple[Callable[[Any], Any], ...] = (
            lambda x: x * 1,
            lambda x: x + 2.5,
            lambda x: 3 - x,
            lambda x: (1 + x) / 4,
            lambda x: x * (2 * 3.0 - 5),
            lambda x: -x,
            lambda x: x + np.full(x.shape, 0.25, dtype=x.dtype),
        )
        return [self.random.choice(forms)(x)]

    def binary(self) -> list[Entry]:
        a = self.pick()
        b = self.partner(a)
        name = self.random.choice(("add", "subtract", "multiply", "maximum", "minimum"))
        return [getattr(np, name)(a, b) if self.random.random() < 0.5 else getattr(np, name)(b, a)]

    def choose(self) -> list[Entry]:
        a = self.pick()
        return [np.where(a > 0.1234567, a, self.partner(a) * 0.5)]

    def cast(self) -> list[Entry]:
        whole = (self.pick() > 0.0312345).astype(self.random.choice(("int32", "int64", "bool")))
        return [whole.astype(self.dtype)]

    def reduce(self) -> list[Entry]:
        x = self.pick(1)
        axes: Any = self.random.choice((None, self.axis(x), tuple(range(x.ndim))[:2]))
        keep = self.random.random() < 0.5
        name = self.random.choice(("sum", "mean", "max", "min", "var"))
        return [getattr(np, name)(x, axis=axes, keepdims=keep)]

    def normalize(self) -> list[Entry]:
        x = self.pick(1)
        axis = self.axis(x)
        form = self.random.choice(("softmax", "log_softmax", "centre"))
        if form == "centre":
            return [x - x.mean(axis=axis, keepdims=True)]
        return [getattr(npx, form)(x, axis=axis)]

    def matmul(self) -> list[Entry]:
        x = self.pick(1)
        form = self.random.randrange(4)
        if form == 0 and x.ndim >= 2:
            return [np.matmul(x, x.swapaxes(-1, -2))]
        if form == 1:
            return [np.matmul(x, self.input((x.shape[-1],)))]
        y = np.matmul(x, self.input((x.shape[-1], self.random.choice((1, 3, 6)))))
        return [npx.relu(y + self.input(y.shape[-1:]))] if form == 2 else [y]

    def reshape(self) -> list[Entry]:
        x = self.pick()
        form = self.random.randrange(5)
        if form == 0 or x.ndim == 0:
            return [x.reshape(-1)]
        if form == 1:
            return [x.reshape(x.shape[0], -1)]
        if form == 2:
            return [x.expand_dims(self.random.randrange(x.ndim + 1))]
        order = list(range(x.ndim))
        self.random.shuffle(order)
        y = x.transpose(order)
        return [y] if form == 3 else [y.reshape(-1)]

    def broadcast(self) -> list[Entry]:
        x = self.pick()
        lead = self.random.choice(((), (2,), (3,)))
        shape = tuple(3 if n == 1 and self.random.random() < 0.5 else n for n in x.shape)
        return [np.broadcast_to(x, (*lead, *shape))]

    def join(self) -> list[Entry]:
        x = self.pick(1)
        same = [v for v in self.values if v.shape == x.shape]
        parts = [x, self.random.choice(same), *([x] if self.random.random() < 0.3 else [])]
        if self.random.random() < 0.3:
            return [np.stack(parts, axis=0)]
        return [np.concatenate(parts, axis=self.axis(x))]

    def cut(self) -> list[Entry]:
        x = self.pick(1)
        axis = self.axis(x)
        extent = x.shape[axis]
        if self.random.random() < 0.3:
            return [x[self.random.randrange(x.shape[0])]]
        if extent < 2 or self.random.random() < 0.3:
            return [x[:: self.random.choice((1, 2, -1))]]
        found = np.split(x, [self.random.randrange(1, extent)], axis=axis)
        self.random.shuffle(found)
        return list(found) if self.random.random() < 0.5 else found[:1]

    def cond(self) -> list[Entry]:
        x = self.pick()
        y = self.partner(x)
        return [
            npx.cond(
                x.sum() > 0.01234567,
                lambda x, y: (np.tanh(x) + y) * 2,
                lambda x, y: x - y.sum() if y.size > 1 else x - y,
                (x, y),
            )
        ]

    def uniform(self) -> list[Entry]:
        x = self.pick()
        return [x + np.random.uniform(0.0, 1.0, x.shape).astype(self.dtype)]

    def step(self) -> None:
        steps = (
            *(self.unary, self.number, self.binary) * 3,
            *(self.choose, self.cast, self.reduce, self.normalize, self.matmul) * 2,
            *(self.reshape, self.broadcast, self.join, self.cut) * 2,
            self.cond,
            self.uniform,
        )
        for entry in self.random.choice(steps)():
            self.values.append(np.tanh(entry.reshape(-1)[:30]) if entry.size > LARGEST else entry)

    def graph(self, length: int) -> Graph:
        with Trace():
            for _ in range(length):
                self.step()
            outputs = self.random.sample(
                self.values, min(len(self.values), self.random.randint(1, 3))
            )
            outputs.append(self.values[-1])
            updates = []
            for index, entry in enumerate(self.inputs):
                fit = [v for v in self.values if v.spec == entry.spec and v is not entry]
                if fit and self.random.random() < 0.4:
                    updates.append((index, self.random.choice(fit)))
        return Graph(self.inputs, outputs, updates, f"random{self.random.randrange(100)}")


def random_graph(seed: int) -> Graph:
    """A program of 3 to 14 steps; the same for the same seed."""
    writer = Writer(seed)
    return writer.graph(writer.random.randint(3, 14))
