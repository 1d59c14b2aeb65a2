"""What follows a product elementwise is computed by its kernel, also behind a reshape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx


def pointwise(x: Any, weight: Any, groups: int = 1) -> Any:
    """A convolution of 1 x 1 without a bias."""
    filters = weight.shape[0]
    return npx.convolution(
        x, weight, kernel=(1, 1), num_filter=filters, num_group=groups, no_bias=True
    )


def dense(x: Any, weight: Any) -> Any:
    """A product of all rows of a batch of sequences."""
    rows = np.dot(x.reshape(-1, x.shape[-1]), weight.reshape(weight.shape[0], -1).T)
    return rows.reshape(x.shape[0], x.shape[1], x.shape[2], -1)


#: What follows, given the product and numbers for each of its channels.
FOLLOWING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda y, a, _: npx.relu(y + a),
    "a normalization": lambda y, a, b: npx.relu((y - a) * b),
    "bounds": lambda y, a, b: np.clip(y * b, 0, 0.5) + a,
    "of other dtypes": lambda y, a, b: (y * b).astype("float64") * a,
    "a number that is an array": lambda y, a, b: (y + a.sum()) * b,
    "a gate": lambda y, a, b: y * b / (1 + np.exp(-y * b)),
}
#: The same, where only a part is computed by the product, or nothing is.
APART: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one number for each line": lambda y, a, _: y * np.arange(float(y.shape[2])).reshape(-1, 1) + a,
    "the product is used twice": lambda y, a, _: npx.relu(y + a) + y.mean(),
    "what is added is computed": lambda y, a, b: y + np.exp(b * np.ones(y.shape)) * a,
    "a sum": lambda y, a, _: (y + a).sum(axis=(2, 3)),
    "a softmax": lambda y, a, _: npx.softmax(y + a, axis=1),
    "positions": lambda y, a, _: npx.dropout(y + a, p=0.5),
}


def given(*shape: int) -> Any:
    draw = numpy.random.default_rng(sum(shape))
    return np.array(draw.normal(size=shape).astype("float32"))


@pytest.mark.parametrize("case", [*FOLLOWING, *APART])
@pytest.mark.parametrize("groups", (1, 2))
def test_the_results_are_the_same_for_all_sizes(case: str, groups: int) -> None:
    follow = {**FOLLOWING, **APART}[case]

    def function(x: Any, weight: Any, a: Any, b: Any) -> Any:
        return follow(pointwise(x, weight, groups), a, b)

    compiled = gemel.compile(function)
    weight, a, b = given(6, 4 // groups, 1, 1), given(6, 1, 1), given(1, 6, 1, 1)
    for shape in ((2, 4, 20, 17), (1, 4, 1, 1), (1, 4, 5, 1), (3, 4, 16, 20)):
        x = given(*shape)
        wanted = function(x, weight, a, b).asnumpy()
        found = compiled(x, weight, a, b).asnumpy()
        numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", FOLLOWING)
def test_one_kernel_computes_a_convolution_and_what_follows(case: str) -> None:
    compiled = gemel.compile(lambda x, w, a, b: FOLLOWING[case](pointwise(x, w), a, b))
    arrays = given(2, 4, 20, 17), given(6, 4, 1, 1), given(6, 1, 1), given(1, 6, 1, 1)
    graph = str(compiled.graph(*arrays, optimized=True))
    sums = "sum" in case or "array" in case  # the sum of `a` is a kernel of its own
    assert graph.count("fused(") == 1 + sums
    assert graph.splitlines()[-1].startswith("reshape(")


def test_a_shortcut_is_added_by_the_product() -> None:
    def block(x: Any, first: Any, second: Any) -> Any:
        y = npx.relu(pointwise(x, first))
        return npx.relu(pointwise(y, second) + y)

    arrays = given(2, 4, 18, 18), given(6, 4, 1, 1), given(6, 6, 1, 1)
    compiled = gemel.compile(block)
    assert str(compiled.graph(*arrays, optimized=True)).count("fused(") == 2
    wanted = block(*arrays).asnumpy()
    numpy.testing.assert_allclose(compiled(*arrays).asnumpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_bias_is_added_by_the_product_of_all_rows() -> None:
    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return npx.relu(dense(x, weight) + bias)

    arrays = given(2, 3, 5, 8), given(6, 8), given(6)
    compiled = gemel.compile(layer)
    assert str(compiled.graph(*arrays, optimized=True)).count("fused(") == 1
    wanted = layer(*arrays).asnumpy()
    numpy.testing.assert_allclose(compiled(*arrays).asnumpy(), wanted, rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    def loss(x: Any, weight: Any, a: Any) -> Any:
        return (npx.relu(pointwise(x, weight) + a) ** 2).sum()

    found = []
    for function in (loss, gemel.compile(loss)):
        arrays = [given(2, 4, 18, 18), given(6, 4, 1, 1), given(6, 1, 1)]
        for each in arrays:
            each.attach_grad()
        with autograd.record():
            total = function(*arrays)
        total.backward()
        found.append([each.grad.asnumpy() for each in arrays])
    for one, two in zip(*found, strict=True):
        numpy.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-3)


def spread(a: Any) -> Any:
    """The first rows and columns of windows of 16 x 16."""
    return (a * 2).reshape(4, 16, 8, 16).transpose(0, 2, 1, 3).reshape(32, 256)


@pytest.mark.parametrize(
    "function, kernels",
    [
        (lambda a: np.repeat(a, 2, axis=1) * 2 + 1, 1),
        (lambda a: np.tile(a, (2, 1)) * 2 + 1, 1),
        (lambda a: npx.relu(np.stack([npx.relu(a), a + 1]) * 2), 2),
        (lambda a: ((a * 2).T + 1).reshape(-1) * 3, 1),
        (lambda a: (a * 2).reshape(-1) * 3, 1),
        (lambda a: npx.relu(spread(a)), 2),
        # What is reshaped is read twice: it is stored once.
        (lambda a: (y := spread(a)).sum(axis=0) + npx.relu(y)[0], 3),
    ],
)
def test_numbers_are_applied_before_other_reshapes(
    function: Callable[[Any], Any], kernels: int
) -> None:
    a = given(64, 128)
    compiled = gemel.compile(function)
    assert numpy.array_equal(compiled(a).asnumpy(), function(a).asnumpy())
    assert compiled.plan_summary(a).startswith(f"<lambda>: {kernels} kernel")
