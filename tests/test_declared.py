"""What a declaration may say: several elementwise results, and optional inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.ir.declare import composite, elementwise
from gemel.ir.methods import REGISTRY


@pytest.fixture(autouse=True, scope="module")
def _operations() -> Iterator[None]:
    """Declare the operations of this module."""
    before = set(REGISTRY)

    def types(op: Any, specs: Any, parameters: Any) -> Any:
        return (specs[0].dtype,), (specs[0].dtype, gemel.np.int32)

    @elementwise(dtype=types, outputs=2)
    def split_number(xp: Any, x: Any, *, step: float = 1.0) -> Any:
        """What is left of whole steps, and how many there are."""
        count = xp.floor(x / step)
        return x - count * step, count

    @split_number.gradient
    def _(g: Any, y: Any, x: Any, *, step: float) -> Any:
        return (g[0],)

    @composite()
    def scaled(x: Any, scale: Any = None, shift: Any = None, *, power: int = 1) -> Any:
        """x ** power, times scale and plus shift where they are given."""
        for _ in range(power - 1):
            x = x * x
        if scale is not None:
            x = x * scale
        return x if shift is None else x + shift

    @composite()
    def shifted(x: Any, *, by: int = 1) -> Any:
        """x plus a whole number."""
        return x + by

    @shifted.extended
    def _(x: Any, by: int = 1, times: int = 1, *, twice: bool = False) -> Any:
        """x plus a whole number, so many times."""
        return shifted(x, by=by * times * (2 if twice else 1))

    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def op(name: str) -> Any:
    return REGISTRY[name]


def ways(function: Any) -> list[Any]:
    """The function run imperatively, compiled, and recorded."""

    def recorded(*arrays: Any) -> Any:
        with autograd.record():
            return function(*arrays)

    return [function, gemel.compile(function), recorded]


# --- several elementwise results ------------------------------------------------------------

NUMBERS = numpy.array([[-2.75, -0.5, 0.0], [0.25, 1.5, 7.125]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_two_results_of_two_dtypes(dtype: str) -> None:
    x = NUMBERS.astype(dtype)
    whole = numpy.floor(x / 0.5)
    for run in ways(lambda v: op("split_number")(v, step=0.5)):
        rest, count = run(np.array(x, dtype=dtype))
        assert (rest.dtype, count.dtype) == (dtype, "int32")
        numpy.testing.assert_array_equal(rest.asnumpy(), x - whole * x.dtype.type(0.5))
        numpy.testing.assert_array_equal(count.asnumpy(), whole.astype("int32"))


def test_one_of_two_results_among_others() -> None:
    def program(v: Any) -> Any:
        rest, count = op("split_number")(np.exp(v))
        return rest * 2 + count.astype("float32").sum(axis=1, keepdims=True)

    raised = numpy.exp(NUMBERS.astype("float32"))
    expected = (raised % 1) * 2 + numpy.floor(raised).sum(axis=1, keepdims=True)
    for run in ways(program):
        found = run(np.array(NUMBERS, dtype="float32")).asnumpy()
        numpy.testing.assert_allclose(found, expected, rtol=2e-4)


def test_results_of_views_empty_arrays_and_numbers() -> None:
    x = np.array(NUMBERS)
    for view, expected in ((x.T, NUMBERS.T), (x[:, ::2], NUMBERS[:, ::2]), (x[:0], NUMBERS[:0])):
        for run in ways(op("split_number")):
            rest, count = run(view)
            assert rest.asnumpy().tolist() == (expected - numpy.floor(expected)).tolist()
            assert count.asnumpy().tolist() == numpy.floor(expected).tolist()
    quotient, remainder = np.divmod(7, 2)
    assert (quotient.item(), remainder.item()) == (3, 1)


def test_their_gradient() -> None:
    x = np.array(NUMBERS)
    x.attach_grad()
    for run in (op("split_number"), gemel.compile(lambda v: op("split_number")(v))):
        with autograd.record():
            rest, count = run(x)
            (rest * rest + count.astype("float64")).sum().backward()
        expected = 2 * (NUMBERS - numpy.floor(NUMBERS))
        numpy.testing.assert_allclose(x.grad.asnumpy(), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "float32", "float64"])
def test_divmod(dtype: str) -> None:
    a, b = numpy.array([7, 9, 100], dtype), numpy.array([2, 5, 7], dtype)
    for found in (np.divmod(np.array(a), np.array(b)), divmod(np.array(a), np.array(b))):
        for one, expected in zip(found, numpy.divmod(a, b), strict=True):
            assert one.dtype == dtype
            numpy.testing.assert_array_equal(one.asnumpy(), expected)
    truths = np.divmod(np.array([True]), np.array([True]))  # bools are counted as numbers
    assert [(one.dtype, one.tolist()) for one in truths] == [("int8", [1]), ("int8", [0])]


def test_divmod_from_the_left() -> None:
    for found in (
        divmod(7, np.array([2, 4])),
        gemel.compile(lambda x: divmod(7, x))(np.array([2, 4])),
    ):
        assert [part.tolist() for part in found] == [[3, 1], [1, 3]]


# --- inputs that may be left out ------------------------------------------------------------


def test_inputs_may_be_left_out() -> None:
    x, scale, shift = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array(10.0)
    scaled = op("scaled")
    for run in (scaled, gemel.compile(lambda *arrays: scaled(*arrays))):
        assert run(x).tolist() == [1, 2]
        assert run(x, scale).tolist() == [3, 8]
        assert run(x, scale, shift).tolist() == [13, 18]
    assert scaled(x, None).tolist() == scaled(x, scale=None).tolist() == [1, 2]
    assert scaled(x, scale=scale, shift=shift, power=2).tolist() == [13, 26]
    assert scaled(x, scale, None, power=2).tolist() == [3, 16]
    assert scaled(x, scale, None, 2).tolist() == [3, 16], "parameters follow all inputs"


def test_their_gradients() -> None:
    x, scale = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x.attach_grad()
    scale.attach_grad()
    with autograd.record():
        (op("scaled")(x, scale) + op("scaled")(x, power=2)).sum().backward()
    assert x.grad.tolist() == [3 + 2, 4 + 4] and scale.grad.tolist() == [1, 2]


def test_wrong_inputs() -> None:
    x = np.array([1.0, 2.0])
    with pytest.raises(TypeError, match="scaled: scale is missing, but a later input"):
        op("scaled")(x, None, x)
    with pytest.raises(TypeError, match="scaled: scale is missing, but a later input"):
        op("scaled")(x, shift=x)
    with pytest.raises(TypeError, match="scaled: scale is given twice"):
        op("scaled")(x, x, scale=x)
    with pytest.raises(TypeError, match=r"scaled: takes 1 to 3 inputs \(x, scale, shift\), got 0"):
        op("scaled")()
    with pytest.raises(TypeError, match="scaled: unknown keyword 'scales'"):
        op("scaled")(x, scales=x)


# --- calls with more than the operation has -------------------------------------------------


def test_an_extension_takes_what_the_operation_does_not_know() -> None:
    shifted, x = op("shifted"), np.array([1.0, 2.0])
    assert shifted(x).tolist() == [2, 3]
    assert shifted(x, by=3).tolist() == [4, 5]
    assert shifted(x, twice=True).tolist() == [3, 4]
    assert shifted(x, 3, 4).tolist() == shifted(x, by=3, times=4).tolist() == [13, 14]
    assert gemel.compile(lambda v: shifted(v, 3, twice=True))(x).tolist() == [7, 8]
    assert list(inspect.signature(shifted).parameters) == ["x", "by", "times", "twice"]
    assert shifted.__doc__ == "x plus a whole number, so many times."
    with pytest.raises(TypeError, match="shifted: unknown keyword 'bye'; did you mean 'by'"):
        shifted(x, bye=2)
    with pytest.raises(TypeError, match="shifted"):
        shifted(x, 1, 2, 3)


def test_arguments_the_operation_knows_call_no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(np.sum.rules, "extended", lambda x, axis=None: called.append(axis))
    np.sum(np.ones((2, 3)), axis=1)
    np.ones((2, 3)).sum(axis=0, keepdims=True)
    assert not called
    np.ones((2, 3)).sum(1)
    assert called == [1]
