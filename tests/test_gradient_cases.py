"""Difficult gradients: ties, infinities, several uses, views, branches, dtypes."""

from __future__ import annotations

from typing import Any

import numpy
import op_table
import pytest
from op_table import FLOATING, OPS

import gemel
from gemel import autograd, np, npx
from gemel.errors import GradientError
from gemel.ir.op import Op

SEED = 3


# --- values the rules must survive ------------------------------------------------------------


def slope_of(function: Any, values: Any, dtype: str = "float32", head: Any = None) -> Any:
    """The gradient of function(x).sum(), or with `head`, at these values."""
    x = np.array(values, dtype=dtype)
    x.attach_grad()
    with autograd.record():
        y = function(x)
    y.backward(None if head is None else np.array(head, dtype=y.dtype))
    return x.grad.asnumpy()


def both_ways(function: Any, values: Any, **options: Any) -> Any:
    """The imperative gradient, which must equal the compiled one."""
    first = slope_of(function, values, **options)
    second = slope_of(gemel.compile(function), values, **options)
    numpy.testing.assert_array_equal(first, second)
    return first


INF, NAN = float("inf"), float("nan")


def test_ties_share_the_gradient_of_max_and_min() -> None:
    tied = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]
    third = 1 / 3
    expected = [[0, 0.5, 0.5], [third, third, third]]
    numpy.testing.assert_allclose(both_ways(lambda x: x.max(axis=1), tied), expected, rtol=1e-6)
    negated = [[-v for v in row] for row in tied]
    numpy.testing.assert_allclose(both_ways(lambda x: x.min(axis=1), negated), expected, rtol=1e-6)


def test_infinite_extremes_get_the_gradient() -> None:
    assert both_ways(lambda x: x.max(), [1.0, INF, -INF]).tolist() == [0, 1, 0]
    assert both_ways(lambda x: x.min(), [1.0, INF, -INF]).tolist() == [0, 0, 1]
    assert both_ways(lambda x: x.max(), [-INF, -INF]).tolist() == [0.5, 0.5]


def test_ties_of_maximum_and_minimum_go_to_the_first() -> None:
    for function in (np.maximum, np.minimum):
        a, b = np.array([1.0, 2.0, 0.0]), np.array([1.0, 3.0, -0.0])
        a.attach_grad()
        b.attach_grad()
        with autograd.record():
            y = function(a, b)
        y.backward()
        total = a.grad.asnumpy() + b.grad.asnumpy()
        assert total.tolist() == [1, 1, 1]
        assert a.grad.asnumpy()[0] == 1


def test_relu_and_its_like_at_zero_and_infinity() -> None:
    values = [-1.0, -0.0, 0.0, 2.0, INF, -INF]
    assert both_ways(npx.relu, values).tolist() == [0, 0, 0, 1, 1, 0]
    leaky = both_ways(lambda x: npx.leaky_relu(x, slope=0.5), values)
    assert leaky.tolist() == [0.5, 0.5, 0.5, 1, 1, 0.5]
    assert both_ways(np.abs, values).tolist() == [-1, 0, 0, 1, 1, -1]
    assert both_ways(npx.sigmoid, values)[-2:].tolist() == [0, 0]
    assert both_ways(np.tanh, values)[-2:].tolist() == [0, 0]
    assert both_ways(npx.softplus, values)[-2:].tolist() == [1, 0]


@pytest.mark.parametrize("function", [npx.softmax, npx.log_softmax])
@pytest.mark.parametrize("dtype", FLOATING)
def test_softmax_of_large_and_masked_elements(function: Any, dtype: str) -> None:
    """A masked element (-inf) has no effect; large elements do not overflow."""
    values = [[6e4, -6e4, 0.0], [1.0, 2.0, -INF], [5.0, 5.0, 5.0]]
    head = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    found = both_ways(function, values, dtype=dtype, head=head)
    assert numpy.isfinite(found).all()
    assert found[1, 2] == 0
    numpy.testing.assert_allclose(found.sum(axis=1), 0, atol=2e-3 if dtype == "float16" else 1e-6)


