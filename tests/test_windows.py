"""Convolution, its transpose and pooling, at every option, against loops in NumPy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import windows_reference as reference
from slow import check, drawn

import gemel
from gemel import autograd, np, npx
from gemel.errors import GemelError, ShapeError, UnknownNameError
from gemel.ops.windows import fold

Array = numpy.ndarray[Any, Any]


# --- convolution ----------------------------------------------------------------------------

#: Spatial size, kernel, stride, dilate, pad, groups, bias.
CONVOLUTIONS = [
    ((7,), (3,), (1,), (1,), (0,), 1, True),
    ((8,), (3,), (2,), (2,), (2,), 2, False),
    ((5,), (1,), (3,), (1,), (0,), 1, True),
    ((5, 6), (3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    ((6, 5), (1, 1), (1, 1), (1, 1), (0, 0), 1, False),
    ((7, 6), (3, 2), (2, 1), (1, 2), (0, 1), 2, True),
    ((5, 5), (2, 3), (2, 3), (2, 1), (3, 0), 4, True),
    ((4, 4), (4, 4), (1, 1), (1, 1), (0, 0), 1, True),
    ((2, 4), (3, 3), (2, 3), (1, 2), (2, 1), 4, False),
    ((3, 4, 3), (2, 2, 2), (1, 2, 1), (1, 1, 2), (0, 1, 1), 2, True),
    ((3, 3, 3), (3, 1, 2), (1, 1, 1), (1, 1, 1), (1, 0, 0), 1, False),
    ((5, 4, 5), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), 4, True),
    ((6, 4, 4), (2, 3, 1), (1, 1, 1), (3, 1, 1), (2, 0, 0), 1, False),
    ((4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1, True),
    ((8, 2, 2), (8, 1, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0), 1, True),
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolution(options: Any) -> None:
    space, kernel, stride, dilate, pad, groups, biased = options
    x, weight = drawn(2, 4, *space), drawn(4, 4 // groups, *kernel, seed=1)
    inputs = [x, weight, *([drawn(4, seed=2)] if biased else [])]

    def call(*arrays: Any) -> Any:
        how = {"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad}
        return npx.convolution(*arrays, num_filter=4, num_group=groups, **how)

    def slow(x: Array, weight: Array, bias: Any = None) -> Array:
        return reference.convolution(x, weight, bias, stride, dilate, pad, groups)

    check(call, slow, inputs, "float64" if len(space) == 2 else "float32")


#: Images, channels, filters, spatial size, kernel, stride, pad: few channels, or strides so long
#: that gradients are assembled from phases; sizes that are multiples of the stride, and others;
#: short rows of results, with channels that fill vectors.
GRADIENTS = [
    (2, 1, 12, (7, 9), (3, 3), (1, 1), (1, 1)),
    (1, 2, 30, (6, 20), (5, 3), (1, 1), (0, 0)),
    (2, 1, 20, (20, 18), (3, 3), (1, 1), (1, 0)),
    (3, 3, 24, (5, 6), (2, 2), (3, 3), (1, 0)),
    (3, 3, 40, (5, 6), (1, 1), (2, 2), (0, 0)),
    (2, 5, 4, (6, 7), (1, 1), (2, 3), (0, 0)),
    (2, 5, 4, (4, 2), (1, 1), (1, 3), (0, 0)),
    (2, 5, 4, (6, 8), (3, 3), (2, 2), (1, 1)),
    (2, 5, 4, (7, 8), (5, 4), (2, 3), (4, 1)),
    (2, 8, 6, (9, 8), (4, 4), (2, 2), (1, 1)),
    (3, 8, 4, (9,), (4,), (2,), (1,)),
    (3, 16, 5, (6, 7), (3, 2), (1, 3), (1, 0)),
    (2, 3, 4, (5, 4, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    (1, 2, 4, (5, 4, 6), (3, 2, 3), (2, 1, 2), (1, 0, 1)),
    (2, 2, 3, (4, 3, 3), (1, 3, 3), (1, 1, 1), (0, 0, 0)),
]


@pytest.mark.parametrize("options", GRADIENTS, ids=str)
def test_gradients_of_a_convolution(options: Any) -> None:
    images, channels, filters, space, kernel, stride, pad = options
    x, weight = drawn(images, channels, *space), drawn(filters, channels, *kernel, seed=1)

    def call(*arrays: Any) -> Any:
        return npx.convolution(
            *arrays, kernel=kernel, stride=stride, pad=pad, num_filter=filters, no_bias=True
        )

    def slow(x: Array, weight: Array) -> Array:
        return reference.convolution(x, weight, None, stride, (1,) * len(space), pad, 1)

    check(call, slow, [x, weight], "float32")


#: Spatial size, kernel, stride, dilate, pad, adj, groups, bias.
DECONVOLUTIONS = [
    ((4,), (3,), (2,), (1,), (1,), (1,), 1, True),
    ((3,), (2,), (1,), (2,), (0,), (0,), 2, False),
    ((3, 4), (4, 4), (2, 2), (1, 1), (1, 1), (0, 0), 1, True),
    ((3, 2), (5, 2), (2, 3), (1, 1), (0, 0), (1, 2), 2, True),
    ((2, 3), (2, 3), (3, 1), (2, 2), (1, 2), (2, 0), 1, False),
    ((2, 2, 3), (2, 3, 2), (2, 1, 2), (1, 1, 1), (0, 1, 0), (1, 0, 0), 2, True),
]


@pytest.mark.parametrize("options", DECONVOLUTIONS, ids=str)
def test_deconvolution(options: Any) -> None:
    space, kernel, stride, dilate, pad, adj, groups, biased = options
    x, weight = drawn(2, 4, *space), drawn(4, 3, *kernel, seed=1)
    inputs = [x, weight, *([drawn(3 * groups, seed=2)] if biased else [])]

    def call(*arrays: Any) -> Any:
        how = {"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad, "adj": adj}
        return npx.deconvolution(*arrays, no_bias=False, num_group=groups, **how)

    def slow(x: Array, weight: Array, bias: Any = None) -> Array:
        return reference.deconvolution(x, weight, bias, stride, dilate, pad, adj, groups)

    check(call, slow, inputs, "float64" if len(space) == 2 else "float32")


def test_deconvolution_to_a_target_shape() -> None:
    x, weight = np.array(drawn(1, 1, 4, 4)), np.array(drawn(1, 1, 3, 3))
    for target in (7, 8, 9):
        how = {"kernel": (3, 3), "stride": 2, "target_shape": (target, target)}
        assert npx.deconvolution(x, weight, **how).shape == (1, 1, target, target)


# --- pooling --------------------------------------------------------------------------------

#: Spatial size, kernel, stride, pad.
POOLINGS = [
    ((7,), (2,), (2,), (0,)),
    ((7,), (3,), (1,), (1,)),
    ((6, 7), (2, 2), (2, 2), (0, 0)),
    ((7, 5), (3, 2), (2, 2), (1, 1)),
    ((5, 5), (2, 3), (3, 3), (0, 2)),
    ((5, 3, 4), (2, 2, 3), (2, 1, 2), (1, 0, 1)),
]


@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("options", POOLINGS, ids=str)
def test_pooling(options: Any, full: bool, kind: str) -> None:
    space, kernel, stride, pad = options
    for padded in (True, False) if kind == "avg" else (True,):

        def call(x: Any, padded: bool = padded) -> Any:
            how = {"kernel": kernel, "stride": stride, "pad": pad, "pool_type": kind}
            convention = "full" if full else "valid"
            return npx.pooling(x, pooling_convention=convention, count_include_pad=padded, **how)

        def slow(x: Array, padded: bool = padded) -> Array:
            return reference.pooling(x, kernel, stride, pad, kind, full, padded)

        check(call, slow, [drawn(2, 2, *space)], "float64")


@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("space", [(5,), (3, 4), (2, 3, 2)], ids=str)
def test_global_pooling(space: Any, kind: str) -> None:
    ones, none = (1,) * len(space), (0,) * len(space)
    check(
        lambda x: npx.pooling(x, global_pool=True, pool_type=kind),
        lambda x: reference.pooling(x, space, ones, none, kind, False, True),
        [drawn(2, 3, *space)],
        "float64",
    )


def slope_of_maxima(x: Array, compiled: bool, **how: Any) -> Array:
    """The gradient of a weighted sum of the maxima: another weight for each window."""

    def total(x: Any) -> Any:
        y = npx.pooling(x, pool_type="max", **how)
        return (y * np.arange(1.0, y.size + 1).reshape(y.shape)).sum()

    variable = np.array(x, dtype="float64")
    variable.attach_grad()
    with autograd.record():
        y = (gemel.compile(total) if compiled else total)(variable)
    y.backward()
    return variable.grad.asnumpy()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("options", POOLINGS, ids=str)
def test_the_first_of_equal_maxima_has_the_gradient(
    options: Any, full: bool, compiled: bool
) -> None:
    """As if elements had become a little smaller from the first to the last."""
    space, kernel, stride, pad = options
    how: Any = {"kernel": kernel, "stride": stride, "pad": pad}
    how["pooling_convention"] = "full" if full else "valid"
    x = numpy.random.default_rng(0).integers(-3, -1, (2, 2, *space)).astype("float64")
    apart = x - 1e-3 * numpy.arange(x.size).reshape(x.shape)
    found = slope_of_maxima(x, compiled, **how)
    numpy.testing.assert_array_equal(found, slope_of_maxima(apart, False, **how))


@pytest.mark.parametrize("compiled", [False, True])
def test_equal_maxima_of_a_whole_image_and_windows_with_nan(compiled: bool) -> None:
    x = numpy.ones((1, 2, 2, 3))
    found = slope_of_maxima(x, compiled, global_pool=True)
    assert found.tolist() == [[[[1, 0, 0], [0, 0, 0]], [[2, 0, 0], [0, 0, 0]]]]
    x = numpy.array([[[1.0, numpy.nan, 2.0, 2.0]]])
    found = slope_of_maxima(x, compiled, kernel=2, stride=2)
    numpy.testing.assert_array_equal(found, [[[numpy.nan, numpy.nan, 2, 0]]])


def test_no_window_sees_padding_only() -> None:
    for kernel, stride, pad in (3, 1, 2), (5, 1, 4), (5, 2, 4), (3, 2, 2):
        how = {"kernel": kernel, "stride": stride, "pad": pad, "pooling_convention": "same"}
        found = npx.pooling(np.ones((1, 1, 5)), pool_type="max", **how)
        assert found.tolist() == [[[1.0] * found.size]], how


def test_pooling_of_integers_and_of_nothing_positive() -> None:
    x = np.array([[[-3, -1, -2]]], dtype="int8")
    found = npx.pooling(x, kernel=2, stride=2, pad=1)
    assert found.dtype == "int8"
    assert found.tolist() == [[[-3, -1]]]
    zeros = np.zeros((1, 1, 4))
    zeros.attach_grad()
    with autograd.record():
        y = npx.pooling(zeros, kernel=2, stride=2, pool_type="lp")
    y.backward()
    assert zeros.grad.tolist() == [[[0, 0, 0, 0]]]


# --- dtypes, views, sizes -------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("stride", "kernel"), [(1, 1), (3, 1), (3, 3)])
@pytest.mark.parametrize(("dtype", "places"), [("float16", 2049), ("bfloat16", 257)])
def test_the_gradient_of_weights_is_rounded_once(
    dtype: str, places: int, stride: int, kernel: int, compiled: bool
) -> None:
    """The sum over one image is no number of the dtype; the sum over all images is."""
    x = np.ones((2, 2, stride * (places - 1) + kernel)).astype(dtype)
    weight = np.ones((1, 2, kernel)).astype(dtype)
    head = numpy.ones((2, 1, places), "float32")
    head[1] = -1
    head[1, :, -1] = 0

    def gradient(x: Any, weight: Any, head: Any) -> Any:
        with autograd.record():
            y = npx.convolution(x, weight, no_bias=True, kernel=kernel, stride=stride)
        return autograd.grad(y, [weight], head)[0]

    weight.attach_grad()
    function = gemel.compile(gradient) if compiled else gradient
    found = function(x, weight, np.array(head).astype(dtype))
    assert (found.astype("float32").asnumpy() == 1).all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("stride", "dilate", "pad"), [(2, 2, 0), (1, 1, 3), (1, 2, 5)])
@pytest.mark.parametrize(("dtype", "channels"), [("float16", 2049), ("bfloat16", 257)])
def test_sums_of_windows_are_rounded_once(
    dtype: str, channels: int, stride: int, dilate: int, pad: int, compiled: bool
) -> None:
    """The elements of a window are no numbers of the dtype; the sums of two windows are."""
    values = numpy.zeros((channels, 1, 3), "float32")
    values[:, 0, 0] = 1
    values[:-1, 0, 1] = -1
    weight = np.array(values).astype(dtype)
    x = np.ones((2, channels, 20)).astype(dtype)
    how = {"kernel": 3, "stride": stride, "dilate": dilate, "pad": pad, "num_filter": 1}

    def grown(x: Any, weight: Any) -> Any:
        return npx.deconvolution(x, weight, no_bias=True, **how)

    function = gemel.compile(grown) if compiled else grown
    inside = function(x, weight)[:, 0, 6:-6:stride].astype("float32").asnumpy()
    assert (inside == 1).all()
    assert inside.size > 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "large"), [("float16", 2048), ("bfloat16", 256)])
def test_gradients_of_maxima_are_rounded_once(dtype: str, large: int, compiled: bool) -> None:
    """Nine windows see the largest element; an odd number above `large` has no place in dtype."""
    values = numpy.zeros((1, 1, 5, 5), "float32")
    values[0, 0, 2, 2] = 1
    x, g = np.array(values).astype(dtype), np.ones((1, 1, 3, 3)).astype(dtype)
    g[0, 0, 1, 1] = large
    x.attach_grad()

    def largest(x: Any) -> Any:
        return npx.pooling(x, kernel=(3, 3), stride=(1, 1))

    with autograd.record():
        y = (gemel.compile(largest) if compiled else largest)(x)
    y.backward(g)
    assert float(x.grad[0, 0, 2, 2]) == float(x.grad.sum()) == large + 8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_added_in_float32(dtype: str) -> None:
    x = np.ones((1, 8, 20), dtype=dtype) * 0.1
    weight = np.ones((1, 8, 20), dtype=dtype) * 0.1
    x.attach_grad()
    with autograd.record():
        y = npx.convolution(x, weight, pad=19, no_bias=True)
    y.backward()
    assert y.dtype == x.grad.dtype == dtype
    assert abs(float(y[0, 0, 19]) - 160 * float(x[0, 0, 0]) ** 2) < 0.02
    assert abs(float(x.grad[0, 0, 0]) - 20 * float(weight[0, 0, 0])) < 0.02


@pytest.mark.parametrize(
    ("channels", "space", "stride", "dilate"),
    [
        (40, (7, 9), (1, 1), (1, 1)),  # rows are short, so vectors run along channels
        (40, (9, 8), (2, 1), (1, 2)),
        (3, (8, 20), (1, 1), (1, 1)),
        (40, (30,), (1,), (1,)),
        (40, (40,), (3,), (1,)),
    ],
)
def test_large_kernels_that_see_each_channel_alone(
    channels: int, space: Any, stride: Any, dilate: Any
) -> None:
    kernel, pad = ((7, 6), (6, 5)) if len(space) == 2 else ((27,), (3,))
    x, weight = drawn(2, channels, *space), drawn(channels, 1, *kernel, seed=1)

    def call(*arrays: Any) -> Any:
        how = {"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad}
        return npx.convolution(*arrays, num_filter=channels, num_group=channels, **how)

    def slow(x: Array, weight: Array) -> Array:
        return reference.convolution(x, weight, None, stride, dilate, pad, channels)

    check(call, slow, [x, weight], "float64")


def test_planes_of_halves_are_added_in_float32() -> None:
    x = np.array([2048.0] + [1.0] * 6, dtype="float16").reshape(1, 1, 7, 1, 1)
    weight = np.ones((1, 1, 7, 1, 1), dtype="float16")
    assert npx.convolution(x, weight, no_bias=True).item() == 2054
    bias = np.array([0.5], dtype="float16")
    assert npx.convolution(x, weight, bias).item() == 2054


@pytest.mark.parametrize(("stride", "dilate"), [(1, 1), (2, 2), (2, 1)])
def test_folds_cut_over_several_threads(stride: int, dilate: int) -> None:
    """At sizes that are cut into tiles, no addition is lost where windows overlap."""
    how = {"kernel": (3, 3), "stride": (stride, stride), "dilate": (dilate, dilate)}
    size = 2 * dilate + 39 * stride + 1
    x = numpy.random.default_rng(0).standard_normal((60, 3, 3, 40, 40))
    expected = fold.function(x, **how, shape=(size, size))
    found = fold(np.array(x, dtype="float64"), **how, shape=(size, size))
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-10, atol=1e-10)


def test_of_views() -> None:
    base = drawn(5, 7, 3, 2)
    image = np.array(base).transpose(3, 2, 1, 0)[:, :, ::-1, 1:]
    weight = np.array(drawn(3, 3, 4, 4)).transpose(1, 0, 3, 2)[:, :, 1:, ::2]
    found = npx.convolution(image, weight, no_bias=True, pad=1)
    expected = reference.convolution(
        image.asnumpy().astype("float64"), weight.asnumpy(), None, (1, 1), (1, 1), (1, 1), 1
    )
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5, atol=1e-5)


def test_other_sizes_through_one_program() -> None:
    """The sizes of batch and image are free."""
    weight = np.array(drawn(3, 2, 3, 3))

    def both(x: Any) -> Any:
        return npx.pooling(npx.convolution(x, weight, no_bias=True, pad=1), kernel=2, stride=2)

    program = gemel.compile(both)
    for shape in ((2, 2, 8, 10), (3, 2, 8, 10), (5, 2, 12, 14), (4, 2, 9, 7)):
        x = np.array(drawn(*shape))
        numpy.testing.assert_allclose(program(x).asnumpy(), both(x).asnumpy(), rtol=1e-5, atol=1e-5)
    assert program.traces == 1


def test_estimates_of_rows_of_a_million_places_fit_in_a_plan() -> None:
    weight = np.ones((16, 1, 4))
    program = gemel.compile(lambda x: npx.convolution(x, weight, no_bias=True, stride=2))
    for size in (1_000, 2_000_000):
        x = np.ones((1, 1, size))
        x.attach_grad()
        with autograd.record():
            y = program(x)
        y.backward()
        assert float(x.grad.sum()) == 16 * 4 * y.shape[2]


def test_other_sizes_of_volumes_through_one_program() -> None:
    weight = np.array(drawn(3, 2, 3, 3, 3))
    weight.attach_grad()
    program = gemel.compile(lambda x: npx.convolution(x, weight, no_bias=True, pad=1))
    for shape in ((2, 2, 4, 5, 6), (3, 2, 4, 5, 6), (3, 2, 7, 4, 5), (1, 2, 2, 2, 2)):
        x = np.array(drawn(*shape))
        found = program(x).asnumpy()
        whole = reference.convolution(
            x.asnumpy().astype("float64"), weight.asnumpy(), None, *[(1, 1, 1)] * 3, 1
        )
        numpy.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)
    assert program.traces == 2  # a single image has a program of its own


def test_second_gradients() -> None:
    """The gradient of a sum of squares of a gradient, against differences of first gradients."""
    x, weight = drawn(1, 2, 4, 5), drawn(2, 2, 2, 2, seed=1)

    def slopes(weights: Array) -> Any:
        image, kernel = np.array(x, dtype="float64"), np.array(weights, dtype="float64")
        image.attach_grad()
        kernel.attach_grad()
        with autograd.record():
            y = npx.pooling(npx.convolution(image, kernel, no_bias=True, pad=1) ** 3, kernel=2)
            (first,) = autograd.grad([y.sum()], [image], create_graph=True)
            square = (first * first).sum()
        square.backward()
        return float(square), kernel.grad.asnumpy()

    direction = numpy.random.default_rng(3).standard_normal(weight.shape)
    step = 1e-6
    slope = (slopes(weight + step * direction)[0] - slopes(weight - step * direction)[0]) / 2 / step
    found = (slopes(weight)[1] * direction).sum()
    assert abs(slope - found) < 1e-4 * abs(slope)


# --- bad input ------------------------------------------------------------------------------

IMAGE, WEIGHT = (2, 4, 5, 5), (6, 4, 3, 3)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[GemelError], str]] = [
    ("convolution", (IMAGE, (6, 3, 3, 3)), {}, ShapeError, "4 channels.*needs 3"),
    ("convolution", (IMAGE, (6, 2, 3, 3)), {"num_group": 4}, ShapeError, "4 channels.*needs 8"),
    ("convolution", (IMAGE, WEIGHT), {"kernel": (2, 2)}, ShapeError, "kernel"),
    ("convolution", (IMAGE, WEIGHT), {"stride": (0, 1)}, ShapeError, "at least 1"),
    ("convolution", (IMAGE, WEIGHT), {"stride": (1,)}, ShapeError, "2 numbers"),
    ("convolution", (IMAGE, WEIGHT), {"dilate": 3}, ShapeError, "spans 7"),
    ("convolution", (IMAGE, WEIGHT), {"layout": "NHCW"}, UnknownNameError, "NCHW"),
    ("convolution", (IMAGE, WEIGHT), {"num_filter": 5}, ShapeError, "num_filter 5"),
    ("convolution", ((2, 4, 5), WEIGHT), {}, ShapeError, "the same number of axes"),
    ("convolution", (IMAGE, WEIGHT, (5,)), {}, ShapeError, "bias"),
    ("convolution", (IMAGE, (6, 4)), {}, ShapeError, "same number of axes"),
    ("deconvolution", (IMAGE, WEIGHT), {}, ShapeError, "4 channels.*needs 6"),
    ("deconvolution", (IMAGE, (4, 2, 3, 3)), {"adj": 1}, ShapeError, "adj"),
    (
        "deconvolution",
        (IMAGE, (4, 2, 3, 3)),
        {"pad": 4},
        ShapeError,
        "must leave a non-empty result",
    ),
    ("pooling", (IMAGE,), {}, ShapeError, "needs a kernel"),
    ("pooling", (IMAGE,), {"kernel": 6}, ShapeError, "spans 6"),
    ("pooling", (IMAGE,), {"kernel": 2, "pad": 2}, ShapeError, "less than kernel"),
    ("pooling", (IMAGE,), {"kernel": 2, "pool_type": "mex"}, UnknownNameError, "max"),
    ("pooling", ((2, 3),), {"kernel": 2}, ShapeError, "3 to 5 axes"),
]


@pytest.mark.parametrize(("name", "shapes", "options", "error", "match"), WRONG, ids=str)
def test_what_is_refused(name: str, shapes: Any, options: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        getattr(npx, name)(*(np.ones(shape) for shape in shapes), **options)
