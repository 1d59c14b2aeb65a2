"""The bias of a product of two-byte numbers is added before the result is rounded, both ways."""

from __future__ import annotations

from typing import Any

import pytest

import gemel
from gemel import autograd, np, npx
from gemel.gluon import nn

HALVES = ("float16", "bfloat16")


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    np.random.seed(3)
    return [np.random.normal(size=shape).astype(dtype) for shape in shapes]


def dense(x: Any, weight: Any, bias: Any) -> Any:
    return npx.fully_connected(x, weight, bias, flatten=False)


def convolved(x: Any, weight: Any, bias: Any) -> Any:
    return npx.convolution(x, weight, bias, kernel=(3, 3), num_filter=weight.shape[0])


def depthwise(x: Any, weight: Any, bias: Any) -> Any:
    channels = weight.shape[0]
    return npx.convolution(
        x, weight, bias, kernel=(3, 3), num_filter=channels, num_group=channels, pad=(1, 1)
    )


def grown(x: Any, weight: Any, bias: Any) -> Any:
    filters = weight.shape[1]
    return npx.deconvolution(
        x, weight, bias, kernel=(3, 3), stride=(2, 2), num_filter=filters, no_bias=False
    )


CASES = {
    "dense": (dense, (7, 33), (20, 33), (20,)),
    "one row": (dense, (1, 64), (48, 64), (48,)),
    "sequence": (dense, (2, 5, 16), (24, 16), (24,)),
    "convolution": (convolved, (2, 6, 9, 9), (8, 6, 3, 3), (8,)),
    "depthwise": (depthwise, (2, 6, 9, 9), (6, 1, 3, 3), (6,)),
    "deconvolution": (grown, (2, 6, 9, 9), (6, 4, 3, 3), (4,)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_it_is_rounded_once(name: str, dtype: str) -> None:
    """The result is the rounded float32 result; only the order of sums may change it."""
    function, *shapes = CASES[name]
    given = drawn(dtype, *shapes)
    found = function(*given)
    expected = function(*[x.astype("float32") for x in given]).astype(dtype)
    assert found.dtype == dtype
    assert (found != expected).sum().item() <= found.size // 100
    compiled = gemel.compile(function)(*given)
    assert compiled.tolist() == found.tolist()
    assert gemel.compile(lambda *xs: npx.relu(function(*xs)))(*given).tolist() == (
        npx.relu(found).tolist()
    )


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_of_its_dtype_and_the_same_both_ways(name: str, dtype: str) -> None:
    function, *shapes = CASES[name]
    gradients = []
    for way in (function, gemel.compile(function)):
        given = drawn(dtype, *shapes)
        for x in given:
            x.attach_grad()
        with autograd.record():
            y = way(*given)
            loss = (y * y).sum()
        loss.backward()
        assert all(x.grad.dtype == dtype for x in given)
        gradients.append([x.grad.tolist() for x in given])
    assert gradients[0] == gradients[1]


def test_a_sum_that_rounding_before_would_lose() -> None:
    """float16 has no 1 + 2**-11, but it has 1 + 2**-11 + 2**-11."""
    x, weight = np.array([[1.0, 2.0**-11]], dtype="float16"), np.ones((1, 2), dtype="float16")
    bias = np.array([2.0**-11], dtype="float16")
    layer = nn.Dense(1, in_units=2, dtype="float16")
    layer.initialize()
    layer.weight.set_data(weight)
    layer.bias.set_data(bias)
    assert layer(x).item() == 1 + 2.0**-10
    layer.hybridize()
    assert layer(x).item() == 1 + 2.0**-10


@pytest.mark.parametrize("bias", ["float32", "float64"])
def test_a_wider_bias_makes_a_wider_result(bias: str) -> None:
    x, weight = drawn("float16", (3, 8), (5, 8))
    (added,) = drawn(bias, (5,))
    found = dense(x, weight, added)
    expected = dense(x.astype("float32"), weight.astype("float32"), added)
    assert found.dtype == bias
    assert abs(found - expected).max().item() < 1e-5


def test_it_is_one_kernel_that_reads_halves() -> None:
    function = gemel.compile(dense)
    given = drawn("float16", (64, 128), (256, 128), (256,))
    function(*given)
    assert "1 kernel, 0 bytes" in function.plan_summary(*given)
