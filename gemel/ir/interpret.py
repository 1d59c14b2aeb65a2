"""The meaning of a graph: every node computed by its NumPy reference, slow and obvious.

Tests compare kernels with it, and it runs operations that have no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gemel.dtype import DType, as_dtype, as_number, weak
from gemel.errors import as_own
from gemel.extent import NUMBER
from gemel.ir.graph import Graph
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.ir.philox import random_bits
from gemel.ir.reference import numpy
from gemel.ir.trace import Trace
from gemel.spec import Spec


class NumpyLane:
    """The namespace `xp` for running an elementwise body with NumPy: NumPy, and what it lacks.

    `shape` is the result's shape; `stream` is (seed, call number) for random bodies.
    """

    def __init__(self, shape: tuple[int, ...], stream: tuple[int, int]) -> None:
        self.shape = shape
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy(), name)

    def cast(self, value: Any, dtype: Any) -> Any:
        """The value in another dtype."""
        return numpy().asarray(value).astype(as_dtype(dtype).name)

    astype = cast

    def reinterpret(self, value: Any, dtype: Any) -> Any:
        """The same bits as another dtype of the same size."""
        return numpy().asarray(value).view(as_dtype(dtype).name)

    def index(self, axis: int) -> Any:
        """Each element's position along an axis."""
        np = numpy()
        axis = range(len(self.shape))[axis]
        lined = [n if i == axis else 1 for i, n in enumerate(self.shape)]
        return np.broadcast_to(np.arange(self.shape[axis]).reshape(lined), self.shape)

    def random_bits(self, *stream: Any) -> tuple[Any, Any]:
        """Two random uint32 for each element, of the given stream or the program's."""
        first, second = random_bits(self.shape, *map(int, stream or self.stream))
        return first, second

    def random_stream(self) -> tuple[Any, Any]:
        """The program's seed and the number of the call (int64)."""
        seed, number = (numpy().int64(each) for each in self.stream)
        return seed, number

    def erf(self, x: Any) -> Any:
        """Gauss's error function, by Python's math."""
        return numpy().vectorize(math.erf, otypes=[x.dtype])(x)


#: A function from NumPy arrays and Python numbers to a tuple of NumPy arrays.
Computed = Callable[..., tuple[Any, ...]]


def reference(op: Op, *arrays: Any, **parameters: Any) -> tuple[Any, ...]:
    """The results of an operation, computed by NumPy even if it has a kernel."""
    return resolved(op, tuple(map(spec_of, arrays)), parameters)(*arrays)


def resolved(op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any]) -> Computed:
    """The NumPy function that computes an operation on inputs with these specs."""
    if isinstance(op, Elementwise):
        return elementwise(op, specs, parameters)
    if isinstance(op, Composite):
        return lambda *arrays: tuple(composite(op, arrays, parameters))
    function = op.function

    def run(*arrays: Any) -> tuple[Any, ...]:
        try:
            found = function(*arrays, **parameters)
        except (IndexError, TypeError, ValueError) as error:
            own = as_own(op.__name__, error).with_traceback(error.__traceback__)
        else:
            return found if isinstance(found, tuple) else (found,)
        raise own  # not from the other, whose frames would be kept as long as the failure

    return run


def elementwise(op: Elementwise, specs: tuple[Spec, ...], parameters: dict[str, Any]) -> Computed:
    """The NumPy function of an elementwise operation; it converts and rounds as kernels do."""
    np = numpy()
    parameters = dict(parameters)
    stream = parameters.pop("stream", (0, 0))
    results = op.infer(*specs, **parameters)
    weak = results[0].weak
    wide = [as_number(d) if weak else d.compute for d in op.types(specs, parameters)[0]]
    lane = NumpyLane(tuple(int(n) for n in results[0].shape), stream)
    body, names = _body(op, wide), [d.name for d in wide]
    rounded = [None if weak else result.dtype for result in results]

    def run(*arrays: Any) -> tuple[Any, ...]:
        pairs = zip(arrays, names, strict=True)
        values = [np.asarray(array).astype(name, copy=False) for array, name in pairs]
        with np.errstate(all="ignore"):
            found = body(lane, *values, **parameters)
            several = found if op.outputs > 1 else (found,)
            made = zip(several, rounded, strict=True)
            values = [np.asarray(v) if d is None else _rounded(v, d) for v, d in made]
        return tuple(np.array(np.broadcast_to(value, lane.shape)) for value in values)

    return run


def _body(op: Elementwise, dtypes: list[DType]) -> Callable[..., Any]:
    """The body for elements of these dtypes.

    For complex ones it is NumPy's function of that name, because a body may be right for real
    numbers only.
    """
    function = getattr(numpy(), op.name, None)
    if isinstance(function, numpy().ufunc) and any(dtype.is_complex for dtype in dtypes):
        return lambda lane, *values: function(*values)
    return op.body


def spec_of(value: Any) -> Spec:
    """The spec of an array (also NumPy's) or of a Python number."""
    if isinstance(value, NUMBER):
        return Spec((), weak(value), weak=True)
    return Spec(value.shape, value.dtype)


def interpret(graph: Graph, *arrays: Any, stream: tuple[int, int] = (0, 0)) -> list[Any]:
    """The results of a graph (outputs, then updates) on NumPy arrays and Python numbers.

    `stream` is the seed and the number of the first random call.
    """
    np = numpy()
    values: dict[Any, Any] = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.walk():
        if node.is_constant:
            number = isinstance(node.value, NUMBER)
            values[node.entries[0]] = node.value if number else node.value.asnumpy()
        if node.op is None:
            continue
        parameters = dict(node.params)
        inputs = [values[entry] for entry in node.inputs]
        if isinstance(node.op, Elementwise):
            if node.op.random:
                parameters["stream"] = (stream[0], stream[1] + parameters["call"])
        elif not isinstance(node.op, Composite):
            inputs = [np.asarray(value) for value in inputs]
        if "body" in parameters:  # fused
            found = interpret(parameters["body"], *inputs, stream=stream)
        elif isinstance(node.op, Composite):
            found = composite(node.op, tuple(inputs), parameters, stream)
        else:
            found = list(reference(node.op, *inputs, **parameters))
        for entry, value in zip(node.entries, found, strict=True):
            values[entry] = _as_declared(value, entry.spec)
    return [np.asarray(values[entry]) for entry in graph.results]


def _as_declared(value: Any, spec: Spec) -> Any:
    """A weak result as a Python number, so that NumPy promotes it as such; others as arrays."""
    array = numpy().asarray(value)
    if spec.weak:
        return array.item()
    return array if spec.dtype.twin is spec.dtype else _rounded(array, spec.dtype)


def _rounded(value: Any, dtype: DType) -> Any:
    """A value in a dtype. bfloat16, which NumPy lacks, is a float32 that is rounded to bfloat16."""
    np = numpy()
    found = np.asarray(value).astype(dtype.twin.name)
    if dtype.twin is dtype:
        return found
    bits = found.view("uint32")
    nearest = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(found), found, nearest.view("float32"))


def composite(
    op: Composite,
    arrays: tuple[Any, ...],
    parameters: dict[str, Any],
    stream: tuple[int, int] = (0, 0),
) -> list[Any]:
    """The results of a composite, by interpreting its body."""
    with Trace():
        inputs, outputs = op.expand(tuple(spec_of(a) for a in arrays), parameters)
    return interpret(Graph(inputs, outputs), *arrays, stream=stream)


__all__ = ["interpret", "reference"]
