"""Shared by the tests of the core: an array class, fake operations and small plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import core_kernels as kernels
import numpy
from core_kernels import BOOL, FLOAT32, FLOAT64, INT32, INT64

from gemel import _core
from gemel.runtime.image import (
    Branching,
    Image,
    Input,
    Kept,
    Loop,
    Output,
    Parallel,
    Step,
    Temporary,
)

CODES = {
    numpy.dtype("bool"): BOOL,
    numpy.dtype("int32"): INT32,
    numpy.dtype("int64"): INT64,
    numpy.dtype("float32"): FLOAT32,
    numpy.dtype("float64"): FLOAT64,
}


class CoreArray(_core.Array):
    """An array whose Python methods only report that they were called."""

    __slots__ = ()

    def _getitem(self, key: Any) -> Any:
        return "python", key

    def _setitem(self, key: Any, value: Any) -> None:
        Fake.copy.into(self[key], value)

    def _inplace(self, name: str, other: Any) -> Any:
        return "inplace", name


class Fake(_core.OpBase):
    """An elementwise operation that uses the kernels of these tests and counts the requests."""

    copy: Any
    elementwise: bool

    def __init__(self, name: str, expression: str | None = None, microseconds: float = 1.0) -> None:
        super().__init__(name, True, ("factor",))
        self.expression = expression or name
        self.nanoseconds = microseconds
        self.misses: list[Any] = []
        self.recorded: list[Any] = []
        #: What `_record` returns: how calls like the recorded one are put on the tape.
        self.known: Any = None

    def _kernel(
        self, rank: int, operands: Any, parameters: Any, device: int, out: int = -1, stride: int = 1
    ) -> Any:
        self.misses.append((rank, operands, parameters, out, stride))
        codes = tuple(code for code, _ in operands)
        kinds = [FLOAT32 if code == -3 else code for code in codes if code != -1 and code != -2]
        result = max(kinds, default=INT64) if out < 0 else out
        if self.expression == "less" and out < 0:
            result = BOOL
        code = kernels.elementwise(self.expression, rank, codes, result)
        return _core.Elementwise(_core.load_object(code), (result,), self.nanoseconds)

    def _prepare(self, inputs: Any, parameters: Any) -> Any:
        return None  # neither a plan nor a Python step: the call goes to _call

    def _call(self, inputs: Any, keywords: Any) -> Any:
        return "call", inputs, keywords

    def _record(self, inputs: Any, keywords: Any, outputs: Any) -> Any:
        self.recorded.append((inputs, keywords, outputs))
        return self.known


OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "lt": "less"}


def array(value: Any, dtype: str = "float32") -> Any:
    source = numpy.ascontiguousarray(value, dtype)
    shape = numpy.shape(value)
    return _core.from_buffer(source, CODES[source.dtype], shape, 0)


def check(found: Any, expected: Any) -> None:
    numpy.testing.assert_array_equal(numpy.asarray(found), expected)
    assert numpy.asarray(found).dtype == numpy.asarray(expected).dtype


def installed() -> Iterator[dict[str, Fake]]:
    """The core with this module's class and operations; restores the previous ones afterwards."""
    _core.clear_tables()
    previous_class = _core.set_array_class(CoreArray)
    fakes = {name: Fake(name, kernel) for name, kernel in OPERATORS.items()}
    fakes["copy"] = Fake.copy = Fake("copy")
    previous = {name: _core.set_operator(name, fake) for name, fake in fakes.items()}
    yield fakes
    for name, operation in previous.items():
        _core.set_operator(name, operation)
    _core.set_array_class(previous_class)
    _core.clear_tables()


def vector(name: str, *operands: int, out: int = FLOAT32) -> Any:
    return _core.load_object(kernels.elementwise(name, 1, operands, out))


def step(kernel: Any, buffers: Any, integers: Any, extent: int, chunk: int, **options: Any) -> Any:
    """A step that holds a loaded kernel; `plan` replaces the kernel by its number."""
    return Step(kernel, buffers, integers, extent, chunk, **options)


def loop_step(kernel: Any, buffers: Any, size: int, **options: Any) -> Any:
    integers = [size] + [1] * len(buffers) + [0] * options.pop("extra", 0)
    return step(kernel, buffers, integers, size, options.pop("chunk", size), **options)


def plan(name: str, inputs: Any, outputs: Any, items: Any, **lists: Any) -> Any:
    """A hand-made plan. `microseconds` is its first step's cost; `lists` are set on the image."""
    return image(name, inputs, outputs, items, **lists).plan()


def image(
    name: str, inputs: Any, outputs: Any, items: Any, microseconds: float = 1.0, **lists: Any
) -> Image:
    made = Image(name)
    made.inputs = [Input(*given) for given in inputs]
    made.outputs = [Output(*given) for given in outputs]
    cost = [int(1000 * microseconds)]

    def numbered(item: Any) -> Any:
        if isinstance(item, Branching):
            sides = ([numbered(one) for one in side] for side in (item.then, item.otherwise))
            return Branching(item.condition, *sides)
        if isinstance(item, Parallel):
            return Parallel([[numbered(one) for one in part] for part in item.parts])
        if isinstance(item, Loop):
            items, after = ([numbered(one) for one in each] for each in (item.items, item.after))
            return item._replace(items=items, after=after)
        if isinstance(item, Kept):
            return item._replace(items=[numbered(one) for one in item.items])
        number = made.kernel(str(item.kernel.address), item.kernel, bytes)
        return item._replace(kernel=number, cost=cost.pop() if cost else item.cost)

    made.items = [numbered(item) for item in items]
    for field, value in lists.items():
        assert hasattr(made, field), field
        setattr(made, field, value)
    return made


def multiply_add(size: int, chunk: int | None = None) -> Any:
    """x * y + x * y through a temporary, and a view of the result."""
    kernel_a, kernel_b = vector("multiply", 6, 6), vector("add", 6, 6)
    tile = chunk or size
    return plan(
        "multiply_add",
        [(FLOAT32, (size,)), (FLOAT32, (size,), (1,))],
        [(FLOAT32, (size,)), (FLOAT32, (size // 2,), (2,), 1, 1, 0)],
        [
            loop_step(kernel_a, [(0, 0, 0), (0, 1, 0), (2, 0, 64)], size, chunk=tile),
            loop_step(kernel_b, [(2, 0, 64), (2, 0, 64), (1, 0, 0)], size, chunk=tile),
        ],
        temporaries=[Temporary(64 + 4 * size, 1, 2)],
        microseconds=2.0,
    )


def checked_copy(microseconds: float = 1.0, size: int = 2) -> Any:
    kernel = _core.load_object(kernels.refuses_negative())
    failure = ("IndexError", "negative element")
    copying = step(kernel, [(0, 0, 0), (1, 0, 0)], [size], size, 1, failure=failure)
    spec = (FLOAT32, (size,))
    return plan("checked", [spec], [spec], [copying], microseconds=microseconds)
