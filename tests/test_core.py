"""The C++ core from Python: arrays, views, dispatch, plans, failures, threads."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import core_kernels as kernels
import numpy
import pytest
from core_kernels import BOOL, FLOAT32, FLOAT64, INT32, INT64

from gemel import _core

CODES = {
    numpy.dtype("bool"): BOOL,
    numpy.dtype("int32"): INT32,
    numpy.dtype("int64"): INT64,
    numpy.dtype("float32"): FLOAT32,
    numpy.dtype("float64"): FLOAT64,
}


class CoreArray(_core.Array):
    """An array whose Python side only tells that it was asked."""

    __slots__ = ()

    def _getitem(self, key: Any) -> Any:
        return "python", key

    def _setitem(self, key: Any, value: Any) -> None:
        Fake.copy.into(self[key], value)

    def _inplace(self, name: str, other: Any) -> Any:
        return "inplace", name


class Fake(_core.OpBase):
    """An elementwise operation over the kernels of these tests; counts what it is asked for."""

    copy: Any
    elementwise: bool

    def __init__(self, name: str, expression: str | None = None, microseconds: float = 1.0) -> None:
        super().__init__(name, True, ("factor",))
        self.expression = expression or name
        self.nanoseconds = microseconds
        self.misses: list[Any] = []
        self.recorded: list[Any] = []

    def _kernel(
        self, rank: int, operands: Any, parameters: Any, out: int = -1, stride: int = 1
    ) -> Any:
        self.misses.append((rank, operands, parameters, out, stride))
        codes = tuple(code if code < 0 else code for code, _ in operands)
        kinds = [FLOAT32 if code == -3 else code for code in codes if code != -1 and code != -2]
        result = max(kinds, default=INT64) if out < 0 else out
        if self.expression == "less" and out < 0:
            result = BOOL
        code = kernels.elementwise(self.expression, rank, codes, result)
        return _core.Elementwise(_core.load_object(code), (result,), self.nanoseconds)

    def _call(self, inputs: Any, keywords: Any) -> Any:
        return "call", inputs, keywords

    def _record(self, inputs: Any, keywords: Any, outputs: Any) -> None:
        self.recorded.append((inputs, keywords, outputs))


OPERATORS = {"add": "add", "subtract": "subtract", "multiply": "multiply", "lt": "less"}


@pytest.fixture(autouse=True)
def core() -> Iterator[dict[str, Fake]]:
    """The core with this module's class and operations; what was there comes back afterwards."""
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


def array(value: Any, dtype: str = "float32") -> Any:
    source = numpy.ascontiguousarray(value, dtype)
    shape = numpy.shape(value)
    return _core.from_buffer(source, CODES[source.dtype], shape, 0)


def check(found: Any, expected: Any) -> None:
    numpy.testing.assert_array_equal(numpy.asarray(found), expected)
    assert numpy.asarray(found).dtype == numpy.asarray(expected).dtype


# --- arrays ------------------------------------------------------------------------------------


def test_attributes() -> None:
    x = array(numpy.zeros((2, 3, 4)))
    assert type(x) is CoreArray
    assert (x.shape, x.strides, x.ndim, x.size) == ((2, 3, 4), (12, 4, 1), 3, 24)
    assert (x.itemsize, x.nbytes, x.offset, x.version) == (4, 96, 0, 0)
    assert x._is_contiguous and x._code == FLOAT32
    assert len(x) == 2
    assert hash(x) == hash(x) and x._tape is None and x._grad is None


def test_many_dimensions_live_outside_the_object() -> None:
    shape = (1, 2, 1, 2, 1, 2, 1, 2, 3)
    value = numpy.arange(48).reshape(shape)
    check(array(value, "int64"), value)
    with pytest.raises(ValueError, match="32"):
        _core.empty((1,) * 33, FLOAT32, 0)


def test_is_not_made_by_calling_the_class() -> None:
    with pytest.raises(TypeError, match="empty"):
        CoreArray()


def test_bad_shapes() -> None:
    with pytest.raises(ValueError):
        _core.empty((-1,), FLOAT32, 0)
    with pytest.raises(MemoryError):
        _core.empty((1 << 40, 1 << 40), FLOAT32, 0)
    with pytest.raises(ValueError, match="bytes"):
        _core.from_buffer(b"1234", FLOAT32, (2,), 0)