def test_product_with_zeros() -> None:
    assert both_ways(lambda x: x.prod(), [2.0, 3.0, 4.0]).tolist() == [12, 8, 6]
    assert both_ways(lambda x: x.prod(), [2.0, 0.0, 4.0]).tolist() == [0, 8, 0]
    assert both_ways(lambda x: x.prod(), [0.0, 0.0, 4.0]).tolist() == [0, 0, 0]


def test_a_product_whose_parts_overflow() -> None:
    for large, dtype in ((1e30, "float32"), (256.0, "float16")):
        start = [large, large, 1 / large, 1 / large]
        found = both_ways(lambda x: x.prod(), start, dtype=dtype)
        if not numpy.isfinite(np.array(start, dtype=dtype).prod().item()):
            pytest.skip("this device multiplies in an order in which the product overflows, too")
        numpy.testing.assert_allclose(found, start[::-1], rtol=1e-6)


def test_power_at_zero() -> None:
    assert both_ways(lambda x: x**2, [0.0, -3.0]).tolist() == [0, -6]
    assert both_ways(lambda x: x**1, [0.0, -3.0]).tolist() == [1, 1]
    assert both_ways(lambda x: x**0, [0.0, -3.0]).tolist() == [0, 0]
    found = both_ways(lambda x: 2.0**x, [0.0, 1.0])
    numpy.testing.assert_allclose(found, [numpy.log(2), 2 * numpy.log(2)], rtol=1e-6)
    assert both_ways(lambda x: 0.0**x, [2.0, 3.0]).tolist() == [0, 0]


def slope_of_slope(function: Any, values: Any) -> Any:
    """The gradient of the sum of function's gradient."""
    x = np.array(values, dtype="float64")
    x.attach_grad()
    with autograd.record():
        total = autograd.grad(function(x), [x], create_graph=True)[0].sum()
    total.backward()
    return x.grad.asnumpy()


def test_var_and_sqrt_of_nothing_but_equals() -> None:
    assert both_ways(lambda x: x.var(), [2.0, 2.0]).tolist() == [0, 0]
    assert both_ways(np.sqrt, [0.0]).tolist() == [INF]


