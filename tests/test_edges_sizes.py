"""Sizes: many, new, empty, and impossible ones."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from programs import end

import gemel
from gemel import _core, autograd, np, npx

PACKAGE = str(Path(gemel.__file__).parent)

# --- no Python for what is known ------------------------------------------------------------


class Counted:
    """How many calls of gemel's Python functions a block of code has made.

    A call of a function that is written in Python counts as at least one.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls += 1


@contextmanager
def python_calls() -> Iterator[Counted]:
    """Counts the calls, without those made by garbage collection."""
    counted = Counted()
    before = sys.getprofile()
    gc.disable()
    sys.setprofile(counted)
    try:
        yield counted
    finally:
        sys.setprofile(before)
        gc.enable()


def calls_for(function: Callable[..., Any], arguments: list[Any]) -> list[int]:
    """For each call of an operation, how many Python functions it called."""
    found = []
    for pair in arguments:
        with python_calls() as counted:
            function(*pair)
        found.append(counted.calls)
    npx.waitall()
    return found


WEIGHT = np.ones((8, 8))
compiled = gemel.compile(lambda a, b: npx.softmax(np.matmul(a, b), axis=1))

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + a,
    "sum": lambda a, b: np.sum(a, axis=1),
    "softmax": lambda a, b: npx.softmax(a, axis=1),
    "matmul": lambda a, b: np.matmul(a, b),
    "concatenate": lambda a, b: np.concatenate([a, a], axis=1),
    "compiled": lambda a, b: compiled(b, WEIGHT),
}


# layout.md: sizes are free in the plans of single operations and of compiled functions.
@pytest.mark.parametrize("name", OPERATIONS)
def test_new_sizes_of_a_known_operation_call_no_python(name: str) -> None:
    """Except where a size needs other tiles, which is rare."""
    one = np.ones((1, 1))
    sizes = [*range(40, 50), *range(130, 190)]
    arguments = [(np.ones((8, n)), np.ones((n, 8))) for n in sizes]
    views = [(np.broadcast_to(one, (8, n)), np.broadcast_to(one, (n, 8))) for n in sizes]
    for kind in (arguments, views):
        calls = calls_for(OPERATIONS[name], kind)
        (seen,) = calls_for(OPERATIONS[name], kind[:1])
        asked = sum(count > seen for count in calls[10:])
        assert asked <= 6, f"{asked} of {len(calls) - 10} new sizes called Python"


@pytest.mark.parametrize("count", [17, 200])
def test_many_shapes_of_a_call_site_call_no_python(count: int) -> None:
    function = gemel.compile(lambda a: a * 2 + 1)
    arguments = [(np.ones((n + 2, 8)),) for n in range(count)]
    calls_for(function, arguments)
    assert sum(calls_for(function.quick, arguments)) == 0
    assert sum(calls_for(function.quick, arguments[::-1])) == 0


def test_many_ranks_and_dtypes_of_a_call_site_call_no_python() -> None:
    """Each has a plan of its own; a call site keeps 32 plans."""
    function = gemel.compile(lambda a: a * 2 + 1)
    dtypes = ("float32", "float64", "int32", "int64")
    arguments = [(np.ones((2,) * rank, dtype=d),) for rank in range(1, 9) for d in dtypes]
    calls_for(function, arguments)
    assert sum(calls_for(function.quick, arguments)) == 0


def test_thousands_of_shapes_of_an_operation_call_no_python() -> None:
    one = np.ones((1, 1))
    arguments = [(np.broadcast_to(one, (2, n + 2)),) for n in range(4300)]
    calls_for(lambda a: np.sum(a, axis=1), arguments)
    again = calls_for(lambda a: np.sum(a, axis=1), arguments)
    assert sum(count > 0 for count in again) <= 10