@pytest.mark.parametrize(
    "key",
    [
        0, -1, slice(None), slice(None, None, -1), slice(1, None), slice(5, 1), None, ...,
        (0, 1), (slice(None), 2), (..., 0), (0, ..., 1), (None, 0, None), (slice(None, None, 2), ...),
        (0, 1, 2), (slice(1, 0), 0), (slice(-1, None, -2), None, slice(0, 100), ...),
    ],
)  # fmt: skip
def test_basic_indexing_is_numpy_s(key: Any) -> None:
    value = numpy.arange(60, dtype="float32").reshape(3, 4, 5)
    check(array(value)[key], value[key])


def test_indexing_errors_name_axis_and_size() -> None:
    x = array(numpy.zeros((3, 4)))
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 1 with size 4"):
        x[0, 7]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="ellipsis"):
        x[..., ...]
    with pytest.raises(IndexError):
        x[1 << 70]
    with pytest.raises(TypeError, match="0-d"):
        iter(x[0, 0])


def test_other_keys_and_recorded_ones_go_to_python() -> None:
    x = array([1.0, 2.0])
    assert x[[0]] == ("python", [0])
    x._tape = object()
    old = _core.set_recording(True)
    try:
        assert x[0] == ("python", 0)
        assert list(x) == [("python", 0), ("python", 1)]
    finally:
        _core.set_recording(old)
    assert x[0].item() == 1.0


def test_views_share_and_keep_the_storage() -> None:
    x = array([[1.0, 2.0], [3.0, 4.0]])
    row = x[1]
    row += 10
    assert x.tolist() == [[1.0, 2.0], [13.0, 14.0]]
    assert x.version == 1
    del x
    gc.collect()
    assert row.tolist() == [13.0, 14.0]


def test_strided_view() -> None:
    x = array(numpy.arange(6.0))
    assert x._as_strided((2, 2), (2, 1), 1).tolist() == [[1, 2], [3, 4]]


def test_conversions() -> None:
    assert array(3.5).item() == 3.5 and float(array([3.5])) == 3.5 and int(array(3.5)) == 3
    assert [10, 11, 12][array(1, "int64")] == 11
    assert bool(array(1.0)) and not bool(array([0.0]))
    assert array([True, False], "bool").tolist() == [True, False]
    with pytest.raises(ValueError, match="ambiguous"):
        bool(array([1.0, 2.0]))
    with pytest.raises(ValueError):
        array([1.0, 2.0]).item()
    with pytest.raises(TypeError):
        [1][array(0.0)]
    half = numpy.array([0, -1.5, numpy.inf, 6e-8, 65504], "float16")
    assert _core.from_buffer(half, 5, (5,), 0).tolist() == half.tolist()


def test_buffers_write_through_and_know_strides() -> None:
    x = array(numpy.arange(6.0).reshape(2, 3))
    outside = numpy.asarray(x)
    outside[0, 0] = 42
    assert x.tolist()[0][0] == 42
    check(x[:, ::2], numpy.asarray(x)[:, ::2])
    assert _core.to_bytes(x[:, 1]) == numpy.asarray(x)[:, 1].tobytes()
    assert memoryview(x).format == "f"
    with pytest.raises(BufferError):
        memoryview(x[:, 1]).cast("B")[0]  # not contiguous
        raise BufferError


def test_operations_settle_before_they_return_while_a_buffer_is_held(core: Any) -> None:
    core["add"].nanoseconds = 1e9  # too dear to be run inline
    x = array(numpy.zeros(10))
    outside = numpy.asarray(x)
    for _ in range(20):
        x += 1
    assert outside.tolist() == [20.0] * 10


def test_weak_references_and_cycles() -> None:
    x = array([1.0])
    x._tape = [x]
    watch = weakref.ref(x)
    del x
    gc.collect()
    assert watch() is None


def test_subclasses_of_the_class_of_arrays_are_freed() -> None:
    class Derived(CoreArray):
        pass

    with pytest.raises(TypeError):
        _core.set_array_class(Derived)  # has a __dict__
    with pytest.raises(TypeError):
        _core.set_array_class(int)


# --- elementwise -------------------------------------------------------------------------------


def test_operators_use_the_table(core: Any) -> None:
    x = array([[1.0, 2.0]])
    before = _core.counters()
    for i in range(10):
        check(x + i, numpy.array([[1 + i, 2 + i]], "float32"))
    after = _core.counters()
    assert core["add"].misses == [(1, ((FLOAT32, 1), (-2, 0)), {}, -1, 1)]
    assert after["table_hits"] - before["table_hits"] == 9
    assert after["table_misses"] - before["table_misses"] == 1