DEVIATIONS = {
    "std": lambda x: x.std(axis=1),
    "with ddof": lambda x: np.std(x, axis=1, ddof=1),
    "about a mean": lambda x: np.std(x, axis=1, mean=np.array([[2.0], [3.0]])),
    "of selected": lambda x: np.std(x, axis=1, where=np.array([True, True, False])),
    "without NaN": lambda x: np.nanstd(x, axis=1),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviation_of_nothing_but_equals(name: str) -> None:
    """Its slope is 0; a deviation that is NaN has the slope NaN."""
    function, values = DEVIATIONS[name], [[2.0, 2.0, 2.0], [1.0, 5.0, 3.0]]
    found = both_ways(function, values, dtype="float64")
    assert found[0].tolist() == [0, 0, 0]
    assert (found[1, :2] != 0).all() and numpy.isfinite(found).all()
    for ran in (function, gemel.compile(function)):
        second = slope_of_slope(ran, values)
        assert second[0].tolist() == [0, 0, 0] and numpy.isfinite(second).all()
    if name != "without NaN":
        values[0][0] = NAN
        found = both_ways(function, values, dtype="float64")
        assert numpy.isnan(found[0, :2]).all() and numpy.isfinite(found[1]).all()


@pytest.mark.parametrize("order", [-1, 0.5, 1, 1.5, 2, 3, INF])
def test_vector_norms_with_zeros(order: float) -> None:
    """Slopes are finite, as torch's are."""

    def function(x: Any) -> Any:
        return np.linalg.vector_norm(x, axis=1, ord=order)

    found = both_ways(function, [[0.0, 0.0], [0.0, 2.0], [NAN, 1.0]], dtype="float64")
    assert found[0].tolist() == [0, 0]
    numpy.testing.assert_allclose(found[1], [0, 0 if order < 0 else 1], rtol=1e-12)
    if order not in (1, INF):
        assert numpy.isnan(found[2]).all()


def test_ramps_on_one_side_only() -> None:
    for widths, slope in (((3, 0), [2, 1, 1]), ((0, 3), [1, 1, 2]), ((0, 0), [1, 1, 1])):

        def ramp(x: Any, widths: Any = widths) -> Any:
            return np.pad(x, widths, mode="linear_ramp", end_values=7)

        found = both_ways(ramp, [1.0, 2.0, 4.0], dtype="float64")
        numpy.testing.assert_allclose(found, slope, rtol=1e-12)


def test_clip_at_its_bounds() -> None:
    found = both_ways(lambda x: np.clip(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0, NAN])
    assert found.tolist() == [0, 1, 1, 1, 0, 1]


def test_clip_with_bounds_that_cross() -> None:
    """The upper bound is the result everywhere, so it gets the gradient."""
    x, low, high = (np.array(v) for v in ([0.0, 2.0, 9.0], [3.0, 3.0, 3.0], [1.0, 1.0, 1.0]))
    for array in (x, low, high):
        array.attach_grad()
    with autograd.record():
        y = np.clip(x, low, high)
    y.backward()
    assert y.tolist() == [1, 1, 1]
    assert [a.grad.tolist() for a in (x, low, high)] == [[0] * 3, [0] * 3, [1] * 3]


def test_where_stops_nan_of_the_side_not_taken() -> None:
    found = both_ways(lambda x: np.where(x > 0, x * 2, x * 3), [1.0, -1.0])
    assert found.tolist() == [2, 3]


# --- several uses, several results ------------------------------------------------------------


def test_broadcast_inputs_get_sums() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        return (a * b + c).sum()

    shapes = [(2, 1, 4), (3, 1), ()]
    values = [numpy.random.default_rng(0).random(shape) for shape in shapes]
    for call in (function, gemel.compile(function)):
        arrays = [np.array(v, dtype="float64") for v in values]
        for array in arrays:
            array.attach_grad()
        with autograd.record():
            y = call(*arrays)
        y.backward()
        a, b, _ = values
        numpy.testing.assert_allclose(arrays[0].grad.asnumpy(), numpy.full((2, 1, 4), b.sum()))
        numpy.testing.assert_allclose(arrays[1].grad.asnumpy(), numpy.full((3, 1), a.sum()))
        assert arrays[2].grad.item() == 24


def test_split_with_one_result_used() -> None:
    def function(x: Any) -> Any:
        return (np.split(x, 3)[1] * 2).sum()

    assert both_ways(function, [1.0] * 6).tolist() == [0, 0, 2, 2, 0, 0]


@pytest.mark.parametrize("axis", [0, 1])
def test_split_into_one_part(axis: int) -> None:
    def function(x: Any) -> Any:
        return (np.split(x, 1, axis=axis)[0] * np.array([1.0, 2.0, 3.0])).sum()

    assert both_ways(function, [[1.0] * 3] * 2).tolist() == [[1, 2, 3]] * 2


def test_split_into_unequal_parts_and_joined_in_another_order() -> None:
    def function(x: Any) -> Any:
        a, b, c = np.split(x, (1, 3))
        return np.concatenate([c * 3, a, b * 2])

    assert both_ways(function, [1.0] * 5).tolist() == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("cuts", [(3, 1), (4, 2, 3), (-2, 1), (9, 0), (1, 9), (2, 2)], ids=str)
@pytest.mark.parametrize("split", [np.split, np.array_split, np.hsplit])
def test_split_at_places_that_go_back(split: Any, cuts: tuple[int, ...]) -> None:
    """Such parts overlap, or leave elements out."""

    def function(x: Any) -> Any:
        return sum((part * part * (i + 2)).sum() for i, part in enumerate(split(x, cuts)))

    wanted = numpy.zeros(4)
    for i, places in enumerate(numpy.split(numpy.arange(4), cuts)):
        wanted[places] += 2 * (i + 2)
    assert both_ways(function, [1.0] * 4).tolist() == wanted.tolist()


def test_gather_with_repeated_positions_adds() -> None:
    positions = np.array([0, 2, 0, -1, 0])
    assert both_ways(lambda x: x.take(positions, axis=0), [1.0, 2.0, 3.0]).tolist() == [3, 0, 2]
    assert both_ways(lambda x: x[positions] * x[positions], [1.0, 2.0, 3.0]).tolist() == [6, 0, 12]


def test_several_index_arrays() -> None:
    rows, columns = np.array([0, 1, 1]), np.array([1, 0, 0])
    found = both_ways(lambda x: x[rows, columns], [[1.0, 2.0], [3.0, 4.0]])
    assert found.tolist() == [[0, 1], [2, 0]]


def test_masks() -> None:
    """Only selected elements get a gradient; other uses of the array add theirs."""
    values = [[3.0, 1.0], [2.0, 5.0]]
    found = slope_of(lambda x: x[x > 1.5].sum() * 2 + x.sum(), values)
    assert found.tolist() == [[3, 1], [3, 3]]
    rows = np.array([False, True])
    assert slope_of(lambda x: x[rows] * x[rows], values).tolist() == [[0, 0], [4, 10]]


def test_views_and_negative_steps() -> None:
    found = both_ways(lambda x: (x[::-2] * np.array([1.0, 2.0, 3.0])).sum(), [1.0] * 5)
    assert found.tolist() == [3, 0, 2, 0, 1]
    found = both_ways(lambda x: x.T.reshape(-1)[1:3], [[1.0, 2.0], [3.0, 4.0]])
    assert found.tolist() == [[0, 1], [1, 0]]


def test_views_are_saved_as_they_were_seen() -> None:
    """For a view with an offset, the rule reads the elements of the view."""
    x = np.array([1.0, 2.0, 3.0, 4.0])
    part = x[2:]
    part.attach_grad()
    with autograd.record():
        y = part * part
    y.backward()
    assert part.grad.tolist() == [6, 8]
    assert part.detach().tolist() == [3, 4]


def test_an_array_used_twice_gets_both_gradients() -> None:
    assert both_ways(lambda x: x * x + np.exp(x) - x, [0.0, 1.0])[0] == 0
    assert both_ways(lambda x: np.matmul(x, x.T).sum(), [[1.0, 2.0]]).tolist() == [[2, 4]]


def test_grad_add_and_null() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad("add")
    for _ in range(3):
        with autograd.record():
            y = x * x
        y.backward()
    assert x.grad.tolist() == [6, 12]
    z = np.array([1.0])
    z.attach_grad("null")
    assert z.grad is None


def test_integer_results_stop_gradients() -> None:
    found = both_ways(lambda x: x * x.argmax().astype("float32") + x.astype("int32"), [1.0, 3.0])
    assert found.tolist() == [1, 1]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float) -> None:
    """Only the branch taken has gradients; captured arrays get their part."""

    def function(x: Any, w: Any) -> Any:
        scaled = x * 3
        return npx.cond(x.sum() > 0, lambda a: (a * a + w).sum(), lambda a: (scaled * w).sum(), [x])

    found = []
    for call in (function, gemel.compile(function)):
        x, w = np.full((3,), 2 * sign), np.array([1.0, 2.0, 3.0])
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            y = call(x, w)
        y.backward()
        found.append((x.grad.tolist(), w.grad.tolist()))
    assert found[0] == found[1]
    assert found[0] == (([4, 4, 4], [1, 1, 1]) if sign > 0 else ([3, 6, 9], [-6, -6, -6]))


