"""recompute and fuse_sums: what kernels store for each other, and read twice, after fusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import np, npx
from gemel.ir.graph import Entry, Graph, placeholder
from gemel.ir.trace import Trace
from gemel.passes import optimize
from gemel.passes.fuse import fused
from gemel.spec import Spec

SHAPE = (24, 40)
Function = Callable[..., Any]


def kernels(function: Function, *shapes: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """The shapes of the results of each of a function's kernels."""
    with Trace():
        given: list[Entry] = [placeholder(Spec(shape, "float32")) for shape in shapes or (SHAPE,)]
        found = function(*given)
        outputs = found if isinstance(found, tuple) else (found,)
        graph = optimize(Graph(given, outputs))
    return [[spec.shape for spec in n.specs] for n in graph.walk() if n.op is fused]


def standardized(x: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True))


def two_ways(x: Any, g: Any) -> Any:
    y = standardized(x)
    return (y * (g * y).sum(axis=1, keepdims=True)), (g * y).sum(axis=0), g.sum(axis=0)


def crossed(x: Any) -> Any:
    y = np.exp(x) + 1
    return y.sum(axis=0), (y * y).sum(axis=1)


def of_three(x: Any, a: Any, b: Any, c: Any) -> Any:
    y = x * a + b * c
    return y.sum(axis=0), y.max(axis=1)


def drawn(x: Any) -> Any:
    y = npx.dropout(x, p=0.5, mode="always")
    return y.sum(axis=0), y.sum(axis=1)


def of_a_product(x: Any) -> Any:
    y = np.matmul(x, x.T) * 2
    return y.sum(axis=0), y.sum(axis=1)


def wanted_itself(x: Any) -> Any:
    y = x * x
    return y, y.sum(axis=0), y.sum(axis=1)


def of_another(x: Any) -> Any:
    total = x.sum(axis=0)
    return total, (x - total.max()).sum(axis=0)


def big(found: list[list[tuple[int, ...]]], shape: tuple[int, ...] = SHAPE) -> int:
    """How many large arrays the kernels store in memory."""
    return sum(each == shape for given in found for each in given)


@pytest.mark.parametrize(
    ("function", "count", "large"),
    [
        (two_ways, 2, 1),  # only the large result itself is stored
        (crossed, 1, 0),
        (of_three, 4, 1),  # recomputing would read four arrays instead of one
        (wanted_itself, 1, 1),
        (drawn, 1, 1),
    ],
)
def test_which_results_stay_in_memory(function: Function, count: int, large: int) -> None:
    assert big(kernels(function, *[SHAPE] * count)) == large


def test_results_of_products_are_not_recomputed() -> None:
    assert big(kernels(of_a_product), (24, 24)) >= 1


def ends_of_a_product(x: Any, w: Any) -> Any:
    y = np.matmul(x, w)
    z = npx.relu(y) * 2 + 1
    return y.sum(axis=1), z.sum(axis=0)


def test_values_derived_from_another_result_of_a_product_are_not_kept() -> None:
    assert big(kernels(ends_of_a_product, (24, 40), (40, 24)), (24, 24)) == 1
    x, w = (np.array(numpy.random.default_rng(1).standard_normal(s)) for s in ((24, 40), (40, 24)))
    found = gemel.compile(ends_of_a_product)(x, w)
    for one, other in zip(found, ends_of_a_product(x, w), strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-6)


def behind_a_product(x: Any, w: Any, v: Any) -> Any:
    """The gradient of a layer with tanh: two products read y, and the second one its slope, too."""
    y = np.tanh(np.matmul(x, w))
    slope = 1 - y * y
    return np.matmul(y, v), np.matmul(x, w * 2) * slope


def as_a_factor(x: Any, w: Any, v: Any) -> Any:
    y = np.tanh(np.matmul(x, w))
    slope = 1 - y * y
    return np.matmul(y, v), np.matmul(slope, v)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("function", "stored"),
    [(behind_a_product, 2), (as_a_factor, 2)],  # y and the result; y and the factor
)
def test_the_epilogue_of_a_product_recomputes_what_it_reads(
    function: Function, stored: int, dtype: str
) -> None:
    shapes = ((24, 40), (40, 56), (56, 8))
    assert big(kernels(function, *shapes), (24, 56)) == stored
    generator = numpy.random.default_rng(1)
    given = [np.array(generator.standard_normal(s) / 4).astype(dtype) for s in shapes]
    for one, other in zip(gemel.compile(function)(*given), function(*given), strict=True):
        assert one.dtype == other.dtype
        numpy.testing.assert_allclose(
            one.astype("float64").asnumpy(),
            other.astype("float64").asnumpy(),
            rtol=2e-2 if dtype == "bfloat16" else 1e-5,
            atol=1e-2 if dtype == "bfloat16" else 1e-6,
        )


