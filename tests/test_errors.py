"""Wrong input raises typed errors with the operation, specs and rule; the process lives on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from op_table import OPS

import gemel
from gemel import autograd, np, npx
from gemel.errors import (
    ArgumentError,
    DTypeError,
    GemelError,
    GradientError,
    ShapeError,
    TraceError,
    UnknownNameError,
)


@pytest.fixture(autouse=True)
def alive() -> Iterator[None]:
    """After each test, the engine still computes."""
    yield
    x = np.array([1.0, 2.0])
    assert (x + x).tolist() == [2.0, 4.0]


def ones(*shape: int, dtype: str = "float32") -> Any:
    return np.ones(shape, dtype=dtype)


def places(*values: int) -> Any:
    return np.array(values, dtype="int64")


#: Operations, the fault, inputs and parameters.
UNFIT: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("gather", "axis from the end", (ones(2, 3), places(0)), {"axis": -1}),
    ("gather", "axis too large", (ones(2, 3), places(0)), {"axis": 2}),
    ("gather", "from nothing", (ones(0, 3), places(0)), {"axis": 0}),
    ("scatter", "axis from the end", (ones(2, 1), places(0)), {"axis": -1, "shape": (2, 3)}),
    ("scatter", "axis too large", (ones(1), places(0)), {"axis": 1, "shape": (3,)}),
    ("scatter", "into nothing", (ones(1, 3), places(0)), {"axis": 0, "shape": (0, 3)}),
    ("scatter", "wider slices", (ones(1, 5), places(0)), {"axis": 0, "shape": (3, 3)}),
    ("scatter", "more slices", (ones(2, 3), places(0)), {"axis": 0, "shape": (3, 3)}),
    ("scatter", "negative shape", (ones(1), places(0)), {"axis": 0, "shape": (-3,)}),
    ("scatter", "float positions", (ones(1), ones(1)), {"axis": 0, "shape": (3,)}),
    ("place", "key outside", (ones(2),), {"key": (("slice", 2, 2, 1),), "shape": (3,)}),
    ("place", "step outside", (ones(2),), {"key": (("slice", 1, 2, -2),), "shape": (3,)}),
    ("place", "other shape", (ones(3),), {"key": (("slice", 0, 2, 1),), "shape": (3,)}),
    ("place", "key too short", (ones(3),), {"key": (("slice", 0, 3, 1),), "shape": (3, 3)}),
    ("place", "negative shape", (ones(0),), {"key": (("slice", 0, 0, 1),), "shape": (-1,)}),
    ("assign", "key outside", (ones(3), ones()), {"key": (("int", 3),)}),
    ("assign", "position before", (ones(3), ones()), {"key": (("int", -1),)}),
    ("assign", "step of nothing", (ones(3), ones()), {"key": (("slice", 0, 2, 0),)}),
    ("assign", "negative length", (ones(3), ones()), {"key": (("slice", 0, -2, 1),)}),
    ("basic_index", "key outside", (ones(3),), {"key": (("slice", 1, 3, 1),)}),
    ("basic_index", "key too long", (ones(3),), {"key": (("int", 0), ("int", 0))}),
    ("narrow", "beyond the end", (ones(3),), {"axis": 0, "start": 2, "length": 2}),
    ("narrow", "before the start", (ones(3),), {"axis": 0, "start": -1, "length": 2}),
    ("narrow", "negative length", (ones(3),), {"axis": 0, "start": 0, "length": -1}),
    ("narrow", "axis from the end", (ones(2, 3),), {"axis": -1, "start": 0, "length": 1}),
    (
        "narrow",
        "NumPy's beyond the end",
        (ones(3),),
        {"axis": 0, "start": numpy.int64(5), "length": numpy.int64(9)},
    ),
    ("narrow", "float position", (ones(3),), {"axis": 0, "start": 0.0, "length": 1}),
    ("basic_index", "NumPy's outside", (ones(3),), {"key": (("slice", numpy.int64(5), 9, 1),)}),
    ("basic_index", "float position", (ones(3),), {"key": (("slice", 0.5, 1, 1),)}),
    ("iota", "axis too large", (), {"shape": (2, 3), "axis": 2, "dtype": "int64"}),
    ("pick", "from nothing", (ones(3, 0), places(0, 0, 0)), {"axis": 1}),
]


Bad = tuple[str, Any, type[Exception], tuple[str, ...]]

#: A call, its error, and the parts its message must contain.
BAD: list[Bad] = [
    ("add of shapes", lambda: ones(2, 3) + ones(4), ShapeError,
     ("add", "float32[2, 3]", "float32[4]", "3 and 4", "broadcast")),
    ("add by name", lambda: np.add(ones(2, 3), ones(3, 2)), ShapeError,
     ("add", "[2, 3]", "[3, 2]", "axis")),
    ("where of shapes", lambda: np.where(ones(2) > 0, ones(3), 0), ShapeError,
     ("where", "bool[2]", "float32[3]")),
    ("bool subtract", lambda: (ones(2) > 0) - (ones(2) > 0), DTypeError,
     ("subtract", "bool[2]", "logical_xor")),
    ("bool negative", lambda: -(ones(2) > 0), DTypeError, ("negative", "bool[2]")),
    ("bits of floats", lambda: ones(2) & ones(2), DTypeError,
     ("bitwise_and", "float32[2]", "astype")),
    ("sum axis", lambda: ones(2, 3).sum(axis=2), ShapeError, ("sum", "axis 2", "2 dimensions")),
    ("sum axis twice", lambda: ones(2, 3).sum(axis=(0, -2)), ShapeError, ("sum", "twice")),
    ("sum axis kind", lambda: ones(2, 3).sum(axis="0"), (ShapeError, TypeError), ("sum",)),
    ("mean axis", lambda: ones(2, 3).mean(axis=-3), ShapeError, ("mean", "axis -3")),
    ("std axis", lambda: ones(2, 3).std(axis=2), ShapeError, ("std", "axis 2")),
    ("zeros", lambda: np.zeros((2, -1)), ShapeError, ("zeros", "[2, -1]", "negative")),
    ("uniform", lambda: np.random.uniform(size=(-1,)), ShapeError, ("uniform", "[-1]", "negative")),
    ("uniform shape", lambda: np.random.uniform(ones(3), 1.0, size=(2, 2)), ShapeError,
     ("uniform", "[3]", "[2, 2]")),
    ("uniform smaller", lambda: np.random.uniform(ones(3, 2), 1.0, size=(2,)), ShapeError,
     ("uniform", "[3, 2]", "[2]")),
    ("softmax axis", lambda: npx.softmax(ones(2, 3), axis=5), ShapeError, ("softmax", "axis 5")),
    ("max of nothing", lambda: ones(0, 3).max(axis=0), ShapeError, ("max", "[0, 3]", "empty")),
    ("argmax of two axes", lambda: ones(2, 3).argmax(axis=(0, 1)), ShapeError,
     ("argmax", "(0, 1)", "one axis")),
    ("argmin of nothing", lambda: ones(0).argmin(), ShapeError, ("argmin", "[0]", "empty")),
    ("matmul", lambda: ones(2, 3) @ ones(4, 5), ShapeError,
     ("matmul", "float32[2, 3]", "float32[4, 5]", "3", "4")),
    ("matmul of 0-d", lambda: np.matmul(ones(), ones(2)), ShapeError, ("matmul", "0-d", "use *")),
    ("matmul batches", lambda: ones(2, 3, 4) @ ones(3, 4, 5), ShapeError, ("matmul", "broadcast")),
    ("dot", lambda: np.dot(ones(3), ones(4)), ShapeError, ("matmul", "[3]", "[4]")),
    ("reshape", lambda: ones(2, 3).reshape(4, 2), ShapeError,
     ("reshape", "[2, 3]", "[4, 2]", "6")),
    ("reshape -1", lambda: ones(2, 3).reshape(4, -1), ShapeError,
     ("reshape", "6", "multiple of 4")),
    ("reshape -1 -1", lambda: ones(2, 3).reshape(-1, -1), ShapeError, ("reshape", "one extent")),
    ("reshape negative", lambda: ones(2, 3).reshape(-2, -3), ShapeError, ("reshape", "-2")),
    ("transpose", lambda: ones(2, 3).transpose(0, 0), ShapeError, ("transpose", "once")),
    ("transpose axis", lambda: ones(2, 3).transpose(0, 2), ShapeError, ("transpose", "axis 2")),
    ("broadcast_to", lambda: ones(2, 3).broadcast_to((2, 4)), ShapeError,
     ("broadcast_to", "[2, 3]", "[2, 4]")),
    ("broadcast_to less", lambda: ones(2, 3).broadcast_to((3,)), ShapeError, ("broadcast_to",)),
    ("squeeze", lambda: ones(2, 3).squeeze(0), ShapeError, ("squeeze", "length 2")),
    ("expand_dims", lambda: ones(2, 3).expand_dims(4), ShapeError, ("expand_dims", "axis 4")),
    ("concatenate", lambda: np.concatenate([ones(2, 3), ones(2, 4)]), ShapeError,
     ("concatenate", "[2, 3]", "[2, 4]", "except along axis 0")),
    ("concatenate ranks", lambda: np.concatenate([ones(2, 3), ones(3)], axis=1), ShapeError,
     ("concatenate", "[2, 3]", "[3]")),
    ("concatenate axis", lambda: np.concatenate([ones(2), ones(2)], axis=1), ShapeError,
     ("concatenate", "axis 1")),
    ("concatenate nothing", lambda: np.concatenate([]), ShapeError, ("concatenate", "one array")),
    ("concatenate 0-d", lambda: np.concatenate([ones(), ones()]), ShapeError, ("concatenate",)),
    ("stack", lambda: np.stack([ones(2), ones(3)]), ShapeError, ("stack", "(3,)", "equal")),
    ("split", lambda: np.split(ones(5), 2), ShapeError, ("split", "5", "2 equal parts")),
    ("split into none", lambda: np.split(ones(5), 0), ShapeError, ("split", "0 equal parts")),
    ("split axis", lambda: np.split(ones(5), 5, axis=1), ShapeError, ("split", "axis 1")),
    ("pick", lambda: npx.pick(ones(4, 5), ones(5)), ShapeError,
     ("pick", "float32[5]", "float32[4, 5]")),
    ("pick axis", lambda: npx.pick(ones(4, 5), ones(4), axis=2), ShapeError, ("pick", "axis 2")),
    ("pick mode", lambda: npx.pick(ones(4, 5), ones(4), mode="clap"), UnknownNameError,
     ("clap", "did you mean 'clip'")),
    ("take dtype", lambda: ones(4).take(ones(2), axis=0), DTypeError,
     ("take", "float32[2]", "integers", "astype('int64')")),
    ("take axis", lambda: ones(4).take(np.array([0]), axis=1), ShapeError, ("take", "axis 1")),
    ("take mode", lambda: np.take(ones(4), np.array([0]), mode="wrp"), UnknownNameError,
     ("wrp", "did you mean 'wrap'")),
    ("index", lambda: ones(4)[4], IndexError, ("4", "axis 0", "size 4")),
    ("too many indices", lambda: ones(4)[0, 0], IndexError, ("too many indices", "1")),
    ("float index", lambda: ones(4)[ones(1)], DTypeError, ("float32[1]", "integers")),
    ("assign shape", lambda: ones(4).__setitem__(slice(0, 2), ones(3)), ShapeError,
     ("assign", "float32[3]", "float32[2]")),
    ("assign index", lambda: ones(4).__setitem__(7, 1.0), IndexError, ("7", "size 4")),
    ("in place growth", lambda: ones(3).__iadd__(ones(2, 3)), ShapeError, ("add", "[3]", "[2, 3]")),
    ("in place dtype", lambda: np.array([1, 2]).__iadd__(ones(2)), DTypeError,
     ("add", "int64", "float32")),
    ("batch_norm", lambda: OPS["batch_norm"](ones(2, 3), *[ones(2)] * 4), ShapeError,
     ("batch_norm", "gamma", "float32[2]", "float32[2, 3]", "channel")),
    ("batch_norm dtype", lambda: OPS["batch_norm"](ones(2, 3, dtype="int32"), *[ones(3)] * 4),
     DTypeError, ("batch_norm", "int32[2, 3]", "floating")),
    ("activation", lambda: npx.activation(ones(2), act_type="rely"), UnknownNameError,
     ("activation", "rely", "did you mean 'relu'")),
    ("dtype", lambda: np.array([1], dtype="float31"), DTypeError, ("float31", "float32")),
    ("NumPy dtype", lambda: ones(2).astype("longdouble"), DTypeError, ("longdouble",)),
    ("ragged", lambda: np.array([[1, 2], [3]]), ShapeError, ("nested lists",)),
    ("unknown keyword", lambda: OPS["sum"](ones(2), axes=0), TypeError,
     ("sum", "'axes'", "did you mean 'axis'", "keepdims")),
    ("missing keyword", lambda: OPS["gather"](ones(2), np.array([0])), TypeError,
     ("gather", "missing keyword 'axis'")),
    ("keyword twice", lambda: OPS["sum"](ones(2), 0, axis=0), TypeError,
     ("sum", "axis", "multiple values")),
    ("too few inputs", lambda: np.add(ones(2)), TypeError, ("add", "2 inputs (a, b)", "1")),
    ("too many inputs", lambda: np.exp(*[ones(2)] * 3), TypeError, ("exp", "1 inputs (x)", "3")),
    ("no array", lambda: ones(2) + "text", TypeError, ("str",)),
    ("no number", lambda: np.add(ones(2), None), TypeError, ("NoneType",)),
    ("truth of several", lambda: bool(ones(2)), ValueError, ("2",)),
    ("item of several", lambda: ones(2).item(), ValueError, ("2",)),
    ("priority", lambda: npx.priority(1.5), ArgumentError, ("priority", "1.5", "whole numbers")),
    ("large priority", lambda: npx.priority(2**31), ArgumentError, ("priority", "2147483648")),
    ("one_hot keyword", lambda: npx.one_hot(np.array([0]), dept=3), TypeError, ("dept",)),
    ("split views", lambda: np.split(ones(4), [1], axis=3), ShapeError, ("split", "axis 3")),
    ("swapaxes", lambda: ones(2, 3).swapaxes(0, 2), ShapeError, ("swapaxes", "axis 2")),
    ("zeros too many", lambda: np.zeros((2**62, 4)), ShapeError, ("zeros", str(2**62), "memory")),
    ("zeros beyond 64 bits", lambda: np.zeros(2**70), ShapeError, ("zeros", str(2**70))),
    ("broadcast to too many", lambda: ones(1).broadcast_to((2**40, 2**40)), ShapeError,
     ("broadcast_to", str(2**40))),
    ("zeros of a float", lambda: np.zeros(2.5), ShapeError, ("zeros", "2.5", "whole")),
    ("reshape to floats", lambda: ones(2, 3).reshape(2.0, 3), ShapeError, ("reshape", "whole")),
    ("broadcast to floats", lambda: ones(3).broadcast_to((2.0, 3)), ShapeError, ("whole",)),
    ("split at floats", lambda: np.split(ones(3), [1.5]), ShapeError, ("split", "1.5", "whole")),
    ("product too large", lambda: np.dot(ones(2**31, 0), ones(0, 2**31)), ShapeError,
     ("matmul", str(2**31), "memory")),
    ("broadcast to negative", lambda: ones(3).broadcast_to((-1, 3)), ShapeError,
     ("broadcast_to", "-1", "negative")),
    ("number too large", lambda: np.array([300], dtype="int8"), OverflowError, ("int8",)),
    ("arrays that are no list", lambda: np.concatenate(ones(2, 3), ones(2, 4)), TypeError,
     ("concatenate", "axis must be one whole number, not an array of shape [2, 4]")),
    ("axis of a float", lambda: ones(2, 3).sum(axis=1.0), TypeError,
     ("sum: axis 1.0 must be a whole number",)),
    *((name, lambda place=place, name=name: getattr(place, name), AttributeError,
       (f"no attribute {name!r}; use {use}",))
      for place, name, use in ((np, "relu", "npx.relu"), (npx, "exp", "np.exp"),
                               (np, "norm", "np.linalg.norm"), (np.random, "relu", "npx.relu"))),
    ("mask", lambda: ones(3, 4)[np.array([True, False])], IndexError,
     ("mask", "[2]", "[3, 4]", "axis 0")),
    # Operations that only gemel calls check their parameters too, since kernels would use them.
    *((f"{name} {why}", lambda name=name, inputs=inputs, given=given: OPS[name](*inputs, **given),
       (ShapeError, IndexError, DTypeError), (name if name != "gather" else "take",))
      for name, why, inputs, given in UNFIT),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "parts"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_calls(call: Any, error: type[Exception], parts: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert part in message, message


TRACED: list[Bad] = [
    ("add", lambda x: x + np.ones((7,)), ShapeError, ("add", "[7]")),
    ("sum", lambda x: x.sum(axis=4), ShapeError, ("sum", "axis 4")),
    ("matmul", lambda x: np.matmul(x, x), ShapeError, ("matmul",)),
    ("mask", lambda x: x[x > 0], TraceError, ("nonzero", "np.where")),
    ("branch", lambda x: x if x.sum() > 0 else -x, TraceError, ("cond",)),
    ("print", lambda x: float(x.sum()), (TraceError, TypeError), ()),
    ("keyword", lambda x: OPS["sum"](x, axes=0), TypeError, ("did you mean 'axis'",)),
    ("branches differ", lambda x: npx.cond(x.sum() > 0, lambda a: a, lambda a: a.sum(), [x]),
     ShapeError, ("cond", "same shapes and dtypes")),
    ("condition", lambda x: npx.cond(x > 0, lambda a: a, lambda a: -a, [x]), ShapeError,
     ("cond", "one element")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "parts"), [b[1:] for b in TRACED], ids=[b[0] for b in TRACED]
)
def test_bad_calls_in_a_trace(call: Any, error: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        gemel.compile(call)(ones(2, 3))
    for part in parts:
        assert part in str(caught.value)
    assert gemel.ir.current.current_trace() is None


def test_every_error_is_gemel_s_and_a_builtin() -> None:
    assert issubclass(ShapeError, GemelError) and issubclass(ShapeError, ValueError)
    assert issubclass(DTypeError, GemelError) and issubclass(DTypeError, TypeError)
    assert issubclass(GradientError, GemelError) and issubclass(GradientError, RuntimeError)


# --- errors that depend on values -------------------------------------------------------------


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_an_index_out_of_range_is_raised_at_the_wait(way: str) -> None:
    def function(x: Any, positions: Any) -> Any:
        return x.take(positions, axis=0) * 2

    call = gemel.compile(function) if way == "compiled" else function
    x = np.arange(4, dtype="float32")
    bad = call(x, np.array([0, 4]))
    good = call(x, np.array([0, -4]))
    for _ in range(2):  # the failure stays
        with pytest.raises(IndexError, match=r"take.*axis 0 with size 4"):
            bad.wait_to_read()
        with pytest.raises(IndexError, match="out of bounds"):
            bad.asnumpy()
    with pytest.raises(IndexError):
        (bad + good).tolist()
    assert good.tolist() == [0, 0]
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_an_index_out_of_range_names_the_axes_of_the_array(way: str) -> None:
    cases: list[tuple[str, Any]] = [
        ("axis 0 with size 2 or axis 1 with size 3", lambda x, at: x[range(2), at, 0]),
        ("axis 0 with size 2 or axis 2 with size 4", lambda x, at: x[[0, 1], :, at]),
        ("axis 1 with size 3 or axis 2 with size 4", lambda x, at: x[0, at, at - 6]),
        ("axis 0 with size 2 or axis 1 with size 3", lambda x, at: npx.gather_nd(x, [at, at])),
        ("axis 1 with size 3", lambda x, at: _written_at(x, at)),
    ]
    x, at = np.ones((2, 3, 4)), np.array([0, 9])
    for named, function in cases:
        call = gemel.compile(function) if way == "compiled" else function
        with pytest.raises(IndexError, match=f"out of bounds for {named}"):
            call(x, at).asnumpy()
    assert x.sum() == 24


def _written_at(x: Any, at: Any) -> Any:
    x = x.copy()
    x[[0, 1], at] = 5
    return x


def test_a_failed_array_is_healed_by_overwriting() -> None:
    x = np.arange(4, dtype="float32")
    bad = x[np.array([9, 0])]
    with pytest.raises(IndexError):
        bad.asnumpy()
    bad[...] = 7
    assert bad.tolist() == [7, 7]
    assert (bad + 1).tolist() == [8, 8]


def test_the_message_says_where() -> None:
    bad = np.arange(4).take(np.array([5]), axis=0)
    with pytest.raises(IndexError, match=r"test_errors\.py:\d+"):
        bad.asnumpy()


def test_an_array_without_memory_gives_its_own_failure() -> None:
    """NumPy has no memory for a copy either, but that is not what went wrong."""
    rows = np.zeros((1, 1))
    huge = np.broadcast_to(rows, (1 << 24, 1 << 24)) + 1
    for read in (huge.asnumpy, lambda: repr(huge), lambda: numpy.asarray(huge)):
        with pytest.raises(MemoryError, match=r"could not take .*test_errors\.py:\d+"):
            read()
    npx.waitall()  # it has been seen
    with pytest.raises(MemoryError, match="Unable to allocate"):  # NumPy's, of an array in order
        np.broadcast_to(rows, (1 << 24, 1 << 24)).asnumpy()


def test_a_failed_batch_leaves_what_it_would_have_updated() -> None:
    from gemel.tracing.updates import Update

    step = Update(lambda arrays, scalars: [arrays[0] - arrays[1] * scalars[0]])
    x, target = np.arange(4, dtype="float32"), np.zeros((2,))
    bad = x[np.array([0, 9])]
    step([target, bad], [1.0])
    with pytest.raises(IndexError):
        bad.wait_to_read()
    assert target.tolist() == [0, 0]
    step([target, x[np.array([0, 3])]], [1.0])
    assert target.tolist() == [0, -3]


def test_waitall_raises_what_nobody_has_seen() -> None:
    bad = np.arange(4)[np.array([9])]
    with pytest.raises(IndexError):
        npx.waitall()
    npx.waitall()
    del bad


def test_unseen_errors_end_the_process_with_70_and_seen_ones_do_not() -> None:
    program = """