def test_dropout_drops_the_gradient_of_what_it_dropped() -> None:
    for compiled in (False, True):
        x = np.ones((40, 5))
        x.attach_grad()
        call = gemel.compile(npx.dropout) if compiled else npx.dropout
        op_table.seeded(SEED)
        with autograd.record():
            y = call(x)
        y.backward()
        numpy.testing.assert_array_equal(x.grad.asnumpy(), y.asnumpy())
        assert set(y.asnumpy().ravel().tolist()) == {0.0, 2.0}


def test_batch_norm_in_a_block() -> None:
    """Hybridized training gives the gradients and statistics of imperative training."""
    from gemel.gluon import nn

    x = numpy.random.default_rng(0).standard_normal((6, 3, 2, 2)).astype("float32")
    head = numpy.random.default_rng(1).standard_normal(x.shape).astype("float32")
    found = []
    for hybridize in (False, True):
        net = nn.BatchNorm(in_channels=3)
        net.initialize()
        if hybridize:
            net.hybridize()
        data = np.array(x)
        data.attach_grad()
        with autograd.record():
            y = net(data)
        y.backward(np.array(head))
        statistics = [net.running_mean.data().asnumpy(), net.running_var.data().asnumpy()]
        found.append([data.grad.asnumpy(), net.gamma.grad().asnumpy(), *statistics])
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_batch_norm_with_parameters_of_another_dtype(dtype: str) -> None:
    """The result has x's dtype, statistics and gradients have their own; no sum overflows."""
    x = np.random.normal(3.0, 2.0, size=(80_000, 2)).astype(dtype)
    vectors = [np.ones(2), np.zeros(2), np.zeros(2), np.ones(2)]
    for array in (x, *vectors[:2]):
        array.attach_grad()
    with autograd.record():
        y, _, _ = OPS["batch_norm"](x, *vectors, axis=1)
    y.backward()
    assert y.dtype == dtype and x.grad.dtype == dtype and vectors[0].grad.dtype == "float32"
    assert abs(y.asnumpy().astype("float64").mean()) < 1e-2
    assert abs(y.asnumpy().astype("float64").std() - 1) < 1e-2
    assert vectors[1].grad.tolist() == [80_000, 80_000]
    numpy.testing.assert_allclose(vectors[2].asnumpy(), [0.3, 0.3], atol=0.01)