def residual(given: Any, v: Any, bias: Any, w: Any) -> Any:
    """A sum of two arrays, and a network of its standardized values beside it."""
    x = np.matmul(given, w)
    mixed = npx.fully_connected(x.swapaxes(1, 2), v, bias, flatten=False)
    both = x + mixed.swapaxes(1, 2)
    centred = both - both.mean(axis=2, keepdims=True)
    normal = centred / np.sqrt((centred * centred).mean(axis=2, keepdims=True))
    return both + np.matmul(npx.relu(np.matmul(normal, w)), w)


def test_two_arrays_do_not_wait_for_an_epilogue_in_place_of_their_sum() -> None:
    shape = (4, 24, 40)
    assert [shape, shape] in kernels(residual, shape, (24, 24), (24,), (40, 40))


def test_sums_of_the_same_array_are_one_kernel() -> None:
    assert kernels(two_ways, SHAPE, SHAPE)[-1] == [(40,), (40,)]
    assert len(kernels(lambda x, g: ((x * g).sum(axis=0), g.sum(axis=0)), SHAPE, SHAPE)) == 1


def test_sums_that_are_put_together_are_one_kernel() -> None:
    """Like the gradients of a depthwise convolution's weights: one for each kernel position."""

    def places(x: Any, g: Any) -> Any:
        return np.stack([(x[i : i + 20] * g).sum(axis=0) for i in range(4)]) * 2

    found = kernels(places, SHAPE, (20, 40))
    assert found[0] == [(40,)] * 4


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: (x.sum(axis=0), x.sum(axis=1)), 2),  # different loops
        (lambda x, y: (x.sum(axis=0), y.sum(axis=0)), 2),  # no input in common
        (of_another, 2),  # one needs the other's result
    ],
)
def test_sums_that_stay_apart(function: Function, count: int) -> None:
    found = kernels(function, *[SHAPE] * function.__code__.co_argcount)
    assert len(found) >= count


@pytest.mark.parametrize("function", [two_ways, crossed, of_three, wanted_itself, of_another])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_numbers_are_numpys(function: Function, dtype: str) -> None:
    generator = numpy.random.default_rng(7)
    count = function.__code__.co_argcount
    compiled = gemel.compile(function)
    tolerance = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}[dtype]
    for shape in ((24, 40), (7, 33), (40, 40), (0, 4)):
        given = [generator.uniform(0.5, 2, shape).astype(dtype) for _ in range(count)]
        found = compiled(*map(np.array, given))
        outside = function(*map(np.array, given))
        for a, b in zip(found, outside, strict=True):
            scale = tolerance * max(1.0, float(numpy.abs(b.asnumpy()).max(initial=0)))
            numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=tolerance, atol=scale)


def test_sizes_that_happen_to_be_equal_are_asked_nothing() -> None:
    """Where the loops fit only at the sizes seen, nothing is recomputed, so no guard is needed."""
    compiled = gemel.compile(two_ways)
    for shape in ((8, 8), (8, 5), (3, 8)):
        x = np.random.normal(size=shape)
        for a, b in zip(compiled(x, x), two_ways(x, x), strict=True):
            numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-4)
    assert compiled.traces == 1


def normalized(x: Any, variance: Any, scale: Any, mean: Any, shift: Any) -> Any:
    """A normalization with given statistics of each channel (a column here)."""
    factor = scale / np.sqrt(variance + 1e-3)
    return np.maximum(x * factor + (shift - mean * factor), 0)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        pytest.param(40, [[(24,), (24,)], [(40, 24)]], id="many rows: prepared once"),
        pytest.param(20, [[(20, 24)]], id="few rows: prepared in each"),
    ],
)
def test_numbers_of_columns_are_prepared_once_for_many_rows(rows: int, found: Any) -> None:
    columns = [(24,)] * 4
    assert sorted(kernels(normalized, (rows, 24), *columns)) == sorted(found)
    values = [
        numpy.random.default_rng(n).uniform(1, 2, s) for n, s in enumerate([(rows, 24), *columns])
    ]
    got = gemel.compile(normalized)(*(np.array(v, dtype="float64") for v in values))
    x, variance, scale, mean, shift = values
    wanted = numpy.maximum((x - mean) * scale / numpy.sqrt(variance + 1e-3) + shift, 0)
    numpy.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-12)


def test_few_operations_are_repeated_for_many_rows() -> None:
    """A kernel of its own would take longer."""
    function = lambda x, a: np.exp(a) * (x + 1) + a  # noqa: E731
    assert kernels(function, (400, 24), (24,)) == [[(400, 24)]]
    assert kernels(standardized, (400, 24)) == [[(400, 24)]]  # numbers of rows, by the same loops


def prepared(a: Any) -> Any:
    return np.exp(np.sqrt(np.sin(a) + 2)) / 3


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        pytest.param(lambda x, a: prepared(a) * x.sum(axis=1), (24,), id="rows"),
        pytest.param(lambda x, a: prepared(a) * x.sum(axis=0), (400,), id="columns"),
        pytest.param(lambda x, a: prepared(a) * x.sum(), (), id="all"),
    ],
)
def test_what_stands_beside_a_sum_is_not_repeated(function: Function, shape: Any) -> None:
    """It runs along the loops that are not reduced, so it is computed once in one kernel, too."""
    assert kernels(function, (24, 400), shape) == [[shape]]
