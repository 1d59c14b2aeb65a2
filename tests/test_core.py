"""The C++ core from Python: arrays, views, elementwise dispatch."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from core_fakes import CoreArray, Fake, array, check, installed
from core_kernels import FLOAT32

from gemel import _core


@pytest.fixture(autouse=True)
def core() -> Iterator[dict[str, Fake]]:
    """The core with the fakes installed; the previous objects are restored afterwards."""
    yield from installed()


# --- arrays ------------------------------------------------------------------------------------


def test_attributes() -> None:
    x = array(numpy.zeros((2, 3, 4)))
    assert type(x) is CoreArray
    assert (x.shape, x.strides, x.ndim, x.size) == ((2, 3, 4), (48, 16, 4), 3, 24)
    assert (x.itemsize, x.nbytes, x.offset, x.version) == (4, 96, 0, 0)
    assert x._is_contiguous and x._code == FLOAT32
    assert len(x) == 2
    assert hash(x) == hash(x) and x._history is None and x._grad is None


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
        (0, 1), (slice(None), 2), (..., 0), (0, ..., 1), (None, 0, None),
        (slice(None, None, 2), ...),
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


def test_other_keys_go_to_python() -> None:
    x = array([1.0, 2.0])
    assert x[[0]] == ("python", [0])


def test_views_share_the_history() -> None:
    x = array([[1.0, 2.0], [3.0, 4.0]])
    before = x[1:]
    assert not x._is_tracked and x._is_base and not before._is_base
    source = object()
    x._track(source)
    after = before[0]
    for view in (before, after, *x):
        assert view._history is x._history and view._is_tracked and not view._is_base
    assert x._history.base == ((2, 2), (2, 1), 0) and x._history.source is source
    apart = x._detached()
    assert apart._history is None and not apart._is_tracked and apart.tolist() == x.tolist()
    x._track(None)
    assert not after._is_tracked
    x._history = None
    assert x._history is None and after._history is not None
    with pytest.raises(TypeError, match="history"):
        x._history = source


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
        _core.from_buffer(x[:, 1], FLOAT32, (2,), 0)  # needs a contiguous buffer


def test_operations_settle_before_they_return_while_a_buffer_is_held(core: Any) -> None:
    core["add"].nanoseconds = 1e9  # too expensive to run inline
    x = array(numpy.zeros(10))
    outside = numpy.asarray(x)
    for _ in range(20):
        x += 1
    assert outside.tolist() == [20.0] * 10


def test_weak_references_and_cycles() -> None:
    x = array([1.0])
    x._track([x, x[0:1]])
    watch = weakref.ref(x)
    del x
    gc.collect()
    assert watch() is None


def test_subclasses_of_the_class_of_arrays_are_freed() -> None:
    class Derived(CoreArray):
        pass

    with pytest.raises(TypeError):
        _core.set_array_class(Derived)  # it has a __dict__
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
    assert {miss[0] for miss in core["mul"].misses} == {1, 2, 3}


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

    class Symbol:
        def __radd__(self, other: Any) -> str:
            return "symbol"

    assert x + Symbol() == "symbol"


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
    y._track("tape")
    old = _core.set_recording(True)
    try:
        x + x
        assert core["add"].recorded == []
        z = x + y
    finally:
        assert _core.set_recording(old)
    ((inputs, parameters, outputs),) = core["add"].recorded
    assert inputs[0] is x and inputs[1] is y and parameters == {} and outputs[0] is z


def test_calls_like_a_recorded_one_are_put_on_the_tape_by_the_core(core: Any) -> None:
    add, kind = core["add"], object()
    add.known = kind, (("input", 1), ("output", 0)), True
    x, y, other = array([1.0, 2.0]), array([3.0, 4.0]), array([[1.0, 2.0]])
    x._track("source")
    old = _core.set_recording(True)
    try:
        x + y
        assert len(add.recorded) == 1 and add.recorded[0][0] == (x, y)
        found = [x + y, x + other[0], y + y]
        assert len(add.recorded) == 1 and not found[2]._is_tracked
        y + x, x + other, x + 2.0  # these differ: variables elsewhere, another shape, a number
        assert len(add.recorded) == 4
    finally:
        _core.set_recording(old)
    for z in found[:2]:
        call, index = z._history.source
        assert index == 0 and call.kind is kind and call.sources == ("source", None)
        assert call.reads == add.known[1] and not call.freed and call.variables is None
        seen, made = call.values
        assert seen.array.tolist() == ([3, 4] if z is found[0] else [1, 2])
        assert made.array.tolist() == z.tolist() and made.array._history is None
        assert z._history.is_saved and z._history.take_saved() == [made]
        assert not z._history.is_saved
    assert len(y._history.take_saved()) == 1
    seen = found[0]._history.source[0].values[0]
    assert seen.version == y.version == 0
    y += 1
    assert seen.version != seen.array.version


def test_records_of_saved_contents_are_dropped_with_their_owner() -> None:
    x = array([1.0])
    first, second, third = x._save(), x._save(), x._save()
    del second
    assert x._history.take_saved() == [third, first]
    again = x._save()
    del x, first
    gc.collect()
    assert again.array.tolist() == [1.0]


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
    assert n == ("inplace", "add")


def test_large_calls_are_tiled_by_shape(core: Any) -> None:
    value = numpy.random.default_rng(1).random((700, 701)).astype("float32")
    x = array(value)
    before = _core.counters()["tiles"]
    check(x + x, value + value)
    check(x[:, ::-1] + 1, value[:, ::-1] + numpy.float32(1))
    assert _core.counters()["tiles"] > before