def test_random_scale_is_differentiable() -> None:
    """Reparameterised: a normal number depends on its mean and its deviation."""

    def function(loc: Any, scale: Any) -> Any:
        return OPS["normal"](loc, scale, shape=(1000,), dtype="float64")

    loc, scale = np.array(1.0, dtype="float64"), np.array(2.0, dtype="float64")
    loc.attach_grad()
    scale.attach_grad()
    op_table.seeded(SEED)
    with autograd.record():
        y = function(loc, scale)
    y.backward()
    assert loc.grad.item() == 1000
    expected = ((y.asnumpy() - 1) / 2).sum()
    assert scale.grad.item() == pytest.approx(expected, rel=1e-9)


def test_in_place_writes_are_differentiated() -> None:
    x, v = np.array([1.0, 2.0, 3.0]), np.array([5.0])
    x.attach_grad()
    v.attach_grad()
    with autograd.record():
        y = x * 2
        y[1:2] = v * 3
        z = (y * y).sum()
    z.backward()
    assert x.grad.tolist() == [8, 0, 24]
    assert v.grad.tolist() == [90]


def test_a_missing_gradient_rule_is_reported_by_operation() -> None:
    found = [n for n, op in OPS.items() if isinstance(op, Op) and op.rules.gradient is None]
    assert "i0" in found
    x = np.array([1.5, 2.5])
    x.attach_grad()
    with pytest.raises(GradientError, match="i0"), autograd.record():
        np.i0(x).backward()


def test_grad_gives_new_arrays() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * x
    found = autograd.grad(y, x)
    assert found.tolist() == [2, 4]
    assert x.grad.tolist() == [0, 0]