def test_a_table_that_is_full_forgets_little() -> None:
    """A new kind of call replaces one that is not in use, instead of clearing the whole table."""

    class Operation(_core.OpBase):
        asked = 0

        def _kernel(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

        def _prepare(self, inputs: Any, keywords: Any) -> Any:
            self.asked += 1
            return plan

    x = np.ones((4,))
    plan = plan_of_a_view(x)
    operation = Operation("fake", False, ("number",))
    for number in (*range(3000), *range(500)):  # the table may still hold calls of other tests
        operation(x, number=number)
    before = operation.asked
    for number in range(3000, 9000):
        operation(x, number=number)
        operation(x, number=number % 500)  # these stay in use
    assert operation.asked - before <= 6000 + 10, "calls in use were prepared again"


def plan_of_a_view(x: Any) -> Any:
    """The plan that `_prepare` returns for an operation whose result is a view of its input."""
    from gemel.ops.shape import reshape
    from gemel.runtime.prepare import prepare

    return prepare(reshape, (x,), {"shape": (2, 2)})


# --- nothing, and one ------------------------------------------------------------------------

EMPTY: dict[str, Callable[[Any, Any], Any]] = {
    "imperative": lambda f, x: f(x),
    "compiled": lambda f, x: [gemel.compile(f)(x) for _ in range(3)][-1],
}


# With null pointers memcmp and memcpy are undefined even for no bytes: a sanitizer reports that.
@pytest.mark.parametrize("way", EMPTY)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_arrays_of_no_and_of_one_element(way: str, shape: tuple[int, ...], dtype: str) -> None:
    x = np.ones(shape, dtype=dtype)
    y = EMPTY[way](lambda a: np.where(a > 0, a, a), x)
    assert (y.shape, y.dtype) == (shape, x.dtype)
    assert y.asnumpy().tolist() == y.tolist() == x.tolist()
    total = EMPTY[way](lambda a: a.reshape(-1).sum(), x)
    assert total.shape == () and total.item() == (0 if 0 in shape else 1)
    x[...] = x
    assert np.from_dlpack(x).tolist() == memoryview(x).tolist() == x.tolist()
    assert _core.to_bytes(x) == x.asnumpy().tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_gradients_of_no_and_of_one_element(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    x.attach_grad()
    function = gemel.compile(lambda a: (a * a).sum())
    for _ in range(3):
        with autograd.record():
            y = function(x)
        y.backward()
    assert x.grad.tolist() == (x * 2).tolist()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, 0, 0, 1, 17), (17,)),
        ((4, 0, 0, 2, 2), (0, 2, 7)),
        ((2, 4, 1, 7, 5), (4, 0, 5, 1)),
        ((3, 0, 1, 8, 8), (0, 2, 8, 9)),
        ((3, 2, 4, 5, 0), (2, 4, 0, 6)),
        ((3, 1, 2, 0, 9), (2, 1, 9, 8)),
        ((3, 1, 2, 4, 0), (2, 1, 0, 8)),
    ],
    ids=str,
)
def test_products_of_many_axes_some_of_them_empty(
    a: tuple[int, ...], b: tuple[int, ...], compiled: bool
) -> None:
    first, second = np.ones(a), np.ones(b)
    first.attach_grad()
    second.attach_grad()

    def shifted(a: Any, b: Any) -> Any:
        return np.matmul(a, b) + 1

    with autograd.record():
        y = (gemel.compile(shifted) if compiled else shifted)(first, second)
    y.backward()
    assert float(y.sum()) == y.size
    assert first.grad.shape == a
    assert second.grad.shape == b
    assert not first.grad.any()
    assert not second.grad.any()


def test_compiled_calls_close_over_and_return_0d_arrays() -> None:
    factor = np.array(3.0)
    function = gemel.compile(
        lambda a, b: (a * factor, b, npx.cond(b > 0, lambda v: v, lambda v: -v, [b]))
    )
    for value in (2.0, -2.0, 2.0):
        found = function(np.array(1.0), np.array(value))
        assert [array.item() for array in found] == [3.0, value, 2.0]


# --- what no machine has ---------------------------------------------------------------------

TOO_LARGE = [(2**33, 2**33), (2**62, 8), (2**32, 2**32), (2**21, 2**21, 2**22), (2**61, 16)]


@pytest.mark.parametrize("shape", TOO_LARGE, ids=str)
@pytest.mark.parametrize("way", ["view", "size", "sum", "add", "compiled"])
def test_views_of_more_elements_than_64_bits_count_are_refused(
    shape: tuple[int, ...], way: str
) -> None:
    one = np.ones((1, 1))
    ways: dict[str, Callable[[], Any]] = {
        "view": lambda: np.broadcast_to(one, shape).nbytes,
        "size": lambda: np.broadcast_to(one, shape).size,
        "sum": lambda: np.sum(np.broadcast_to(one, shape)),
        "add": lambda: np.broadcast_to(one, shape) + 1,
        "compiled": lambda: gemel.compile(lambda v: np.broadcast_to(v, shape).sum())(one),
    }
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        ways[way]()