def test_scalars_of_another_kind_are_another_kernel(core: Any) -> None:
    x = array([1.0, 2.0])
    check(x + 1, numpy.array([2, 3], "float32"))
    check(x + 0.5, numpy.array([1.5, 2.5], "float32"))
    check(True + x, numpy.array([2, 3], "float32"))
    assert [miss[1] for miss in core["add"].misses] == [
        ((FLOAT32, 1), (-2, 0)), ((FLOAT32, 1), (-3, 0)), ((-1, 0), (FLOAT32, 1)),
    ]  # fmt: skip


SHAPES = [(), (1,), (4,), (3, 1), (3, 4), (1, 4), (2, 3, 4), (2, 1, 1), (2, 3, 1), (0,), (2, 0, 4)]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(SHAPES, SHAPES)))
def test_broadcasting_is_numpy_s(core: Any, a: Any, b: Any) -> None:
    x = numpy.arange(1, 1 + numpy.prod(a, dtype=int), dtype="float32").reshape(a)
    y = numpy.arange(5, 5 + numpy.prod(b, dtype=int), dtype="float32").reshape(b)
    try:
        expected = x - y
    except ValueError:
        assert (array(x) - array(y))[0] == "call"
        return
    check(array(x) - array(y), numpy.asarray(expected))


def test_strided_operands_and_coalescing(core: Any) -> None:
    value = numpy.arange(120.0, dtype="float32").reshape(2, 3, 4, 5)
    x = array(value)
    keys: list[Any] = [
        (slice(None), slice(None, None, -1)), (slice(None), slice(None), 1),
        (..., slice(None, None, 2)), (slice(None), 0), (None, 1),
    ]  # fmt: skip
    for key in keys:
        check(x[key] + x[key], value[key] + value[key])
        check(x[key] * 3, value[key] * 3)
    transposed = x._as_strided((5, 4, 3, 2), (1, 5, 20, 60), 0)
    check(transposed + transposed, value.T + value.T)
    ranks = {miss[0] for miss in core["multiply"].misses}
    assert ranks == {1, 2, 3} or ranks == {1, 2}


def test_results_of_another_dtype(core: Any) -> None:
    check(array([1.0, 5.0]) < 3, numpy.array([True, False]))
    check(array([1, 2], "int32") + array([1, 2], "int64"), numpy.array([2, 4], "int64"))
    check(array([1, 2], "int32") + array([0.5, 1]), numpy.array([1.5, 3], "float32"))


def test_other_operands_go_to_python(core: Any) -> None:
    x = array([1.0])
    assert (x + [1])[0] == "call"
    assert (x + numpy.float64(2))[0] == "call"
    assert (x + (1 << 70))[0] == "call"
    assert core["add"](1, 2)[0] == "call"
    assert core["add"](x, 1, factor=array([1.0]))[0] == "call"
    assert core["add"](x, 1, factor={})[0] == "call"
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x @ x  # no operation is set for it here, or it refuses
        raise TypeError

    class Symbol:
        def __radd__(self, other: Any) -> str:
            return "symbol"

    assert x + Symbol() == "symbol"
    assert (x < "text" if False else True)


def test_equal_parameters_of_different_types_are_different(core: Any) -> None:
    x = array([1.0])
    values = [2, 2.0, True, 1, 1.0, "a", None, (1, 2), [1, 2], (1, 2.0), ((1,), 2), 0.0, -0.0]
    for value in values:
        for _ in range(3):
            core["copy"](x, factor=value)
    assert len(core["copy"].misses) == len(values)
    assert core["copy"].misses[0][2] == {"factor": 2}


def test_recording_calls_the_hook_for_tracked_inputs_only(core: Any) -> None:
    x, y = array([1.0]), array([2.0])
    y._tape = "tape"
    old = _core.set_recording(True)
    try:
        x + x
        assert core["add"].recorded == []
        z = x + y
    finally:
        assert _core.set_recording(old)
    ((inputs, parameters, outputs),) = core["add"].recorded
    assert inputs[0] is x and inputs[1] is y and parameters == {} and outputs[0] is z


