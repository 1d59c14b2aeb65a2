"""Where gemel follows NumPy exactly: views by dtype, integer powers, weights, argument names."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import ArgumentError, DTypeError, GradientError, ShapeError
from gemel.ir.op import Op
from gemel.ir.public import NAMESPACES

RANDOM = numpy.random.default_rng(11)
GRID = RANDOM.standard_normal((4, 6)).astype("float32")
WHOLE = RANDOM.integers(0, 9, (4, 6))
HOLES = numpy.where(RANDOM.random((4, 6)) < 0.3, numpy.nan, GRID)
WEIGHTS = RANDOM.integers(0, 4, (4, 6)).astype("float64") + numpy.eye(4, 6)
METHODS = (
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased",
    "normal_unbiased",
)  # fmt: skip

Call = Callable[[Any, Callable[[Any], Any]], Any]
#: Calls with the same meaning in both namespaces: n is the namespace, a(x) an array of it.
CALLS: dict[str, Call] = {
    "view of the same size": lambda n, a: a(GRID).view("int32"),
    "view of a smaller dtype": lambda n, a: a(GRID).view(n.uint8),
    "view of a larger dtype": lambda n, a: a(GRID).view("int64"),
    "view of rows apart": lambda n, a: a(GRID)[::2].view("float64"),
    "view of turned rows": lambda n, a: a(GRID)[::-1].view(dtype="int16"),
    "view of columns of the same size": lambda n, a: a(GRID).T.view("uint32"),
    "view of nothing": lambda n, a: a(GRID)[:0].view("int16"),
    "view of one": lambda n, a: a(GRID)[:, :1][0].view("int16"),
    "view of a number": lambda n, a: a(GRID)[1, 2].view("int32"),
    "view of complex numbers": lambda n, a: a(GRID[0] + 1j).view("float32"),
    "view as complex numbers": lambda n, a: a(GRID).view("complex64"),
    "view as it is": lambda n, a: a(GRID).view() + a(GRID).view("float32"),
    **{
        f"quantile {method} {share}": lambda n, a, m=method, s=share: n.quantile(
            a(GRID.astype("float64")), s, axis=1, method=m, keepdims=True
        )
        for method in METHODS
        for share in (0.0, 0.3, 0.5, 1.0)
    },
    **{
        f"nanquantile {method}": lambda n, a, m=method: n.nanquantile(
            a(HOLES.astype("float64")), [0.0, 0.25, 0.5, 1.0], axis=0, method=m
        )
        for method in METHODS
    },
    **{
        f"{name} of whole numbers {method}": lambda n, a, f=name, m=method: getattr(n, f)(
            a(WHOLE), [25, 40.0], axis=0, method=m
        )
        for name in ("percentile", "nanpercentile")
        for method in ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
    },
    **{
        f"weighted {name} {axis}": lambda n, a, f=name, x=axis: getattr(n, f)(
            a(HOLES if f.startswith("nan") else GRID),
            [0.0, 0.3, 0.5, 0.99, 1.0],
            x,
            method="inverted_cdf",
            weights=a(WEIGHTS),
        )
        for name in ("quantile", "nanquantile")
        for axis in (None, 0, 1, (0, 1))
    },
    "weights of an axis": lambda n, a: n.percentile(
        a(GRID), 40, 1, method="inverted_cdf", weights=a(WEIGHTS[0]), keepdims=True
    ),
    "weights of turned axes": lambda n, a: n.quantile(
        a(GRID), 0.6, (1, 0), method="inverted_cdf", weights=a(WEIGHTS.T)
    ),
    "weights and NaN": lambda n, a: n.quantile(
        a(HOLES), 0.5, 1, method="inverted_cdf", weights=a(WEIGHTS)
    ),
    "average of axes": lambda n, a: n.average(a(GRID), (1, 0), weights=a(WEIGHTS.T)),
    "powers of integers": lambda n, a: a(WHOLE) ** a(WHOLE),
    "powers of narrow integers": lambda n, a: a(WHOLE.astype("int8")) ** a(WHOLE.astype("uint8")),
    "powers of a number": lambda n, a: 2 ** a(WHOLE),
    "a power of integers": lambda n, a: a(WHOLE) ** 3 + n.power(a(WHOLE), 0),
    "negative powers of floats": lambda n, a: (a(WHOLE) + 1.5) ** -2 + 2.0 ** -a(WHOLE),
    "matvec": lambda n, a: n.matvec(a(GRID.reshape(2, 2, 6)), a(GRID[0])),
    "vecmat": lambda n, a: n.vecmat(a(GRID[:, :4] + 1j), a(GRID)),
    "nothing at a position": lambda n, a: a(GRID)[:, :0][a(numpy.array([1, -4]))],
    "rows of nothing": lambda n, a: n.take(a(GRID[:, :0]), a(numpy.array([[3]])), axis=0),
    "zeros in an order": lambda n, a: n.zeros((2, 3), "int32", "C") + n.ones((3,), "int32", "F"),
    "like in an order": lambda n, a: n.ones_like(a(GRID), "int32", "K", True, (2,)),
    "trim_zeros of axes": lambda n, a: n.trim_zeros(n.pad(a(GRID), ((1, 2), (0, 1)))),
    "trim_zeros of one": lambda n, a: n.trim_zeros(n.pad(a(GRID), 1), "B", axis=-1),
    "sums of nothing, turned": lambda n, a: n.cumsum(a(GRID[:0].reshape(0, 2, 5, 3)).T, axis=1),
    "nanquantile of nothing": lambda n, a: n.nanquantile(a(GRID[:0]), 0.2, axis=0),
    "selected": lambda n, a: n.select(
        [a(WHOLE > 5), a(WHOLE > 2)], [a(WHOLE.astype("int16")), a(WHOLE > 3)], 0
    ),
    "vander of narrow integers": lambda n, a: n.vander(a(WHOLE[0].astype("int8")), 3),
    "covariances of columns": lambda n, a: n.cov(a(GRID[:3]), rowvar=False),
    "a sum of one": lambda n, a: n.cumulative_sum(a(GRID[0, 0])),
    "infinite complex numbers": lambda n, a: n.nan_to_num(
        a(numpy.array([complex(numpy.inf, numpy.nan), 1 + 2j], "complex64"))
    ),
    "multi_dot": lambda n, a: n.linalg.multi_dot([a(GRID), a(GRID.T), a(GRID)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy_at_once_and_in_a_program(name: str) -> None:
    call, given = CALLS[name], []

    def noted(x: Any) -> Any:
        given.append(np.array(x))
        return given[-1]

    expected, results = numpy.asarray(call(numpy, numpy.asarray)), [call(np, noted)]
    if given and not name.startswith("trim_zeros"):  # trim_zeros waits for values

        def program(*inputs: Any) -> Any:
            rest = iter(inputs)
            return call(np, lambda _: next(rest))

        results.append(gemel.compile(program)(*given))
    for found in results:
        assert found.shape == expected.shape
        if expected.dtype.kind in "iub":
            assert found.dtype == expected.dtype
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-5, atol=1e-6)


# --- views by dtype -------------------------------------------------------------------------


def test_a_view_writes_through() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    bits = x.view("int32")
    bits[0] = 0
    x[1] = 4.0
    assert x.tolist() == [0, 4, 3, 4]
    assert bits.tolist() == x.asnumpy().view("int32").tolist()
    x.view("uint8")[-4:] = 0
    assert x.tolist() == [0, 4, 3, 0]
    x.view("int64")[0] = 0
    assert x.tolist() == [0, 0, 3, 0]
    halves = np.array([1.5, -2.0], "bfloat16").view("uint16")
    assert halves.tolist() == [0x3FC0, 0xC000]


def test_a_view_writes_through_in_a_program() -> None:
    def steps(x: Any) -> Any:
        y = x * 1
        bits = y.view("int16")
        bits[1] = 0
        y[1] = 7.0
        return y, bits

    x = np.array([1.0, 2.0])
    for found, expected in zip(gemel.compile(steps)(x), steps(x), strict=True):
        assert found.tolist() == expected.tolist()
    assert steps(x)[0].tolist() == [0, 7]


@pytest.mark.parametrize(
    ("make", "dtype", "says"),
    [
        (lambda: np.ones((2, 3)), "float64", "not a multiple"),
        (lambda: np.ones((2, 4)).T, "float64", "not contiguous"),
        (lambda: np.ones((4, 4))[:, ::2], "uint8", "not contiguous"),
        (lambda: np.ones((4, 3))[:, 1:], "float64", "multiples of 8 bytes"),
        (lambda: np.ones(()), "float64", "without axes"),
    ],
)
def test_views_there_are_none_of(make: Any, dtype: str, says: str) -> None:
    with pytest.raises(ShapeError, match=says) as found:
        make().view(dtype)
    assert isinstance(found.value, ValueError)


def test_gradients_and_views() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = (x.view() * 3).sum() + x.view("int32").astype("float32").sum() * 0
    y.backward()
    assert x.grad.tolist() == [3, 3]
    with autograd.record(), pytest.raises(GradientError, match="change of dtype has no gradient"):
        (x * 2).view("float64")
    with autograd.record(), pytest.raises(DTypeError, match="bfloat16"):
        (x * 2).view("bfloat16")


def test_base() -> None:
    x = np.arange(6.0)
    assert x.base is None and np.zeros((2, 3)).base is None
    part = x[2:4]
    assert part.base.tolist() == x.tolist() and np.shares_memory(part.base, x)
    part.base[0] = 9
    assert x[0].item() == 9
    assert x.reshape(2, 3)[1].base.shape == (6,)


# --- powers ---------------------------------------------------------------------------------


def test_negative_powers_of_integers_are_refused() -> None:
    x, negative = np.array([1, 2]), np.array([1, -1])
    for refused in (
        lambda: x**-1, lambda: np.power(x, -2), lambda: np.power(2, -1),
        lambda: np.array([1], "int8") ** -1, lambda: gemel.compile(lambda v: v**-1)(x),
        lambda: np.power(x, -1, out=np.zeros(2, "int64")), lambda: np.power([2], -1),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match="negative integer powers"):
            refused()
    np.power(2, 200)  # a call like this one was made before
    with pytest.raises(ArgumentError, match="negative integer powers"):
        np.power(2, -1)
    for late in (x**negative, np.power(3, negative), gemel.compile(lambda a, b: a**b)(x, negative)):
        with pytest.raises(ArgumentError, match="negative integer powers"):
            late.wait_to_read()
    held = np.array([1, 2])
    with pytest.raises(ArgumentError, match="negative integer powers"):
        held **= -1
    assert held.tolist() == [1, 2]
    held **= negative
    with pytest.raises(ArgumentError, match="negative integer powers"):
        held.wait_to_read()
    assert (x**1).tolist() == [1, 2]


def test_only_what_depends_on_a_refused_power_fails() -> None:
    @gemel.compile
    def program(a: Any, b: Any) -> Any:
        return (a**b) * 2 + 1, a + b, (a @ a) ** b

    x, negative = np.array([[1, 2], [3, 4]]), np.array([[1, -1], [2, 2]])
    first, second, third = program(x, negative)
    assert second.tolist() == [[2, 1], [5, 6]]
    for failing in (first, third):
        with pytest.raises(ValueError, match="negative integer powers"):
            failing.wait_to_read()
    assert [each.tolist() for each in program(x, x)] == [
        [[3, 9], [55, 513]], [[2, 4], [6, 8]], [[7, 100], [3375, 234256]]
    ]  # fmt: skip


# --- positions, weights ---------------------------------------------------------------------


def test_positions_out_of_range_where_nothing_is_selected() -> None:
    nothing, far = np.zeros((3, 0)), np.array([5])
    for read in (lambda x, i: x[i], lambda x, i: np.take(x, i, axis=0), lambda x, i: x[i, :0]):
        for call in (read, gemel.compile(read)):
            with pytest.raises(IndexError, match="out of bounds"):
                call(nothing, far).wait_to_read()
            assert call(nothing, np.array([2])).shape == (1, 0)
    assert np.zeros((3, 4))[far, np.zeros((0, 1), "int64")].shape == (0, 1)
    with pytest.raises(IndexError):
        np.zeros((2, 3))[far, :0].wait_to_read()


def test_bad_weights() -> None:
    x = np.array([1.0, 2.0])
    for weights in ([-1.0, 2.0], [0.0, 0.0]):
        found = np.quantile(x, 0.5, method="inverted_cdf", weights=np.array(weights))
        with pytest.raises(ValueError, match="weights"):
            found.wait_to_read()
    with pytest.raises(ValueError, match="inverted_cdf"):
        np.quantile(x, 0.5, weights=x)
    with pytest.raises(ShapeError, match="weights"):
        np.quantile(x, 0.5, method="inverted_cdf", weights=np.ones(3))
    with pytest.raises(ValueError, match="did you mean 'hazen'"):
        np.quantile(x, 0.5, method="hasen")


# --- names ----------------------------------------------------------------------------------

#: NumPy's argument names that gemel's functions do not take.
NOT_TAKEN = {
    *("like", "signature", "kwargs", "args", "axes", "subok", "ndmax"),
    "einsum_call",  # internal to NumPy's einsum
    *("encoding", "fix_imports", "max_header_size", "mmap_mode", "allow_pickle"),  # files
    *("a_min", "a_max"),  # by keyword only
}
#: Functions with other argument names: positional-only in the standard, or in NumPy's ``*args``.
OTHERS = ("arange", "einsum", "genfromtxt", "loadtxt", "savetxt", "array2string")


def test_arguments_have_numpys_names() -> None:
    lacking = {}
    for space in ("np", "np.linalg", "np.fft"):
        module = getattr(numpy, space[3:]) if "." in space else numpy
        for name, function in NAMESPACES[space].items():
            theirs = getattr(module, name, None)
            if not callable(theirs) or inspect.isclass(theirs) or isinstance(function, Op):
                continue
            if isinstance(theirs, numpy.ufunc) or name in OTHERS:
                continue
            try:
                wanted = inspect.signature(theirs).parameters.values()
            except ValueError:
                continue
            own = inspect.signature(function).parameters
            if any(p.kind is p.VAR_KEYWORD for p in own.values()):
                continue
            by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
            missing = {p.name for p in wanted if p.kind not in by_place} - set(own)
            if missing - NOT_TAKEN:
                lacking[f"{space}.{name}"] = sorted(missing - NOT_TAKEN)
    assert not lacking


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x: n.sum(a=x, axis=0), lambda n, x: n.squeeze(a=x[:1]), lambda n, x: n.take(
            a=x, indices=n.asarray([1]), axis=0), lambda n, x: n.vstack(tup=(x, x)),
        lambda n, x: n.split(ary=x, indices_or_sections=2)[0], lambda n, x: n.asarray(a=x),
        lambda n, x: n.array(object=[[1.0]]), lambda n, x: n.zeros_like(a=x),
        lambda n, x: n.pad(array=x, pad_width=1), lambda n, x: n.clip(a=x, a_min=0, a_max=1),
        lambda n, x: n.array_equal(a1=x, a2=x), lambda n, x: n.linalg.inv(a=x[:, :4] + n.eye(4)),
        lambda n, x: n.cumsum(a=x, axis=1), lambda n, x: n.round(a=x, decimals=1),
        lambda n, x: n.diff(a=x), lambda n, x: n.real(val=x), lambda n, x: n.size(a=x),
        lambda n, x: n.transpose(a=x), lambda n, x: n.median(a=x, axis=0),
    ],
)  # fmt: skip
def test_the_first_array_by_name(call: Any) -> None:
    expected = numpy.asarray(call(numpy, GRID))
    numpy.testing.assert_allclose(
        numpy.asarray(call(np, np.array(GRID))), expected, rtol=1e-4, atol=1e-6
    )


def test_names_shared_with_numpy() -> None:
    assert np.issubdtype(np.float32, np.floating) and not np.issubdtype("int32", np.inexact)
    assert np.double is np.float64 and np.intc is np.int32 and np.ubyte is np.uint8
    assert np.linalg.LinAlgError is numpy.linalg.LinAlgError and "errstate" in dir(np)
    state = np.random.RandomState(3)
    first = state.randn(2, 3)
    assert pickle.loads(pickle.dumps(state)).rand(2).tolist() == state.rand(2).tolist()
    state.seed(3)
    assert state.randn(2, 3).tolist() == first.tolist()


# --- out of npx -----------------------------------------------------------------------------

#: Functions of npx composed of operations, called with `out`: (function, shapes of results).
FILLED: tuple[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    (lambda x, **out: npx.softmax(x, **out), ((4, 6),)),
    (lambda x, **out: npx.activation(x, "tanh", **out), ((4, 6),)),
    (lambda x, **out: npx.topk(x, 2, ret_typ="value", **out), ((4, 2),)),
    (lambda x, **out: npx.topk(x, 2, ret_typ="both", dtype="float32", **out), ((4, 2), (4, 2))),
    (lambda x, **out: npx.one_hot(x[0] * 0, depth=3, **out), ((6, 3),)),
    (lambda x, **out: npx.fully_connected(x, x, None, 4, no_bias=True, **out), ((4, 4),)),
    (lambda x, **out: npx.layer_norm(x, x[0], x[0], **out), ((4, 6),)),
    (lambda x, **out: npx.batch_flatten(x, **out), ((4, 6),)),
    (lambda x, **out: npx.logsumexp(x, axis=1, **out), ((4,),)),
    (lambda x, **out: npx.pick(x, x[:, 0] * 0, **out), ((4,),)),
    (lambda x, **out: npx.reshape(x, (-5,), **out), ((24,),)),
)  # fmt: skip


@pytest.mark.parametrize(("function", "shapes"), FILLED)
def test_out_of_npx(function: Any, shapes: Any) -> None:
    x = np.array(GRID)

    def filled(x: Any) -> Any:
        made = tuple(np.zeros(shape) for shape in shapes)
        found = function(x, out=made if len(made) > 1 else made[0])
        several = found if len(made) > 1 else (found,)
        assert all(a is b for a, b in zip(several, made, strict=True))
        return tuple(made)

    plain = function(x)
    for results in (filled(x), gemel.compile(filled)(x)):
        for found, expected in zip(results, plain if len(shapes) > 1 else (plain,), strict=True):
            numpy.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5)
    with pytest.raises(TypeError, match="out"):
        function(x, out=[1.0])


def test_functions_of_npx_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(npx.softmax)) is npx.softmax
    assert "out" in inspect.signature(npx.softmax).parameters


def test_while_loop_needs_max_iterations() -> None:
    for given in ({}, {"max_iterations": None}):
        with pytest.raises(ValueError, match="max_iterations"):
            npx.while_loop(lambda i: i < 3, lambda i: (i, [i + 1]), [np.array(0)], **given)