@pytest.mark.parametrize("shape", [(2**61,), (2**31, 2**31), (2**40, 2**20)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
def test_results_of_more_bytes_than_there_are_fail(shape: tuple[int, ...], dtype: str) -> None:
    """The call raises if the number of bytes overflows; otherwise the result fails."""
    ended = end(
        f"""
        from gemel import np
        one = np.ones({(1,) * len(shape)}, dtype={dtype!r})
        try:
            y = np.logical_not(np.broadcast_to(one, {shape}))
            y = np.broadcast_to(one, {shape}).astype("float64") if {dtype!r} != "bool" else y
            y.wait_to_read()
        except (ValueError, MemoryError, OverflowError) as error:
            tell(raised=type(error).__name__)
        """,
        GEMEL_UNSEEN_ERRORS="warn",
    )
    assert ended.code == 0 and "raised" in ended.told, ended


@pytest.mark.parametrize("shape", [(2**58,), (2**60 - 1,), (2**30, 2**29)], ids=str)
@pytest.mark.parametrize("make", [np.zeros, lambda shape: np.random.normal(size=shape)])
def test_new_arrays_of_more_elements_than_there_is_memory_for_fail(make: Any, shape: Any) -> None:
    with pytest.raises(MemoryError):
        make(shape).wait_to_read()


@pytest.mark.parametrize("device", [-1, 24, 63, 64, 1000, 2**31 - 1, -(2**31)])
def test_arrays_on_devices_that_are_not_there_are_refused(device: int) -> None:
    ways: list[Callable[[], Any]] = [
        lambda: _core.empty((2,), 0, device),
        lambda: _core.from_buffer(b"\0" * 8, np.ones(1)._code, (2,), device),
        lambda: _core.copy_to_device(np.ones(2), device),
    ]
    for way in ways:
        with pytest.raises((ValueError, gemel.errors.DeviceError)):
            way()


@pytest.mark.parametrize("code", [-1, 200, 255, 256, 1000])
def test_arrays_of_dtypes_that_are_not_there_are_refused(code: int) -> None:
    with pytest.raises(ValueError, match="dtype"):
        _core.empty((2,), code)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("ones", lambda x: np.ones((1,) * 33)),
        ("reshape", lambda x: x.reshape((1,) * 33)),
        ("stack", lambda x: np.stack([x, x])),
        ("tensordot", lambda x: np.tensordot(x, x, 0)),
        ("one_hot", lambda x: npx.one_hot(x, 3)),
        ("<lambda>", gemel.compile(lambda x: x[None] + 1)),
    ],
)
def test_results_of_more_dimensions_than_arrays_have_are_refused(
    name: str, run: Callable[[Any], Any]
) -> None:
    with pytest.raises(gemel.errors.ShapeError, match=rf"{name}: .* has .*at most 32"):
        run(np.ones((1,) * 32))


def test_compiled_functions_may_have_more_dimensions_inside() -> None:
    inside = gemel.compile(lambda x: np.tanh(x[None] * 2).sum(axis=3))
    assert inside(np.ones((1,) * 32)).shape == (1,) * 32


@pytest.mark.parametrize("deep", [33, 2000, None], ids=str)
def test_lists_nested_deeper_than_arrays_are_refused(deep: int | None) -> None:
    nested: Any = [1]
    if deep is None:
        nested.append(nested)
    for _ in range(deep or 0):
        nested = [nested]
    x = np.ones((3, 3))
    ways: list[Callable[[], Any]] = [
        lambda: np.array(nested),
        lambda: x + nested,
        lambda: np.sum(nested),
        lambda: x[nested],
        lambda: x.__setitem__(0, nested),
    ]
    for way in ways:
        with pytest.raises(gemel.errors.ShapeError, match="at most 32 dimensions"):
            way()


# --- no elements, but other extents that no loop would get through --------------------------

LONG = 2**46
WITHOUT_ELEMENTS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "add": (lambda x: x[:, :, ::2] + x[:, :, 1::2], (LONG, 0, 6)),
    "copy": (lambda x: x.transpose(2, 1, 0).copy(), (12, 0, LONG)),
    "sum of nothing": (lambda x: x.sum(axis=(0, 1)), (12,)),
    "nothing of sums": (lambda x: (x * 2).sum(axis=2), (LONG, 0)),
    "softmax": (npx.softmax, (LONG, 0, 12)),
    "cumsum": (lambda x: np.cumsum(x, axis=0), (LONG, 0, 12)),
    "sort": (np.sort, (LONG, 0, 12)),
    "product": (lambda x: x @ np.ones((12, 3)), (LONG, 0, 3)),
    "random": (lambda x: np.random.uniform(size=x.shape), (LONG, 0, 12)),
    "concatenate": (lambda x: np.concatenate([x, x]), (2 * LONG, 0, 12)),
    "one_hot": (lambda x: npx.one_hot(x.astype("int32"), 5), (LONG, 0, 12, 5)),
}


@pytest.mark.parametrize("name", WITHOUT_ELEMENTS)
def test_nothing_is_computed_for_no_elements(name: str) -> None:
    function, shape = WITHOUT_ELEMENTS[name]
    x = np.zeros((LONG, 0, 12))
    for call in (function, gemel.compile(function)):
        result = call(x)
        assert result.shape == shape
        assert not result.asnumpy().any()