def test_recording_is_per_thread() -> None:
    old = _core.set_recording(True)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_core.recording()))
    thread.start()
    thread.join()
    assert _core.recording() and found == [False]
    _core.set_recording(old)


def test_into_casts_and_broadcasts(core: Any) -> None:
    target = array(numpy.zeros((2, 3)), "int32")
    assert core["add"].into(target, array([1.5, 2.5, 3.0]), 1) is target
    assert target.tolist() == [[2, 3, 4], [2, 3, 4]]
    assert target.version == 1
    core["copy"].into(target[:, 1], 7)
    assert target.tolist() == [[2, 7, 4], [2, 7, 4]]
    with pytest.raises(Exception, match="shape"):
        core["copy"].into(target, array(numpy.zeros((3, 2, 3))))
    with pytest.raises(TypeError):
        core["copy"].into(target, "text")


@pytest.mark.parametrize(
    ("to", "source"),
    [
        (slice(None), slice(None)),
        (slice(1, None), slice(None, -1)),
        (slice(None, -1), slice(1, None)),
        (slice(None), slice(None, None, -1)),
        (slice(None, None, 2), slice(1, None, 2)),
    ],
)
def test_into_an_overlapping_target(core: Any, to: slice, source: slice) -> None:
    expected = numpy.arange(10.0, dtype="float32")
    x = array(expected)
    expected[to] = expected[source].copy() + expected[to]
    core["add"].into(x[to], x[source], x[to])
    check(x, expected)


def test_in_place_operators(core: Any) -> None:
    x = array([1.0, 2.0])
    same = x
    x += 1
    x *= array([2.0])
    assert x is same and x.tolist() == [4.0, 6.0] and x.version == 2
    n = array([1, 2], "int64")
    n += 1
    assert n.tolist() == [2, 3]
    n += 0.5
    assert n == ("inplace", "add") or n[0] == "inplace"


def test_large_calls_are_tiled_by_shape(core: Any) -> None:
    value = numpy.random.default_rng(1).random((700, 701)).astype("float32")
    x = array(value)
    before = _core.counters()["tiles"]
    check(x + x, value + value)
    check(x[:, ::-1] + 1, value[:, ::-1] + numpy.float32(1))
    assert _core.counters()["tiles"] > before


# --- plans -------------------------------------------------------------------------------------


def vector(name: str, *operands: int, out: int = FLOAT32) -> Any:
    return _core.load_object(kernels.elementwise(name, 1, operands, out))


def loop_step(kernel: Any, buffers: Any, size: int, **options: Any) -> Any:
    integers = [size] + [1] * len(buffers) + [0] * options.pop("extra", 0)
    return _core.Step(kernel, buffers, integers, size, options.pop("chunk", size), **options)