from gemel import np
bad = np.arange(4)[np.array([9])]
if {seen}:
    try:
        bad.asnumpy()
    except IndexError:
        pass
"""
    for seen, code in ((True, 0), (False, 70)):
        done = subprocess.run(
            [sys.executable, "-c", program.format(seen=seen)], capture_output=True, timeout=600
        )
        assert done.returncode == code, done.stderr.decode()


def test_division_by_zero_is_no_error() -> None:
    assert (np.array([1.0, -1.0]) / 0).tolist() == [float("inf"), -float("inf")]
    assert (np.array([5, -5]) // 0).tolist() == [0, 0]
    assert (np.array([5, -5]) % 0).tolist() == [0, 0]


# --- gradients --------------------------------------------------------------------------------


def test_backward_without_record() -> None:
    x = ones(3)
    x.attach_grad()
    with pytest.raises(GradientError, match=r"float32\[3\].*attach_grad.*record"):
        (x * 2).backward()


def test_backward_without_a_variable() -> None:
    with autograd.record():
        y = ones(3) * 2
    with pytest.raises(GradientError, match="attach_grad"):
        y.backward()


@pytest.mark.parametrize("compiled", [False, True])
def test_backward_twice(compiled: bool) -> None:
    def function(x: Any) -> Any:
        return (x * x).sum()

    call = gemel.compile(function) if compiled else function
    x = ones(3)
    x.attach_grad()
    with autograd.record():
        y = call(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]
    with pytest.raises(GradientError, match="retain_graph=True"):
        y.backward()


@pytest.mark.parametrize("compiled", [False, True])
def test_overwriting_what_backward_needs(compiled: bool) -> None:
    def function(a: Any) -> Any:
        return (a * a).sum()

    call = gemel.compile(function) if compiled else function
    x, w = ones(3), ones(3)
    x.attach_grad()
    with autograd.record():
        y = call(x) + (x * w).sum()
    with autograd.pause():
        w[0] = 5
    with pytest.raises(GradientError, match=r"multiply.*overwritten in place"):
        y.backward()
    with autograd.record():
        z = call(x)
    with autograd.pause():
        x[0] = 5
    with pytest.raises(GradientError, match="overwritten in place"):
        z.backward()


def test_overwriting_what_backward_does_not_need() -> None:
    x, w = ones(3), ones(3)
    x.attach_grad()
    with autograd.record():
        y = (x + w).sum()
    w[...] = 7
    y.backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_a_head_gradient_of_another_shape() -> None:
    x = ones(3)
    x.attach_grad()
    with autograd.record():
        y = x * 2
    with pytest.raises(ShapeError, match=r"backward.*float32\[3\].*float32\[2\]"):
        y.backward(ones(2))


@pytest.mark.parametrize("shape", [(0, -1), (-2,), (0, 3)])
def test_codes_of_mxnet_1_in_reshape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"reshape: .*; nd.reshape \(F.reshape\) knows MXNet 1's"):
        ones(2, 3).reshape(shape)
    with pytest.raises(ShapeError) as caught:
        ones(2, 3).reshape(4, -1)
    assert "MXNet" not in str(caught.value)


def test_integers_are_no_variables() -> None:
    with pytest.raises(GradientError, match=r"attach_grad.*int64\[2\].*floating"):
        np.array([1, 2]).attach_grad()
    with pytest.raises(UnknownNameError, match="did you mean 'write'"):
        ones(2).attach_grad("wrte")


def test_scattered_writes_while_recording() -> None:
    """The array written to fails because of a position out of range; so does the gradient."""
    x = ones(3)
    x.attach_grad()
    with autograd.record():
        y = x * 2
        y[np.array([0, 9])] = x[0]
        z = (y * y).sum()
    for array in (y, z):
        with pytest.raises(IndexError, match="out of bounds"):
            array.asnumpy()
    z.backward()
    with pytest.raises(IndexError):
        x.grad.asnumpy()


@pytest.mark.parametrize(
    "wrong, right",
    [
        (lambda: gemel.optimizer.SGD(lr=0.1), "learning_rate"),
        (lambda: gemel.optimizer.Adam(weight_decay=0.1), "wd"),
        (lambda: gemel.gluon.nn.Dense(2, bias=False), "use_bias"),
        (lambda: gemel.np.sum(gemel.np.ones(3), dim=0), "axis"),
    ],
)
def test_names_of_other_frameworks_are_known(wrong: Any, right: str) -> None:
    with pytest.raises(gemel.errors.UnknownKeywordError, match=f"did you mean '{right}'"):
        wrong()
