"""NumPy's common keywords -- out, where, initial, dtype, casting -- as NumPy means them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.dtype import float32
from gemel.errors import DTypeError, ShapeError, TraceError
from gemel.ir.graph import placeholder
from gemel.ir.op import Op
from gemel.ir.public import NAMESPACES
from gemel.ir.trace import Trace
from gemel.spec import Spec

RANDOM = numpy.random.default_rng(5)
UNIVERSAL = sorted(
    name for name, op in NAMESPACES["np"].items()
    if isinstance(op, Op) and "casting" in op.common and "where" in op.common
    and isinstance(getattr(numpy, name, None), numpy.ufunc)
)  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std")
NAN_REDUCTIONS = ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd")
#: Keywords of NumPy's functions that gemel's do not need: for records, subclasses and so on.
NOT_OURS = {"signature", "subok", "like", "axes", "kwargs", "args", "weights", "object"}
#: For real numbers these return the array itself.
VIEWS = ("conj", "conjugate")
ORDER_OF_RECORDS = ("sort", "argsort", "partition", "argpartition")


def sides(name: str) -> tuple[Any, ...]:
    whole = {"gcd", "lcm", "bitwise_count", "ldexp"} | {n for n in UNIVERSAL if "bitwise" in n}
    whole |= {"invert", "left_shift", "right_shift"}
    arity = NAMESPACES["np"][name].arity
    found = [RANDOM.integers(1, 5, (3, 4)).astype("int32") for _ in range(arity)]
    return tuple(found) if name in whole else tuple(x.astype("float32") / 8 + 1 for x in found)


def same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", UNIVERSAL)
def test_out_and_where_of_universal_functions(name: str) -> None:
    """The result is the array given as `out`; it keeps its elements where `where` is False."""
    given = sides(name)
    mine, theirs = [np.array(x) for x in given], getattr(numpy, name)
    with numpy.errstate(all="ignore"):
        plain = theirs(*given)
        many = isinstance(plain, tuple)
        results = plain if many else (plain,)
        mask = RANDOM.random((3, 4)) < 0.5
        for where in (True, mask):
            outs = tuple(np.full(r.shape, 1).astype(r.dtype) for r in results)
            kept = tuple(numpy.full(r.shape, 1).astype(r.dtype) for r in results)
            found = getattr(np, name)(
                *mine, out=outs if many else outs[0],
                where=where if where is True else np.array(where),
            )  # fmt: skip
            theirs(*given, out=kept, where=where)
            for got, out, expected in zip(found if many else (found,), outs, kept, strict=True):
                assert got is out
                same(out, expected)


@pytest.mark.parametrize("name", ["add", "sqrt", "multiply", "less", "floor_divide", "power"])
def test_dtype_is_what_is_computed_in(name: str) -> None:
    given = sides(name)
    dtype = "bool" if name == "less" else "float64"
    found = getattr(np, name)(*map(np.array, given), dtype=dtype)
    expected = getattr(numpy, name)(*given, dtype=dtype)
    assert found.dtype == expected.dtype
    same(found, expected)
    if name != "less":
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-15)


def test_dtype_of_numbers_and_narrow_ones() -> None:
    assert np.add(1, 2, dtype="float64").dtype == "float64"
    assert np.add(np.array([200], "uint8"), np.array([100], "uint8"), dtype="int32").item() == 300
    assert np.sqrt(np.array([4], "int8"), dtype="float16").dtype == "float16"
    with pytest.raises(DTypeError, match="unsafe cast"):
        np.add(np.array([1.5]), 1, dtype="int32")
    assert np.add(np.array([1.5]), 1, dtype="int32", casting="unsafe").tolist() == [2]
    with pytest.raises(DTypeError, match="float32"):
        np.sqrt(np.array([4]), dtype="int32")
    with pytest.raises(DTypeError):
        np.equal(np.array([4]), 4, dtype="float32")
    with pytest.raises(ValueError, match="casting"):
        np.add(np.array([1.5]), 1, dtype="int32", casting="sloppy")
    with pytest.raises(ValueError, match="order"):
        np.add(np.array([1.5]), 1, order="Z")


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
@pytest.mark.parametrize("name", REDUCTIONS + NAN_REDUCTIONS)
def test_where_and_initial_of_reductions(name: str, axis: Any) -> None:
    x = RANDOM.standard_normal((3, 4, 2)).astype("float32")
    x[0, 1, 0] = numpy.nan if name.startswith("nan") else 0
    mask = RANDOM.random((3, 4, 1)) < 0.6
    mask[0], mask[:, 2] = True, True
    options: dict[str, Any] = {}
    if name.removeprefix("nan") in ("sum", "prod", "max", "min"):
        options = {"initial": 0.5}
    for keepdims in (False, True):
        expected = getattr(numpy, name)(x, axis=axis, where=mask, keepdims=keepdims, **options)
        found = getattr(np, name)(
            np.array(x), axis=axis, where=np.array(mask), keepdims=keepdims, **options
        )
        same(found, numpy.asarray(expected))
        out = np.zeros(found.shape, found.dtype)
        assert getattr(np, name)(np.array(x), axis=axis, out=out, keepdims=keepdims) is out
        same(out, numpy.asarray(getattr(numpy, name)(x, axis=axis, keepdims=keepdims)))


def test_reductions_of_nothing_begin_with_what_is_given() -> None:
    empty = np.zeros((0, 3))
    assert np.max(empty, axis=0, initial=2.0).tolist() == [2, 2, 2]
    assert np.min(empty, axis=0, initial=2.0, keepdims=True).shape == (1, 3)
    assert np.sum(empty, initial=4.0).item() == 4
    with pytest.raises(TypeError, match="initial"):
        np.max(np.ones(3), where=np.array([True, False, True]))
    assert numpy.isnan(np.mean(np.ones(3), where=np.zeros(3, "bool")).item())
    with pytest.raises(DTypeError, match="must be bool"):
        np.sum(np.ones(3), where=np.ones(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x, o: n.cumsum(x, 0, out=o((3, 4))),
        lambda n, x, o: n.clip(x, 0, 1, out=o((3, 4))),
        lambda n, x, o: n.clip(x, 0, 1, o((3, 4))),
        lambda n, x, o: n.round(x, 1, out=o((3, 4))),
        lambda n, x, o: n.dot(x, x.T, out=o((3, 3))),
        lambda n, x, o: n.matmul(x, x.T, out=o((3, 3))),
        lambda n, x, o: n.take(x, n.array([0, 2]), 0, out=o((2, 4)), mode="clip"),
        lambda n, x, o: n.concatenate([x, x], out=o((6, 4))),
        lambda n, x, o: n.stack([x, x], 1, out=o((3, 2, 4))),
        lambda n, x, o: n.outer(x[0], x[1], out=o((4, 4))),
        lambda n, x, o: n.einsum("ij,kj->ik", x, x, out=o((3, 3))),
        lambda n, x, o: n.median(x, 1, out=o((3,))),
        lambda n, x, o: n.quantile(x, 0.3, 0, out=o((4,))),
        lambda n, x, o: n.trace(x, out=o(())),
        lambda n, x, o: n.ptp(x, 0, out=o((4,))),
        lambda n, x, o: n.nancumsum(x, 1, out=o((3, 4))),
        lambda n, x, o: n.compress(n.array([True, False, True]), x, 0, out=o((2, 4))),
        lambda n, x, o: n.multiply(x, 2, out=o((5, 3, 4))),
        lambda n, x, o: n.add(x, x, o((3, 4))),
        lambda n, x, o: n.cumulative_sum(x, axis=1, out=o((3, 4))),
        lambda n, x, o: n.vecdot(x, x, out=o((3,))),
        lambda n, x, o: x.sum(0, out=o((4,))),
        lambda n, x, o: x.mean(axis=1, dtype="float64", out=o((3,))),
    ],
)  # fmt: skip
def test_out_of_other_functions(call: Any) -> None:
    x = RANDOM.standard_normal((3, 4)).astype("float32")
    made: list[Any] = []

    def out(shape: Any) -> Any:
        made.append(np.zeros(shape))
        return made[-1]

    found = call(np, np.array(x), out)
    assert found is made[0]
    same(found, call(numpy, x, lambda shape: numpy.zeros(shape, "float32")))


def test_out_refuses_invalid_targets() -> None:
    x = np.array([1.5, 2.5])
    with pytest.raises(DTypeError, match=r"unsafe cast.*float32.*int32"):
        np.add(x, x, out=np.zeros(2, "int32"))
    with pytest.raises(DTypeError, match="unsafe cast"):
        np.sum(x, out=np.zeros((), "int32"))
    with pytest.raises(ShapeError, match=r"\[2\] cannot be stored in out of shape \[3\]"):
        np.add(x, x, out=np.zeros(3))
    with pytest.raises(TypeError, match="must be a gemel array"):
        np.add(x, x, out=[0.0, 0.0])
    with pytest.raises(TypeError, match="2 results"):
        np.divmod(x, x, out=(np.zeros(2),))
    with pytest.raises(TypeError, match="takes 2 inputs"):
        np.add(x, x, x, x)
    out = np.zeros(2, "int32")
    assert np.add(x, x, out=out, casting="unsafe") is out
    assert out.tolist() == [3, 5]
    assert np.modf(x, out=(None, np.zeros(2)))[1].tolist() == [1, 2]


def test_out_overlaps_and_views() -> None:
    x = np.arange(6.0)
    np.add(x[:-1], x[1:], out=x[1:])
    assert x.tolist() == [0, 1, 3, 5, 7, 9]
    grid = np.zeros((3, 4))
    np.exp(np.zeros(3), out=grid[:, 1])
    assert grid.asnumpy()[:, 1].tolist() == [1, 1, 1]
    assert np.multiply(x, 2, out=x[::-1]).tolist() == [0, 2, 6, 10, 14, 18]
    empty = np.zeros((0, 3))
    assert np.add(empty, 1, out=empty) is empty


def test_in_programs_they_mean_the_same() -> None:
    def steps(x: Any, mask: Any) -> Any:
        held = np.zeros_like(x)
        np.multiply(x, 3, out=held, where=mask)
        held += np.sum(x, axis=0, where=mask, initial=1.0)
        return np.add(held, x, dtype="float64"), np.exp(x, out=held)

    compiled = gemel.compile(steps)
    for rows in (3, 5):
        x = np.array(RANDOM.standard_normal((rows, 4)).astype("float32"))
        mask = x > 0
        for found, expected in zip(compiled(x, mask), steps(x, mask), strict=True):
            assert found.dtype == expected.dtype
            same(found, expected.asnumpy())


def test_programs_write_into_arrays_from_outside_when_they_run() -> None:
    held = np.zeros(3)
    function = gemel.compile(lambda x: np.add(x, 1, out=held))
    for n in (1, 2):
        function(np.full(3, n))
        assert held.tolist() == [n + 1] * 3
    # A graph made without a program has no access to arrays outside it, so nothing is written.
    with Trace(), pytest.raises(TraceError, match="from outside"):
        np.add(placeholder(Spec((3,), float32)), 1, out=held)
    assert held.tolist() == [3, 3, 3]


def test_out_is_an_assignment_on_the_tape() -> None:
    x = np.array([1.0, 2.0, 3.0])
    mask = np.array([True, False, True])
    x.attach_grad()
    with autograd.record():
        held = np.zeros(3)
        np.multiply(x, x, out=held, where=mask)
        y = np.sum(held * 2, where=mask) + np.prod(x, where=mask) + np.var(x, where=mask)
    y.backward()
    # 4 x where selected; the product of the other; 2 (x - mean) / n
    assert x.grad.tolist() == [4 + 3 - 1, 0, 12 + 1 + 1]


def test_signatures_have_numpys_keywords() -> None:
    lacking = {}
    for name, function in NAMESPACES["np"].items():
        theirs = getattr(numpy, name, None)
        if not callable(theirs) or inspect.isclass(theirs):
            continue
        try:
            wanted = inspect.signature(theirs).parameters
        except ValueError:
            continue
        common = {
            "out",
            "where",
            "initial",
            "dtype",
            "casting",
            "order",
            "keepdims",
            "ddof",
            "mean",
        }
        own = set(inspect.signature(function).parameters)
        missing = (set(wanted) & common) - own - NOT_OURS
        if name in ORDER_OF_RECORDS:
            missing -= {"order"}
        if isinstance(theirs, numpy.ufunc):  # gemel's vecdot and such have no keepdims
            missing -= {"keepdims"}
        if missing and name not in VIEWS:
            lacking[name] = sorted(missing)
    assert not lacking


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("ddof", [0, 1])
def test_about_a_mean_that_is_known(name: str, axis: Any, keepdims: bool, ddof: int) -> None:
    x = RANDOM.normal(size=(4, 3, 5)).astype("float32")
    middle = numpy.mean(x, axis=axis, keepdims=True) + numpy.float32(0.25)
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims, "ddof": ddof}
    wanted = getattr(numpy, name)(x, mean=middle, **options)
    ours = getattr(np, name)
    mask = x > 0
    for found, expected in [
        (ours(np.array(x), mean=np.array(middle), **options), wanted),
        (
            gemel.compile(lambda x, m: ours(x, mean=m, **options))(*map(np.array, (x, middle))),
            wanted,
        ),
        (
            ours(np.array(x), mean=np.array(middle), where=np.array(mask), **options),
            getattr(numpy, name)(x, mean=middle, where=mask, **options),
        ),
    ]:
        assert found.dtype == "float32" and found.shape == numpy.shape(expected)
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5)


def test_the_gradient_about_a_mean_that_is_known() -> None:
    x, middle = np.array([1.0, 2.0, 4.0]), np.array([2.0])
    x.attach_grad(), middle.attach_grad()
    with autograd.record():
        y = np.var(x, mean=middle)
    y.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), [-2 / 3, 0, 4 / 3], rtol=1e-6)
    numpy.testing.assert_allclose(middle.grad.asnumpy(), [-2 / 3], rtol=1e-6)


def test_the_order_of_a_sum_of_products() -> None:
    a, b, c = (np.ones(shape) for shape in ((2, 30), (30, 4), (4, 50)))
    order, account = np.einsum_path("ij,jk,kl->il", a, b, c)
    theirs, their_account = numpy.einsum_path("ij,jk,kl->il", *(x.asnumpy() for x in (a, b, c)))
    assert order == theirs and account == their_account
    assert np.einsum_path(a, [0, 1], b, [1, 2], optimize="optimal")[0] == ["einsum_path", (0, 1)]
    found = np.einsum("ij,jk,kl->il", a, b, c, optimize=order)
    assert found.asnumpy().tolist() == np.einsum("ij,jk,kl->il", a, b, c).asnumpy().tolist()
    with pytest.raises(ShapeError):
        np.einsum_path("ij,jk->ik", a)


@pytest.mark.parametrize("run", [lambda f: f, gemel.compile], ids=["called", "compiled"])
def test_negative_powers_that_where_leaves_out_are_no_errors(run: Any) -> None:
    base, exponent = np.array([2, 3]), np.array([-1, 2])
    power = run(lambda a, b, mask: np.power(a, b, where=mask))
    assert power(base, exponent, np.array([False, True])).tolist() == [0, 9]
    with pytest.raises(ValueError, match="negative integer powers"):
        power(base, exponent, np.array([True, True])).tolist()


@pytest.mark.parametrize("casting", ["safe", "equiv", "no", "same_kind"])
@pytest.mark.parametrize("pair", [("int32", "float16"), ("int8", "float64"), ("int8", "int8")])
def test_casting_holds_for_inputs(casting: Any, pair: tuple[str, str]) -> None:
    """int32 and float16 are computed in float16 here, in float64 by NumPy: no safe cast."""
    for name in ("minimum", "fmin", "less", "multiply", "divide", "hypot", "logical_and"):
        given = [np.ones(2, dtype=dtype) for dtype in pair]
        plain = [x.asnumpy() for x in given]
        try:
            getattr(numpy, name)(*plain, casting=casting)
            allowed = name == "logical_and" or (casting, pair[0]) != ("safe", "int32")
        except TypeError:
            allowed = False

        def cast(*given: Any, name: str = name) -> Any:
            return getattr(np, name)(*given, casting=casting)

        for function in (cast, gemel.compile(cast)):
            if allowed:
                assert function(*given).shape == (2,)
            else:
                with pytest.raises(DTypeError, match=f"{name}: unsafe cast: .*{casting}"):
                    function(*given)
    with pytest.raises(DTypeError, match="matmul: unsafe cast"):
        np.matmul(np.ones((2, 2)), np.ones((2, 2), dtype="int8"), casting="no")
    assert np.add(np.ones(1), 1, casting="no").tolist() == [2]