def multiply_add(size: int, chunk: int | None = None) -> Any:
    """x * y + x * y through the workspace, and a view of the result."""
    kernel_a, kernel_b = vector("multiply", 6, 6), vector("add", 6, 6)
    tile = chunk or size
    steps = [
        loop_step(kernel_a, [(0, 0, 0), (0, 1, 0), (2, 0, 64)], size, chunk=tile),
        loop_step(kernel_b, [(2, 0, 64), (2, 0, 64), (1, 0, 0)], size, chunk=tile),
    ]
    return _core.Plan(
        "multiply_add",
        [(FLOAT32, (size,), None), (FLOAT32, (size,), (1,))],
        [("new", FLOAT32, (size,)), ("view", 1, 0, (size // 2,), (2,), 1)],
        steps,
        workspace=64 + 4 * size,
        microseconds=2.0,
    )


@pytest.mark.parametrize(("size", "chunk"), [(6, None), (1000, 7), (100000, 1000)])
def test_plan_with_workspace_and_view(size: int, chunk: int | None) -> None:
    plan = multiply_add(size, chunk)
    x = numpy.arange(size, dtype="float32")
    y = numpy.linspace(0, 1, size, dtype="float32")
    for _ in range(3):
        whole, view = plan(array(x), array(y))
        check(whole, 2 * (x * y))
        check(view, (2 * (x * y))[1::2][: size // 2])
        assert view._storage == whole._storage
    assert plan.name == "multiply_add"


def test_plan_checks_its_inputs() -> None:
    plan = multiply_add(4)
    x = array(numpy.ones(4))
    with pytest.raises(TypeError, match="input 1 has dtype int64, the plan was made for float32"):
        plan(x, array(numpy.ones(4), "int64"))
    with pytest.raises(TypeError, match=r"input 0 has shape \(3,\), the plan was made for \(4,\)"):
        plan(array(numpy.ones(3)), x)
    with pytest.raises(TypeError, match="device 1"):
        plan(x, _core.empty((4,), FLOAT32, 1))
    with pytest.raises(TypeError, match="2 arrays and 0 scalars"):
        plan(x)
    with pytest.raises(TypeError, match="not an array"):
        plan(x, 1.0)


def test_plan_copies_inputs_to_its_layout(core: Any) -> None:
    plan = multiply_add(4)
    x = array(numpy.arange(8.0))
    whole, _ = plan(x[::2], x[::-2])
    value = numpy.arange(8.0, dtype="float32")
    check(whole, 2 * (value[::2] * value[::-2]))


def test_plan_scalars_and_random_numbers() -> None:
    step = _core.Step(
        _core.load_object(kernels.store_integers(6)),
        [(1, 0, 0)],
        [7, 0, 0, 0, 0, 0],
        1,
        1,
        [(1, 0, False), (2, 1, True), (3, -1, False), (4, -2, False), (5, -3, False)],
    )
    plan = _core.Plan("scalars", [], [("new", INT64, (6,))], [step], scalars=2, random=2)
    _core.random_seed(11)
    (first,), (second,) = plan(5, 2), plan(True, 0.5)
    two, half = numpy.array([2.0, 0.5]).view("int64").tolist()
    assert first.tolist() == [7, 5, two, 11, 0, 1]
    assert second.tolist() == [7, 1, half, 11, 2, 3]
    assert _core.random_reserve(3) == (11, 4) and _core.random_state() == (11, 7)
    (other,) = plan(1, 1, device=1)
    assert other.device in (1, "cpu(1)") or other.device is not None


def test_plan_writes_its_input_in_place() -> None:
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    plan = _core.Plan(
        "update",
        [(FLOAT32, (3,), None), (FLOAT32, (3,), None)],
        [("view", 0, 0, (3,), (1,), 0)],
        [step],
        writes=[0],
    )
    weight, gradient = array([1.0, 2, 3]), array([1.0, 1, 1])
    (result,) = plan(weight, gradient)
    assert weight.tolist() == [2, 3, 4] and result._storage == weight._storage
    assert weight.version == 1 and gradient.version == 0
    with pytest.raises(TypeError, match="overwritten"):
        plan(array(numpy.zeros(6))[::2], gradient)


def test_plan_input_in_the_storage_that_is_written(core: Any) -> None:
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    spec = (FLOAT32, (3,), None)
    plan = _core.Plan("update", [spec, spec], [], [step], writes=[0])
    x = array([1.0, 2, 3, 4])
    assert plan(x[1:], x[:-1]) == ()
    assert x.tolist() == [1, 3, 5, 7]


def test_branches_choose_at_run_time() -> None:
    def scaled(by: str) -> Any:
        return [loop_step(vector(by, 6, 6), [(0, 1, 0), (0, 1, 0), (1, 0, 0)], 2)]

    inner = _core.Branch((0, 0, 1), scaled("add"), scaled("subtract"))
    branch = _core.Branch((0, 0, 0), [inner], scaled("multiply"))
    plan = _core.Plan(
        "branch", [(BOOL, (2,), None), (FLOAT32, (2,), None)], [("new", FLOAT32, (2,))], [branch]
    )
    x = array([3.0, 4.0])
    assert plan(array([True, True], "bool"), x)[0].tolist() == [6, 8]
    assert plan(array([True, False], "bool"), x)[0].tolist() == [0, 0]
    assert plan(array([False, True], "bool"), x)[0].tolist() == [9, 16]


def test_constants_stay_alive() -> None:
    def make() -> Any:
        constant = array([1.0, 2.0, 3.0])[1:]
        step = loop_step(vector("add", 6, 6), [(0, 0, 0), (3, 0, 0), (1, 0, 0)], 2)
        spec = (FLOAT32, (2,), None)
        return _core.Plan("c", [spec], [("new", *spec[:2])], [step], constants=[constant])

    plan = make()
    gc.collect()
    assert plan(array([10.0, 20.0]))[0].tolist() == [12, 23]


def test_tiles_are_cut_by_the_chunk() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    step = _core.Step(kernel, [(1, 0, 0)], [], 10, 4)
    plan = _core.Plan("tiles", [], [("new", INT64, (10,))], [step])
    assert plan()[0].tolist() == [0] * 4 + [4] * 4 + [8] * 2


def test_malformed_plans_are_refused() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    bad: list[dict[str, Any]] = [
        {"steps": [_core.Step(kernel, [(0, 0, 0)], [], 1, 1)]},
        {"steps": [_core.Step(kernel, [(5, 0, 0)], [], 1, 1)]},
        {"steps": [_core.Step(kernel, [], [1], 1, 1, [(1, -1, False)])]},
        {"steps": [_core.Step(kernel, [], [1], 1, 1, [(0, 0, False)])]},
        {"outputs": [("view", 1, 0, (1,), (1,), 0)]},
        {"outputs": [("new", 99, (1,))]},
        {"writes": [0]},
        {"workspace": -1},
    ]
    for options in bad:
        with pytest.raises(ValueError):
            _core.Plan(**{"name": "bad", "inputs": [], "outputs": [], "steps": [], **options})
    with pytest.raises(TypeError):
        _core.Plan("bad", [], [], ["no step"])


# --- general operations ------------------------------------------------------------------------


class General(_core.OpBase):
    """A general operation that doubles vectors, or views them."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, False, ())
        self.kind = kind
        self.prepared = 0
        self.recorded: list[Any] = []

    def _prepare(self, inputs: Any, keywords: Any) -> Any:
        self.prepared += 1
        size = inputs[0].size
        if self.kind == "none":
            return None
        if self.kind == "view":
            return _core.View((size // 2,), (2 * inputs[0].strides[0],), 0)
        step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 0, 0), (1, 0, 0)], size)
        spec = (FLOAT32, (size,), None)
        return _core.Plan("double", [spec], [("new", FLOAT32, (size,))], [step])

    def _call(self, inputs: Any, keywords: Any) -> Any:
        return "call"

    def _record(self, inputs: Any, keywords: Any, outputs: Any) -> None:
        self.recorded.append(outputs)


def test_general_operations_are_prepared_once_per_spec(core: Any) -> None:
    double = General("double")
    for _ in range(3):
        check(double(array([1.0, 2.0])), numpy.array([2, 4], "float32"))
        check(double(array([1.0])), numpy.array([2], "float32"))
    assert double.prepared == 2
    x = array([1.0, 2, 3, 4, 5, 6])
    assert double(x[::2]).tolist() == [2, 6, 10]
    assert General("none")(x) == "call"
    with pytest.raises(ZeroDivisionError):
        broken = General("double")
        broken._prepare = lambda *_: 1 // 0  # type: ignore[method-assign]
        broken(x)


def test_general_views_are_relative_to_the_input() -> None:
    view = General("view")
    x = array([1.0, 2, 3, 4, 5, 6])
    assert view(x).tolist() == [1, 3, 5]
    assert view(x[2:]).tolist() == [3, 5]
    x._tape = 1
    old = _core.set_recording(True)
    y = view(x)
    _core.set_recording(old)
    assert view.recorded[0][0] is y


# --- failures ----------------------------------------------------------------------------------


def checked_copy(microseconds: float = 1.0, size: int = 2) -> Any:
    kernel = _core.load_object(kernels.refuses_negative())
    step = _core.Step(
        kernel, [(0, 0, 0), (1, 0, 0)], [size], size, 1, failure=("IndexError", "negative element")
    )
    spec = (FLOAT32, (size,), None)
    return _core.Plan(
        "checked", [spec], [("new", *spec[:2])], [step], microseconds=microseconds
    )


@pytest.mark.parametrize("microseconds", [0.1, 1e6])
def test_failures_are_sticky_and_say_where(core: Any, microseconds: float) -> None:
    plan = checked_copy(microseconds)
    line = sys._getframe().f_lineno + 1
    (bad,) = plan(array([1.0, -1.0]))
    spread = bad + 1
    for x in (bad, spread, bad):
        with pytest.raises(IndexError) as caught:
            x.tolist()
        assert str(caught.value) == f"negative element (issued at {__file__}:{line})"
    core["copy"].into(bad, 3.0)
    assert bad.tolist() == [3.0, 3.0]
    with pytest.raises(IndexError):
        spread.wait_to_read()
    _core.wait_all()


def test_wait_all_raises_what_nobody_has_seen() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    with pytest.raises(IndexError, match="negative"):
        _core.wait_all()
    _core.wait_all()
    with pytest.raises(IndexError):
        bad.item() if bad.size == 1 else bad.tolist()


def test_an_update_with_a_failed_input_leaves_its_target() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 2)
    spec = (FLOAT32, (2,), None)
    update = _core.Plan("update", [spec, spec], [], [step], writes=[0])
    weight = array([1.0, 2.0])
    update(weight, bad)
    assert weight.tolist() == [1.0, 2.0]
    update(weight, weight + 1)
    assert weight.tolist() == [3.0, 5.0]
    with pytest.raises(IndexError):
        bad.wait_to_read()


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    directory = os.path.dirname(__file__)
    root = os.path.dirname(directory)
    path = os.pathsep.join([root, directory])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


UNSEEN = """
    from test_core import array, checked_copy
    checked_copy(1e6)(array([1.0, -1.0]))
    print("done")
"""


def test_unseen_errors_end_the_process_with_70() -> None:
    ended = run_python(UNSEEN)
    assert ended.returncode == 70, ended.stderr
    assert ended.stdout == "done\n"
    assert "IndexError: negative element (issued at <string>:3)" in ended.stderr
    warned = run_python(UNSEEN, GEMEL_UNSEEN_ERRORS="warn")
    assert warned.returncode == 0 and "IndexError" in warned.stderr


def test_fork_while_work_is_pending() -> None:
    ended = run_python("""
        import os, numpy
        from test_core import array, multiply_add
        plan = multiply_add(100000, 1000)
        x = array(numpy.ones(100000))
        for _ in range(20):
            y, _ = plan(x, x)
        child = os.fork()
        z, _ = plan(y, y)
        assert z.tolist()[7] == 8.0
        if child == 0:
            os._exit(17)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    """)
    assert ended.returncode == 0, ended.stderr


def test_interrupt_ends_a_wait() -> None:
    ended = run_python("""
        import os, signal, threading, time, numpy, core_kernels
        from gemel import _core
        _core.configure(workers=1)
        kernel = _core.load_object(core_kernels.slow_copy(1 << 40))
        step = _core.Step(kernel, [(0, 0, 0), (1, 0, 0)], [8], 8, 8)
        plan = _core.Plan("forever", [(7, (8,), None)], [("new", 7, (8,))], [step], microseconds=1e9)
        x = _core.empty((8,), 7, 0)
        (y,) = plan(x)
        time.sleep(0.3)  # a worker has begun it
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            y.wait_to_read()
        except KeyboardInterrupt:
            os._exit(5)
    """)
    assert ended.returncode == 5, ended.stderr


# --- kernels, threads --------------------------------------------------------------------------


def test_corrupt_objects_are_refused() -> None:
    code = kernels.elementwise("add", 1, (FLOAT32, -2), FLOAT32)
    for bad in (b"", b"text", code[:100], code[: len(code) // 2], b"\0" * len(code)):
        with pytest.raises(ValueError):
            _core.load_object(bad)
    for at in range(0, len(code), 3):
        changed = bytearray(code)
        changed[at] ^= 0xFF
        try:
            _core.load_object(bytes(changed))
        except ValueError:
            continue
    with pytest.raises(ValueError, match="not_in_the_table"):
        _core.load_object(kernels.calls_unknown())
    assert _core.load_object(code).address != 0


def test_a_kernel_that_is_no_elementwise_is_refused(core: Any) -> None:
    core["add"]._kernel = lambda *_: 5
    with pytest.raises(TypeError, match="Elementwise"):
        array([1.0]) + 1
    with pytest.raises(ValueError):
        _core.Elementwise(_core.load_object(kernels.tile_starts()), ())


def test_several_threads_issue(core: Any) -> None:
    core["add"].nanoseconds = 1e6
    plan = multiply_add(64, 8)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = array(numpy.full(64, seed))
        for _ in range(200):
            x = x + 1
            whole, _ = plan(x, x)
        if x.tolist() != [seed + 200.0] * 64 or whole.tolist() != [2.0 * (seed + 200) ** 2] * 64:
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_counters_and_configuration() -> None:
    counters = _core.counters()
    assert {"operations", "inline", "queued", "tiles", "allocations", "bytes_in_use"} <= set(counters)
    assert _core.workers() >= 0
    old = _core.set_training(True)
    assert _core.training() and _core.set_training(old) is True
